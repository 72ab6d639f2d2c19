import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { addKeyUses, readKeyFile } from '../../../src/store/disk/api-key-file.ts';
import { runCli } from '../../support/cli.ts';

const OPTIONS = { timeout: 120_000 };
const DAY_MS = 86_400_000;

let dir = '';
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-cli-keys-'));
  const gateway = { auth: { keyFile: 'keys/keys.json' }, stateDir: 'state' };
  await writeFile(join(dir, 'with.json'), JSON.stringify({ mcpServers: {}, gateway }));
  await writeFile(join(dir, 'without.json'), JSON.stringify({ mcpServers: {} }));
});
after(() => rm(dir, { recursive: true }));

const file = () => join(dir, 'keys', 'keys.json');
const key = (...args: readonly string[]) => runCli(['key', ...args, '--config', 'with.json'], dir, {}, 20_000);

test('key create shows the key once on stdout, and stores its hash with all options', OPTIONS, async () => {
  const nowMs = Date.now();
  const made = await key('create', 'ann', '--owner', 'Ada', '--groups', 'sales, on call', '--expires', '90d');
  assert.equal(made.code, 0, made.stderr);
  assert.match(made.stdout, /^lsk_[\w-]{43}\n$/);
  assert.match(made.stderr, /shown only now/);
  const [stored] = await readKeyFile(file());
  assert.ok(stored !== undefined);
  const { sha256, name, owner, groups, createdAt = '', expiresAt = '' } = stored;
  assert.equal(sha256, hash('sha256', made.stdout.trim()));
  assert.deepEqual([name, owner, groups], ['ann', 'Ada', ['sales', 'on call']]);
  assert.ok(Date.parse(createdAt) >= nowMs);
  assert.equal(Date.parse(expiresAt) - Date.parse(createdAt), 90 * DAY_MS);
});

test('key list shows names, expiry and last use, and no hash', OPTIONS, async () => {
  const made = await key('create', 'listed', '--json', '--expires', '2099-01-31');
  const { id, key: secret }: { id: string; key: string } = JSON.parse(made.stdout);
  await addKeyUses(join(dir, 'state'), new Map([[id, Date.now() - 3 * 60_000]]), new Set([id]));
  const { stdout } = await key('list');
  const line = stdout.split('\n').find((text) => text.startsWith(id)) ?? '';
  assert.match(line, /listed.*in \d+ d.*3 min ago/);
  const { stdout: json } = await key('list', '--json');
  assert.ok(!json.includes(hash('sha256', secret)) && !json.includes(secret));
  const { keys }: { keys: readonly Record<string, unknown>[] } = JSON.parse(json);
  const listed = keys.find((each) => each['id'] === id);
  assert.equal(listed?.['expiresAt'], '2099-01-31T00:00:00.000Z');
  assert.ok(typeof listed?.['usedAt'] === 'string');
});

test('key rotate makes another key with the same groups and lifetime, and ends the old', OPTIONS, async () => {
  await key('create', 'ci', '--groups', 'build', '--expires', '1h');
  const rotated = await key('rotate', 'ci', '--grace', '5m');
  assert.equal(rotated.code, 0, rotated.stderr);
  const [old, fresh] = (await readKeyFile(file())).filter(({ name }) => name === 'ci');
  assert.deepEqual(fresh?.groups, ['build']);
  const { createdAt = '', expiresAt = '' } = fresh ?? {};
  assert.equal(Date.parse(expiresAt) - Date.parse(createdAt), 3_600_000);
  assert.ok(Date.parse(old?.expiresAt ?? '') < Date.now() + 6 * 60_000);
});

test('key rotate takes another lifetime, and keeps that of a key without an end', OPTIONS, async () => {
  await key('create', 'endless');
  assert.match((await key('rotate', 'endless')).stderr, /never expires/);
  assert.match((await key('rotate', 'endless', '--expires', '2099-01-31')).stderr, /expires at 2099-01-31T00/);
});

test('key rotate renews the latest key of a name, wherever the file has it', OPTIONS, async () => {
  await key('create', 'twice');
  await key('rotate', 'twice', '--grace', '1d');
  // A file that another program has written, or Redis, has no order.
  const { keys, ...others } = JSON.parse(await readFile(file(), 'utf8'));
  await writeFile(file(), JSON.stringify({ ...others, keys: keys.toReversed() }));
  assert.match((await key('rotate', 'twice')).stderr, /never expires/);
});

test('key revoke removes the keys of a name, or the one of an id', OPTIONS, async () => {
  const ids: string[] = [];
  for (const name of ['gone', 'other']) {
    const { id }: { id: string } = JSON.parse((await key('create', name, '--json')).stdout);
    ids.push(id);
  }
  assert.equal((await key('revoke', 'gone')).stdout, `revoked ${ids[0]} (gone)\n`);
  assert.equal((await key('revoke', ids[1] ?? '')).stdout, `revoked ${ids[1]} (other)\n`);
  const names = (await readKeyFile(file())).map(({ name }) => name);
  assert.ok(!names.includes('gone') && !names.includes('other'));
});

const REFUSED: readonly (readonly [args: readonly string[], code: number, message: RegExp])[] = [
  [['create', 'ann'], 1, /there is a key "ann" already.*key rotate ann --config with\.json makes/],
  [['create', ''], 2, /name/],
  [['create', 'a\u001bb'], 2, /name: expected text without control characters/],
  [['create', 'x', '--groups', 'a,,b'], 2, /groups\.1/],
  [['create', 'x', '--expires', 'soon'], 2, /--expires: expected a duration such as 90d/],
  [['create', 'x', '--expires', '45'], 2, /--expires: expected a duration such as 90d/],
  [['create', 'x', '--expires', '2099-02-30'], 2, /--expires: expected a duration such as 90d/],
  [['create', 'x', '--expires', '1 Jan 2099'], 2, /--expires: expected a duration such as 90d/],
  [['create', 'x', '--expires', '2020-01-01'], 2, /--expires: 2020-01-01 is in the past/],
  [['create', 'x', '--expires', '999999999999d'], 2, /--expires: 999999999999d ends after the year 9999/],
  [['create', 'x', '--expires', '9999999d'], 2, /--expires: 9999999d ends after the year 9999/],
  [['rotate', 'ann', '--grace', '999999999999d'], 2, /--grace: 999999999999d ends after the year 9999/],
  [['rotate', 'ci', '--grace', '9999999d'], 2, /--grace: 9999999d ends after the year 9999/],
  [
    ['rotate', 'nobody'],
    1,
    /no valid key "nobody" in \S+keys\.json; make it with: .*key create nobody --config with\.json\n/,
  ],
  [['rotate', 'ann', '--grace', 'later'], 2, /--grace/],
  [['rotate', 'ann', '--expires', '2020-01-01'], 2, /--expires: 2020-01-01 is in the past/],
  [['revoke', 'nobody'], 1, /no key with the name or id "nobody" in \S+keys\.json; .*key list/],
];

for (const [args, code, message] of REFUSED) {
  test(`"key ${args.join(' ').replace('\u001b', '?')}" fails with ${code} and changes nothing`, OPTIONS, async () => {
    const before = await readFile(file(), 'utf8');
    const ran = await key(...args);
    assert.equal(ran.code, code, ran.stderr);
    assert.match(ran.stderr, message);
    assert.equal(ran.stdout, '');
    assert.equal(await readFile(file(), 'utf8'), before);
  });
}

test('key create says when the key expires, and takes a date or a time', OPTIONS, async () => {
  for (const [when, expected] of [
    ['2099-01-31', 'expires at 2099-01-31T00:00:00.000Z'],
    ['2099-01-31T12:00:00+02:00', 'expires at 2099-01-31T10:00:00.000Z'],
  ] as const) {
    const { stderr } = await key('create', `until ${when}`, '--expires', when);
    assert.ok(stderr.includes(expected), stderr);
  }
  assert.match((await key('create', 'for ever')).stderr, / never expires; its hash is in /);
});

test('key list of a file that does not exist lists nothing', OPTIONS, async () => {
  const { code, stdout, stderr } = await runCli(['key', 'list', '--file', 'none.json', '--json'], dir, {}, 20_000);
  assert.deepEqual([code, stderr], [0, '']);
  assert.deepEqual(JSON.parse(stdout), { place: join(dir, 'none.json'), keys: [] });
});

test('a key file that does not exist is named, with the next step, and is not made', OPTIONS, async () => {
  for (const [args, expected] of [
    [['list'], 0],
    [['rotate', 'ann'], 1],
    [['revoke', 'ann'], 1],
  ] as const) {
    const { code, stderr } = await runCli(['key', ...args, '--file', 'nowhere/none.json'], dir, {}, 20_000);
    assert.equal(code, expected);
    assert.match(
      stderr,
      /^linkspan: there is no key file \S+none\.json; name another one by --file .*key create <name> --file nowhere\/none\.json\n$/,
    );
    assert.equal(existsSync(join(dir, 'nowhere')), false);
  }
});

test('a broken key file fails a command in one line, without a stack', OPTIONS, async () => {
  await writeFile(join(dir, 'broken.json'), '{"version": 2}', { mode: 0o600 });
  for (const args of [['list'], ['create', 'ann'], ['rotate', 'ann'], ['revoke', 'ann']]) {
    const { code, stdout, stderr } = await runCli(['key', ...args, '--file', 'broken.json'], dir, {}, 20_000);
    assert.deepEqual([code, stdout], [1, '']);
    assert.match(stderr, /^linkspan: \S+broken\.json is not a key file at version: [^\n]*\n$/);
  }
});

test('a config without a key file says which setting is missing', OPTIONS, async () => {
  const { code, stderr } = await runCli(['key', 'list', '--config', 'without.json'], dir, {}, 20_000);
  assert.equal(code, 1);
  assert.match(stderr, /set gateway\.auth\.keyFile/);
});
