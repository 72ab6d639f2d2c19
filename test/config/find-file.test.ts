import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { configFile, findConfigFile } from '../../src/config/find-file.ts';
import { stateDirOf } from '../../src/config/state-dir.ts';

let dir = '';

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-find-'));
  await mkdir(join(dir, 'config'));
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

test('the config is found by itself: linkspan.yaml before config/linkspan.json', async () => {
  assert.equal(findConfigFile(dir, {}), undefined);
  await writeFile(join(dir, 'config/linkspan.json'), '{}');
  assert.equal(findConfigFile(dir, {}), join(dir, 'config/linkspan.json'));
  await writeFile(join(dir, 'linkspan.yaml'), '');
  assert.equal(findConfigFile(dir, {}), join(dir, 'linkspan.yaml'));
});

test('the script of a checkout looks in the folder of its caller, then in the checkout', async () => {
  const checkout = join(dir, 'checkout');
  await mkdir(checkout);
  const npm = { npm_package_name: 'linkspan', npm_lifecycle_event: 'linkspan', INIT_CWD: dir };
  const env = { ...npm, npm_package_json: join(checkout, 'package.json') };
  assert.equal(findConfigFile(join(dir, 'empty'), env), undefined);
  await writeFile(join(checkout, 'linkspan.yaml'), '');
  assert.equal(findConfigFile(join(dir, 'empty'), env), join(checkout, 'linkspan.yaml'));
  assert.equal(findConfigFile(join(dir, 'empty'), { ...env, npm_lifecycle_event: 'start' }), undefined);
  assert.equal(findConfigFile(dir, env), join(dir, 'linkspan.yaml'));
});

test('the command line comes before LINKSPAN_CONFIG, and that before the folder', () => {
  const env = { LINKSPAN_CONFIG: join(dir, 'linkspan.yaml') };
  assert.equal(configFile('config/linkspan.json', dir, env), 'config/linkspan.json');
  assert.equal(configFile(undefined, dir, env), join(dir, 'linkspan.yaml'));
});

test('a named config that does not exist is reported with its folder and the next step', () => {
  const client = 'the file of any MCP client works too';
  assert.throws(() => configFile('config/no.yaml', dir, {}), {
    message: `config/no.yaml: no such file in ${join(dir, 'config')}. Check the path; ${client}`,
  });
  const below = join(dir, 'linkspan.yaml', 'no.yaml');
  assert.throws(() => configFile(undefined, dir, { LINKSPAN_CONFIG: below }), {
    message: `${below}: no such file. Check LINKSPAN_CONFIG; ${client}`,
  });
});

test('without a config the error names the places and the options', () => {
  assert.throws(() => configFile(undefined, join(dir, 'empty'), {}), /linkspan\.yaml.*--config or LINKSPAN_CONFIG/);
});

const files = [
  { what: 'names one', text: 'gateway: {stateDir: state}', isNamed: true },
  { what: 'names one by a variable', text: 'gateway: {stateDir: "${WHERE}"}', isNamed: true },
  { what: 'is wrong elsewhere', text: 'gateway: {stateDir: state, listen: 7, nope: 1}\nmcpServers: []', isNamed: true },
  { what: 'names none', text: 'gateway: {}', isNamed: false },
  { what: 'cannot be parsed elsewhere', text: 'gateway:\n  stateDir: state # here\nmcpServers: {{{', isNamed: true },
  { what: 'is unfinished JSON', text: '{"gateway": {"stateDir": "state"}, "mcpServers": ', isNamed: true },
  { what: 'is broken, with it commented', text: '# stateDir: state\nmcpServers: {{{', isNamed: false },
  { what: 'cannot be parsed', text: 'gateway: {stateDir: [', isNamed: false },
];

for (const { what, text, isNamed } of files) {
  test(`the state directory is found for a config file that ${what}`, async () => {
    const file = join(dir, 'state-of.yaml');
    await writeFile(file, text);
    const found = await stateDirOf(file, { HOME: '/home/me', WHERE: 'state' });
    if (isNamed) assert.equal(found, join(dir, 'state'));
    else assert.match(found, /^\/home\/me\/\.local\/state\/linkspan\/[\da-f]{12}$/);
  });
}
