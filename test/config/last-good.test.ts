import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type KeptUpstreams, loadOrLastGood } from '../../src/config/last-good.ts';
import { loadConfig, type Loaded } from '../../src/config/load.ts';

const SAVED = '2026-11-20T08:00:00.000Z';
const KEY = 'a'.repeat(64);
const OTHER_KEY = 'b'.repeat(64);

let dir = '';

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-last-good-'));
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

/** Loads a text as a start with `--last-good` does. @param earlier the text of the last good version. */
async function started(text: string, earlier: string | undefined, env: NodeJS.ProcessEnv = {}): Promise<Loaded> {
  const file = join(dir, 'linkspan.yaml');
  await writeFile(file, text);
  const kept: KeptUpstreams =
    earlier === undefined ? { missing: 'there is none' } : { copy: { text: earlier, envFiles: {} }, savedAt: SAVED };
  return await loadOrLastGood((lastGood) => loadConfig(file, { env, lastGood }), kept);
}

const A = 'mcpServers: {a: {command: node}}\n';
const BROKEN_A = 'mcpServers: {a: {command: node, isolaton: call}}\n';

/** Each file is broken, and its gateway section is valid by itself. */
const broken: readonly { readonly name: string; readonly text: string; readonly reason: RegExp }[] = [
  { name: 'one wrong entry', text: BROKEN_A, reason: /mcpServers\.a.*isolation/ },
  {
    name: 'a wrong entry beside a valid one',
    text: 'mcpServers: {a: {command: node, isolaton: call}, b: {command: node}}\n',
    reason: /mcpServers\.a.*isolation/,
  },
  { name: 'a new entry that is wrong', text: 'mcpServers: {a: {command: node}, b: {}}\n', reason: /mcpServers\.b/ },
  { name: 'two entries of one id', text: 'mcpServers: {a: {command: node}, A: {command: node}}\n', reason: /rename/ },
  { name: 'no map of upstreams', text: 'mcpServer: {a: {command: node}}\n', reason: /did you mean "mcpServers"/ },
  {
    name: 'a variable that is gone',
    text: 'mcpServers: {a: {command: node, args: ["${GONE}"]}}\n',
    reason: /GONE is not set/,
  },
];

for (const { name, text, reason } of broken) {
  test(`--last-good serves the earlier upstreams after ${name}`, async () => {
    const { config, lastGood } = await started(text, A);
    assert.deepEqual(
      config.upstreams.map(({ id, problem }) => [id, problem]),
      [['a', undefined]],
    );
    assert.equal(lastGood?.savedAt, SAVED);
    assert.match(lastGood.reason, reason);
  });
}

test('--last-good changes nothing for a valid file', async () => {
  const { config, lastGood } = await started('mcpServers: {b: {command: node}}\n', A);
  assert.deepEqual([config.upstreams.map(({ id }) => id), lastGood], [['b'], undefined]);
});

test('--last-good lets an entry fail alone that was wrong before too', async () => {
  const text = 'mcpServers: {a: {command: node, args: ["${GONE}"]}, b: {command: node}}\n';
  const { config, lastGood } = await started(text, text.replace('b:', 'c:'));
  assert.deepEqual([config.upstreams.map(({ id }) => id), lastGood], [['a', 'b'], undefined]);
});

test('an upstream that the broken file has removed or disabled stays away', async () => {
  const earlier = 'mcpServers: {a: {command: node}, b: {command: node}, c: {command: node}}\n';
  const text = 'mcpServers: {a: {command: node, isolaton: call}, c: {command: node, disabled: true}}\n';
  const { config } = await started(text, earlier);
  assert.deepEqual(
    config.upstreams.map(({ id }) => id),
    ['a'],
  );
});

function withKey(sha256: string): string {
  return `gateway: {auth: {apiKeys: [{name: ann, sha256: ${sha256}}]}, limits: {processes: 7}}\n`;
}

test('access, authentication and limits are those of the broken file', async () => {
  const { config, lastGood } = await started(BROKEN_A + withKey(OTHER_KEY), `${A}gateway: {limits: {processes: 9}}\n`);
  assert.notEqual(lastGood, undefined);
  assert.deepEqual(config.auth.apiKeys, [{ name: 'ann', sha256: OTHER_KEY }]);
  assert.equal(config.limits.processes, 7);
});

/** Files with which no earlier upstreams are used, because their access rules are not certain. */
const refused: readonly { readonly name: string; readonly text: string; readonly earlier?: string }[] = [
  { name: 'that cannot be parsed', text: 'mcpServers: [' },
  { name: 'with a wrong setting of the gateway', text: `${BROKEN_A}gateway: {lissten: 1}\n` },
  { name: 'with an address open to all without a key', text: `${BROKEN_A}gateway: {listen: "0.0.0.0:1"}\n` },
  { name: 'with a misspelled gateway section', text: `${BROKEN_A}${withKey(KEY).replace('gateway', 'gatewey')}` },
  { name: 'with a setting of the gateway at the top', text: `${BROKEN_A}listen: 127.0.0.1:1\n` },
  { name: 'that has lost its gateway section', text: BROKEN_A, earlier: `${A}${withKey(KEY)}` },
  { name: 'whose key is in a variable that is not set', text: `${BROKEN_A}${withKey('${KEY_HASH}')}` },
];

for (const { name, text, earlier = A } of refused) {
  test(`--last-good refuses a file ${name}`, async () => {
    await assert.rejects(started(text, earlier), /--last-good.*never come from an older file/);
  });
}

test('without a last good version, the problems of the file and the way out are named', async () => {
  await assert.rejects(started('mcpServers: [', undefined), /--last-good: there is none\n.*linkspan\.yaml:1/s);
  const { config } = await started('mcpServers: {a: {}, b: {command: node}}\n', undefined);
  assert.equal(config.upstreams.length, 2, 'the wrong entry fails alone, as without the option');
});

test('a profile goes without an upstream that only the broken file has', async () => {
  const text = 'mcpServers: {a: {command: node, isolaton: call}, b: {command: node}}\n';
  const { config } = await started(`${text}gateway: {profiles: {both: {upstreams: [a, b]}}}\n`, A);
  assert.deepEqual(config.profiles[0]?.upstreams, ['a']);
});

test('an envFile of the last good version is used as it was', async () => {
  const file = join(dir, 'linkspan.yaml');
  const envFile = join(dir, 'a.env');
  await writeFile(envFile, 'TOKEN=old\n');
  await writeFile(file, 'mcpServers: {a: {command: node, envFile: a.env}}\n');
  const { copy } = await loadConfig(file, { env: {} });
  assert.ok(copy !== undefined);
  await rm(envFile);
  const { config, lastGood, files, settings } = await loadOrLastGood(
    (earlier) => loadConfig(file, { env: {}, lastGood: earlier }),
    { copy, savedAt: SAVED },
  );
  const [target] = config.upstreams.map((upstream) => upstream.target);
  assert.equal(target?.kind === 'stdio' ? target.env['TOKEN'] : undefined, 'old');
  assert.match(lastGood?.reason ?? '', /a\.env/);
  assert.deepEqual([...files.keys()].toSorted(), [envFile, join(dir, 'linkspan.lock'), file].toSorted());
  const command = settings().find(({ key }) => key === 'mcpServers.a.command');
  assert.match(command?.place ?? '', /linkspan\.yaml of 2026-11-20/);
});
