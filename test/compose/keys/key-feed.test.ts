import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { KeyFeed } from '../../../src/compose/keys/key-feed.ts';
import { FileWatch } from '../../../src/config/files/file-watch.ts';
import { type ApiKeyStore, keyIdOf, type StoredKey } from '../../../src/store/api-key-store.ts';
import { diskApiKeyStore } from '../../../src/store/disk/api-key-store.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const ANN = { name: 'ann', sha256: hash('sha256', 'ann') };
const BEN = { name: 'ben', sha256: hash('sha256', 'ben') };

async function openFeed(keepMs: number) {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-key-feed-'));
  const file = join(dir, 'keys.json');
  const watchFile = async (path: string, onChange: () => void) => {
    const watch = new FileWatch(onChange, { pollMs: 20, settleMs: 10, longestMs: 50 });
    await watch.setFiles(new Map([[path, undefined]]));
    return watch;
  };
  const store = diskApiKeyStore({ file, stateDir: join(dir, 'state'), watchFile });
  await store.change(() => ({ add: [ANN] }));
  const names: string[][] = [];
  const lines: string[] = [];
  const feed = await KeyFeed.open({
    store,
    keepMs,
    metrics: createMetrics('0'),
    log: pino({ level: 'info' }, { write: (line: string) => void lines.push(line) }),
    onKeys: (keys) => names.push(keys.map(({ name }) => name)),
    ids: () => new Set([keyIdOf(ANN)]),
  });
  feed.activate();
  return {
    feed,
    file,
    store,
    names,
    lines,
    [Symbol.asyncDispose]: async () => {
      await feed[Symbol.asyncDispose]();
      await rm(dir, { recursive: true });
    },
  };
}

test('keys of a store that fails for too long are refused, until it can be read', TIMEOUT, async () => {
  await using at = await openFeed(0);
  const good = await readFile(at.file);
  await writeFile(at.file, 'broken');
  await waitUntil(() => at.names.length === 1);
  assert.deepEqual(at.names, [[]]);
  assert.match(at.lines.join(''), /could not be read for too long; all of them are refused/);
  await writeFile(at.file, good);
  await waitUntil(() => at.names.length === 2);
  assert.deepEqual(at.names[1], ['ann']);
});

test('keys of a store that fails for a shorter time stay', TIMEOUT, async () => {
  await using at = await openFeed(Infinity);
  await writeFile(at.file, 'broken');
  await waitUntil(() => at.lines.length > 0);
  assert.deepEqual(at.names, []);
  assert.deepEqual(at.feed.keys, [ANN]);
});

test('times of use are stored at the end, for known keys', TIMEOUT, async () => {
  await using at = await openFeed(Infinity);
  at.feed.onUsed(keyIdOf(ANN), 1_000);
  at.feed.onUsed('0123456789ab', 2_000);
  await at.feed[Symbol.asyncDispose]();
  assert.deepEqual(new Map(await at.store.lastUses()), new Map([[keyIdOf(ANN), 1_000]]));
});

/** Opens a feed over these readings; later ones fail. */
async function openFeedOf(readings: readonly Promise<readonly StoredKey[]>[], storeUses: ApiKeyStore['storeUses']) {
  let begun = 0;
  let change = () => {};
  const store: ApiKeyStore = {
    place: 'a store',
    read: () => readings[begun++] ?? Promise.reject(new Error('broken')),
    change: () => Promise.resolve(),
    watch: (onDue) => {
      change = onDue;
      return Promise.resolve({ [Symbol.dispose]: () => {} });
    },
    lastUses: () => Promise.resolve(new Map()),
    storeUses,
  };
  const metrics = createMetrics('0');
  const names: string[][] = [];
  const feed = await KeyFeed.open({
    store,
    keepMs: 600_000,
    metrics,
    log: pino({ enabled: false }),
    onKeys: (keys) => names.push(keys.map(({ name }) => name)),
    ids: () => new Set(),
  });
  feed.activate();
  return { feed, names, metrics, change: () => change(), begun: () => begun };
}

test('a failure after a long pause of the process refuses no key, further ones do', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const at = await openFeedOf([Promise.resolve([ANN])], () => Promise.resolve());
  time.pass(3_600_000);
  at.change();
  await waitUntil(() => at.feed.failure !== undefined);
  assert.match(at.feed.failure ?? '', /revocations, have no effect: broken/);
  assert.deepEqual([at.names, at.feed.keys], [[], [ANN]]);
  await waitUntil(() => {
    time.pass(10_000);
    return at.feed.isRefusing;
  });
  assert.deepEqual(at.names, [[]]);
  await at.feed[Symbol.asyncDispose]();
});

test('times of use that could not be stored are stored later', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const stored: (readonly [string, number])[][] = [];
  const at = await openFeedOf([Promise.resolve([ANN])], async (uses) => {
    stored.push([...uses]);
    if (stored.length === 1) throw new Error('broken');
  });
  at.feed.onUsed('one', 1);
  at.feed.onUsed('two', 1);
  time.pass(60_000);
  await waitUntil(() => stored.length === 1);
  at.feed.onUsed('two', 2);
  await at.feed[Symbol.asyncDispose]();
  assert.deepEqual(
    new Map(stored[1]),
    new Map([
      ['one', 1],
      ['two', 2],
    ]),
  );
});

for (const outcome of ['fails', 'succeeds'] as const) {
  test(`a feed whose last read ${outcome} after its end reports nothing, nor reads again`, TIMEOUT, async (t) => {
    const time = stopTime(t);
    const held = Promise.withResolvers<readonly StoredKey[]>();
    const at = await openFeedOf([Promise.resolve([ANN]), held.promise], () => Promise.resolve());
    at.change();
    at.change();
    const ended = at.feed[Symbol.asyncDispose]();
    if (outcome === 'fails') held.reject(new Error('broken'));
    else held.resolve([]);
    await ended;
    at.change();
    time.pass(2_000);
    assert.equal(at.begun(), 2);
    assert.deepEqual(at.names, []);
    const text = await at.metrics.text();
    const outcomes = ['applied', 'rejected'].map((each) => text.includes(`reads_total{outcome="${each}"} 1`));
    assert.deepEqual(outcomes, [true, false], 'the first reading is counted alone');
  });
}

test('keys that are the same after a failure to read them have not changed', TIMEOUT, async () => {
  await using at = await openFeed(Infinity);
  const good = await readFile(at.file);
  for (let times = 1; times <= 2; times++) {
    await writeFile(at.file, 'broken');
    await waitUntil(() => at.feed.failure !== undefined);
    await writeFile(at.file, good);
    await waitUntil(() => at.feed.failure === undefined);
  }
  // Another text with the same keys.
  await writeFile(at.file, `${String(good)}\n`);
  await writeFile(`${at.file}.next`, JSON.stringify({ version: 1, keys: [ANN, BEN] }), { mode: 0o600 });
  await rename(`${at.file}.next`, at.file);
  await waitUntil(() => at.names.length > 0);
  assert.deepEqual(at.names, [['ann', 'ben']]);
  const said = at.lines.map((line) => String(Object(JSON.parse(line)).msg));
  const again = ['API keys cannot be read; the last good ones stay valid for now', 'API keys are read again'];
  assert.deepEqual(said, [...again, ...again, 'API keys changed']);
});
