import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';

const AS_ROOT = { skip: process.geteuid?.() !== 0 && 'only root can become another user' };

test('a user without HOME who is not in the table of users has the home /', AS_ROOT, () => {
  const home = new URL('../../../src/config/document/places.ts', import.meta.url).href;
  const script = `const { homeOf } = await import(${JSON.stringify(home)}); process.setuid(54321); console.log(homeOf({}));`;
  const printed = execFileSync(process.execPath, ['--input-type=module', '--eval', script], { encoding: 'utf8' });
  assert.equal(printed, '/\n');
});
