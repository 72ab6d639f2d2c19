import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pino } from 'pino';
import { ClientKeys, KEY_FILE_TIMES } from '../../../src/compose/keys/client-keys.ts';
import type { AuthConfig } from '../../../src/config/values/config.ts';
import type { ApiKeyStore, StoredKey } from '../../../src/store/api-key-store.ts';
import { changeKeyFile } from '../../../src/store/disk/api-key-file.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const keyOf = (name: string) => ({ name, sha256: hash('sha256', name) });

let dir = '';
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-client-keys-'));
});
after(() => rm(dir, { recursive: true }));

async function fileOf(name: string, ...keys: readonly string[]): Promise<string> {
  const file = join(dir, `${name}.json`);
  await changeKeyFile(file, () => ({ add: keys.map(keyOf) }));
  return file;
}

async function openKeys(auth: Partial<AuthConfig>, shared?: ApiKeyStore) {
  const lost: string[][] = [];
  const configOf = (own: Partial<AuthConfig>) => ({
    auth: { jwt: [], apiKeys: [], ...own },
    stateDir: join(dir, 'state'),
  });
  const metrics = createMetrics('0');
  const keys = await ClientKeys.open(configOf(auth), {
    metrics,
    log: pino({ level: 'silent' }),
    shared,
    onChange: (principals) => lost.push([...principals]),
  });
  const accepted = (...names: readonly string[]) => names.filter((name) => keys.current.find(hash('sha256', name)));
  return {
    keys,
    metrics,
    lost,
    accepted,
    prepare: (own: Partial<AuthConfig>) => keys.prepare(configOf(own)),
    [Symbol.asyncDispose]: () => keys[Symbol.asyncDispose](),
  };
}

// N-71
test('a change of the key file is read within a second, whatever else happens', () => {
  assert.ok(KEY_FILE_TIMES.pollMs + KEY_FILE_TIMES.longestMs < 1_000);
});

test('a key file that others may read is a failure in words until that is corrected', TIMEOUT, async () => {
  const file = await fileOf('open', 'ann');
  await using at = await openKeys({ keyFile: file });
  assert.equal(at.keys.failure, undefined);
  await chmod(file, 0o644);
  await waitUntil(() => at.keys.failure !== undefined);
  assert.match(
    at.keys.failure ?? '',
    /^API keys cannot be read, so changes of them, and revocations, have no effect: /,
  );
  assert.deepEqual(at.accepted('ann'), ['ann']);
  await chmod(file, 0o600);
  await waitUntil(() => at.keys.failure === undefined);
});

test('another key file of a reloaded config replaces the first one, and is followed', TIMEOUT, async () => {
  const [first, second] = [await fileOf('a1', 'ann', 'bob'), await fileOf('a2', 'bob', 'cy')];
  await using at = await openKeys({ keyFile: first });
  assert.deepEqual(at.accepted('ann', 'bob', 'cy'), ['ann', 'bob']);
  const change = await at.prepare({ keyFile: second });
  assert.deepEqual(at.accepted('ann', 'bob', 'cy'), ['ann', 'bob'], 'nothing holds before it is applied');
  change.apply();
  assert.deepEqual(at.accepted('ann', 'bob', 'cy'), ['bob', 'cy']);
  assert.deepEqual(at.lost.at(-1), ['key:ann']);
  await changeKeyFile(second, () => ({ add: [keyOf('dee')] }));
  await waitUntil(() => at.accepted('dee').length === 1);
  await changeKeyFile(first, () => ({ add: [keyOf('eve')] }));
  await changeKeyFile(second, () => ({ remove: [keyOf('dee')] }));
  await waitUntil(() => at.accepted('dee').length === 0);
  assert.deepEqual(at.accepted('eve'), [], 'the first file is not followed any more');
});

test('a reloaded config with a key file that cannot be used is refused', TIMEOUT, async () => {
  const file = await fileOf('b1', 'ann');
  const open = join(dir, 'b2.json');
  await writeFile(open, '{"version":1,"keys":[]}', { mode: 0o644 });
  await using at = await openKeys({ keyFile: file });
  await assert.rejects(at.prepare({ keyFile: open }), { name: 'StartError', message: /by other users \(mode 0644\)/ });
  await assert.rejects(at.prepare({ keysInRedis: true }), { name: 'StartError', message: /at a restart/ });
  assert.deepEqual(at.accepted('ann'), ['ann']);
});

test('a change that is abandoned leaves the keys and their file in use', TIMEOUT, async () => {
  const [first, second] = [await fileOf('c1', 'ann'), await fileOf('c2', 'bob')];
  await using at = await openKeys({ keyFile: first });
  await (await at.prepare({ keyFile: second })).abandon();
  await changeKeyFile(first, () => ({ add: [keyOf('cy')] }));
  await waitUntil(() => at.accepted('cy').length === 1);
  assert.deepEqual(at.accepted('ann', 'bob'), ['ann']);
});

test('a config without its key file accepts no key of it', TIMEOUT, async () => {
  const file = await fileOf('d1', 'ann');
  await using at = await openKeys({ keyFile: file, apiKeys: [keyOf('ci')] });
  (await at.prepare({ apiKeys: [keyOf('ci')] })).apply();
  assert.deepEqual(at.accepted('ann', 'ci'), ['ci']);
  assert.deepEqual(at.lost.at(-1), ['key:ann']);
});

test('keys that the config does not read any more are no failure to read', TIMEOUT, async () => {
  const file = await fileOf('d2', 'ann');
  await using at = await openKeys({ keyFile: file });
  await writeFile(file, 'no keys');
  await waitUntil(async () => /^linkspan_api_key_last_read_successful 0$/m.test(await at.metrics.text()));
  (await at.prepare({ apiKeys: [keyOf('ci')] })).apply();
  const metrics = await at.metrics.text();
  assert.match(metrics, /^linkspan_api_key_last_read_successful 1$/m);
  assert.match(metrics, /^linkspan_api_keys 0$/m);
});

test('keys that Redis does not tell for ten minutes are refused, and not lost', TIMEOUT, async (t) => {
  const time = stopTime(t);
  let stored: readonly StoredKey[] | undefined = [keyOf('ann'), keyOf('ben')];
  const shared: ApiKeyStore = {
    place: 'Redis',
    read: () => (stored === undefined ? Promise.reject(new Error('down')) : Promise.resolve(stored)),
    change: () => Promise.resolve(),
    watch: (onDue) => {
      const polling = setInterval(onDue, 1_000);
      return Promise.resolve({ [Symbol.dispose]: () => clearInterval(polling) });
    },
    lastUses: () => Promise.resolve(new Map()),
    storeUses: () => Promise.resolve(),
  };
  const after = async (isDone: () => boolean) => {
    await waitUntil(() => {
      time.pass(10_000);
      return isDone();
    });
  };
  await using at = await openKeys({ keysInRedis: true }, shared);
  for (const returned of [[keyOf('ben')], []]) {
    const before = at.accepted('ann', 'ben');
    stored = undefined;
    await after(() => at.accepted('ann', 'ben').length === 0);
    assert.deepEqual(at.lost.at(-1), [], 'they may be there still');
    stored = returned;
    await after(() => at.keys.failure === undefined);
    const gone = before.filter((name) => !returned.some((one) => one.name === name));
    assert.deepEqual(
      at.lost.at(-1),
      gone.map((name) => `key:${name}`),
    );
  }
});
