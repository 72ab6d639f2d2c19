import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { diffLines } from '../../../src/config/changes/diff-text.ts';
import { diffConfigs, isEmptyDiff } from '../../../src/config/changes/diff.ts';
import { loadConfig, type Loaded, type LoadOptions } from '../../../src/config/load.ts';
import { onChangeOf } from '../../../src/config/sections/lock.ts';
import { lockText } from '../../../src/lock/lock-file.ts';

const EMPTY_LOCK = lockText(new Map());

/** A lock with the tools `get_issue` and `close_issue`, and the prompt `review`, of each of these upstreams. */
function lockOf(...upstreams: readonly string[]): string {
  const definitions = new Map(
    ['tool get_issue', 'tool close_issue', 'prompt review'].map((id) => {
      const [kind = '', key = ''] = id.split(' ');
      return [id, { kind: kind === 'tool' ? 'tool' : 'prompt', key, text: '{}' } as const];
    }),
  );
  return lockText(new Map(upstreams.map((id) => [id, [{ eras: ['legacy'], server: 's', definitions }]])));
}

const accessOf = (role: object) => ({ roles: { r: role }, grants: [{ roles: ['r'], anyone: true }] });

let dir = '';

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'linkspan-config-'));
});

afterEach(() => rmSync(dir, { recursive: true }));

async function load(gateway: object = {}, own: object = {}, options: Partial<LoadOptions> = {}): Promise<Loaded> {
  const mcpServers = { a: { command: 'x' }, b: { command: 'y', ...own } };
  writeFileSync(join(dir, 'c.json'), JSON.stringify({ mcpServers, gateway }, undefined, 1));
  return await loadConfig(join(dir, 'c.json'), { env: { HOME: dir }, ...options });
}

function reactions({ config }: Loaded): readonly unknown[] {
  return config.upstreams.map((upstream) => onChangeOf(config, upstream));
}

test('without a lock file and a setting nothing is pinned', async () => {
  const loaded = await load();
  assert.equal(loaded.config.lock, undefined);
  assert.deepEqual(reactions(loaded), [undefined, undefined]);
  assert.ok(loaded.files.has(join(dir, 'linkspan.lock')), 'a new lock file is noticed');
});

test('a lock file beside the config is used with warn', async () => {
  writeFileSync(join(dir, 'linkspan.lock'), EMPTY_LOCK);
  assert.deepEqual(reactions(await load()), ['warn', 'warn']);
  assert.deepEqual(reactions(await load({ lock: { onChange: 'refuse' } }, { lock: 'off' })), ['refuse', undefined]);
  assert.deepEqual(reactions(await load({}, { lock: 'quarantine' })), ['warn', 'quarantine']);
});

// SEC-33
test('an enforced lock without a file is refused, with its place', async () => {
  const expected = /c\.json:\d+:\d+ gateway\.lock: there is no lock file .*x\.lock; write it with "linkspan lock"/;
  for (const onChange of ['quarantine', 'refuse'])
    await assert.rejects(load({ lock: { file: 'x.lock', onChange } }), expected);
  await assert.rejects(load({}, { lock: 'quarantine' }), /there is no lock file/);
  assert.match((await load({ lock: { onChange: 'warn' } })).warnings.join(), /there is no lock file/);
  assert.equal((await load({ lock: { onChange: 'refuse' } }, {}, { ignoresLock: true })).config.lock, undefined);
});

// SEC-33
test('an enforced lock fails an upstream whose lists depend on the caller', async () => {
  const personal = { command: undefined, url: 'https://personal.invalid/mcp', auth: { kind: 'identity' } };
  const failed = async (gateway: object, more: object = {}, options: Partial<LoadOptions> = {}) => {
    const { config, problems } = await load(gateway, { ...personal, ...more }, options);
    const reasons = config.upstreams.map(({ problem = '' }) => problem);
    assert.equal(reasons[0], '');
    assert.equal(problems.length, reasons[1] === '' ? 0 : 1);
    return reasons[1];
  };
  writeFileSync(join(dir, 'linkspan.lock'), lockOf('a'));
  const lock = { onChange: 'refuse' };
  const depends = /^its lists depend on the caller, .* "(quarantine|refuse)" withholds everything; set "lock: off"/;
  for (const [gateway, own, place] of [
    [{ lock }, {}, /c\.json:\d+:\d+, mcpServers\.b\.auth/],
    [{}, { lock: 'quarantine' }, /c\.json:\d+:\d+, mcpServers\.b\.lock/],
  ] as const) {
    const reason = (await failed(gateway, own)) ?? '';
    assert.match(reason, depends);
    assert.match(reason, place);
    assert.equal(await failed(gateway, own, { ignoresLock: true }), '', 'linkspan lock reports it by itself');
  }
  assert.equal(await failed({ lock }, { lock: 'off' }), '');
  assert.equal(await failed({ lock }, { lock: 'warn' }), '');
  writeFileSync(join(dir, 'linkspan.lock'), lockOf('a', 'b'));
  assert.equal(await failed({ lock }), '', 'pins of an earlier config are enforced');
});

test('an enforced lock needs no file where every upstream has lock: off', async () => {
  writeFileSync(
    join(dir, 'c.json'),
    JSON.stringify({ mcpServers: { a: { command: 'x', lock: 'off' } }, gateway: { lock: { onChange: 'refuse' } } }),
  );
  const { config, warnings } = await loadConfig(join(dir, 'c.json'), { env: { HOME: dir } });
  assert.deepEqual([config.lock, warnings], [undefined, []]);
});

// SEC-33
test('a broken lock file is refused, with its place, also with warn', async () => {
  writeFileSync(join(dir, 'linkspan.lock'), '{\n<<<<<<< HEAD\n');
  await assert.rejects(load(), /linkspan\.lock:2:1: is not a lock file that can be read/);
});

test('another lock file is a change of the config', async () => {
  writeFileSync(join(dir, 'linkspan.lock'), EMPTY_LOCK);
  const before = await load();
  assert.ok(isEmptyDiff(diffConfigs(before.config, (await load()).config)));
  writeFileSync(join(dir, 'linkspan.lock'), EMPTY_LOCK.replace('"upstreams": {}', '"upstreams": {"a": []}'));
  const diff = diffConfigs(before.config, (await load()).config);
  assert.match(diffLines(diff).join(), /^~ gateway\.lock\.pins\.sha256: "\w{64}" → "\w{64}"$/);
  assert.deepEqual([diff.atRestart, diff.replaced], [[], []]);
});

test('a rule about a name that an enforced lock lacks is an error with its place', async () => {
  writeFileSync(join(dir, 'linkspan.lock'), lockOf('a', 'b'));
  const lock = { onChange: 'quarantine' };
  const good = {
    upstreams: ['a'],
    tools: ['get_issue', 'get_*'],
    prompts: ['review'],
    deny: [{ tools: ['close_issue'], when: 'tool.name in ["close_issue", "review", "file:///x"]' }],
  };
  assert.deepEqual((await load({ lock, access: accessOf(good) })).warnings, []);
  const cases = [
    [
      { upstreams: ['a'], tools: ['get_issue', 'get_isue'] },
      /roles\.r\.tools\[1\]: no such tool in .*linkspan\.lock.*"get_issue"/,
    ],
    [{ tools: ['review'] }, /roles\.r\.tools\[0\]: no such tool/],
    [{ prompts: ['get_issue'] }, /roles\.r\.prompts\[0\]: no such prompt/],
    [{ upstreams: ['*'], deny: [{ tools: ['delete_issue'] }] }, /roles\.r\.deny\[0\]\.tools\[0\]: no such tool/],
  ] as const;
  for (const [role, expected] of cases) {
    const gateway = { lock, access: accessOf(role) };
    await assert.rejects(load(gateway), expected);
    await assert.rejects(load(gateway), /c\.json:\d+:\d+ /);
    assert.deepEqual(
      (await load(gateway, {}, { ignoresLock: true })).warnings,
      [],
      'linkspan lock can write another one',
    );
  }
});

test('a condition about a name that an enforced lock lacks is a warning with its place', async () => {
  writeFileSync(join(dir, 'linkspan.lock'), lockOf('a', 'b'));
  const when = 'args.n > 1 && tool.name in ["get_issue", "get_isue"] && tool.name != "nosuch"';
  const access = accessOf({ upstreams: ['a'], deny: [{ when }] });
  const { warnings } = await load({ lock: { onChange: 'quarantine' }, access });
  assert.equal(warnings.length, 1);
  assert.match(
    warnings[0] ?? '',
    /c\.json:\d+:\d+ \S+\.deny\[0\]\.when: no such tool or prompt in .*linkspan\.lock.*"get_issue".* \(at character 42\)$/,
  );
});

test('where more than the lock is served, a rule about another name is a warning', async () => {
  writeFileSync(join(dir, 'linkspan.lock'), lockOf('a', 'b'));
  const access = accessOf({ tools: ['new_tool'] });
  assert.match(
    (await load({ access })).warnings.join(),
    /c\.json:\d+:\d+ gateway\.access\.roles\.r\.tools\[0\]: no such tool in/,
  );
  const lock = { onChange: 'refuse' };
  assert.match((await load({ lock, access }, { lock: 'warn' })).warnings.join(), /no such tool/);
  assert.deepEqual((await load({ lock, access }, { lock: 'off' })).warnings, [], 'nothing of b is pinned');
  writeFileSync(join(dir, 'linkspan.lock'), lockOf('a'));
  assert.deepEqual((await load({ lock, access })).warnings, [], 'b is not in the lock');
});
