import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commandName } from '../src/command-name.ts';

const cases = [
  { what: 'without npm', env: {}, name: 'linkspan' },
  { what: 'by npm start', env: { npm_package_name: 'linkspan', npm_lifecycle_event: 'start' } },
  { what: 'by npm run linkspan', env: { npm_package_name: 'linkspan', npm_lifecycle_event: 'linkspan' } },
  { what: 'by npm test', env: { npm_package_name: 'linkspan', npm_lifecycle_event: 'test' }, name: 'linkspan' },
  {
    what: 'by a script of another project',
    env: { npm_package_name: 'shop', npm_lifecycle_event: 'start' },
    name: 'linkspan',
  },
];

for (const { what, env, name = 'npm run -s linkspan --' } of cases) {
  // N-85
  test(`a process that was started ${what} names the command ${name}`, () => {
    assert.equal(commandName(env), name);
  });
}
