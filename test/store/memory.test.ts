import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, chmod, mkdir, mkdtemp, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createMemorySessionStore } from '../../src/store/memory.ts';
import { sessionStoreContract } from './session-store.contract.ts';

const OPTIONS = { timeout: 20_000 };
const HOUR = 3_600_000;

async function testDir() {
  const path = await mkdtemp(join(tmpdir(), 'linkspan-store-'));
  const journal = join(path, 'sessions.jsonl');
  const lines = async () => (await readFile(journal, 'utf8')).split('\n').filter((line) => line !== '');
  return { path, journal, lines, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) };
}

sessionStoreContract('memory without a directory', () => createMemorySessionStore(undefined));

sessionStoreContract('memory', async () => {
  const dir = await testDir();
  const store = await createMemorySessionStore(dir.path);
  return {
    load: (id) => store.load(id),
    save: (id, record) => store.save(id, record),
    end: (id, untilMs) => store.end(id, untilMs),
    isEnded: (id) => store.isEnded(id),
    [Symbol.asyncDispose]: async () => {
      await store[Symbol.asyncDispose]();
      await dir[Symbol.asyncDispose]();
    },
  };
});

test('what was saved and what has ended is known after a restart', OPTIONS, async () => {
  await using dir = await testDir();
  {
    await using store = await createMemorySessionStore(dir.path);
    await store.save('kept', { subscriptions: ['a'], logLevel: 'error' });
    await store.save('over', { subscriptions: ['a'] });
    await store.end('over', Date.now() + HOUR);
  }
  for (const _again of [1, 2]) {
    await using store = await createMemorySessionStore(dir.path);
    assert.deepEqual(await store.load('kept'), { subscriptions: ['a'], logLevel: 'error' });
    assert.equal(await store.isEnded('over'), true);
    assert.equal(await store.load('over'), undefined);
  }
});

test('what a process was told is saved survives its SIGKILL', OPTIONS, async () => {
  await using dir = await testDir();
  const program = fileURLToPath(new URL('../fixtures/servers/ends-sessions.ts', import.meta.url));
  const child = spawn(process.execPath, [program, dir.path], { stdio: ['ignore', 'pipe', 'inherit'] });
  const closed = once(child, 'close');
  let told = -1;
  for await (const line of createInterface({ input: child.stdout })) {
    told = Number(line);
    if (told === 200) child.kill('SIGKILL');
  }
  await closed;
  assert.ok(told >= 200);

  await using store = await createMemorySessionStore(dir.path);
  for (let i = 0; i <= told; i++) {
    assert.equal(await store.isEnded(`ended-${i}`), true, `ended-${i} of ${told}`);
    assert.deepEqual(await store.load(`kept-${i}`), { subscriptions: [`uri-${i}`] }, `kept-${i} of ${told}`);
  }
});

test('a torn last line costs only itself, wherever it is torn', OPTIONS, async () => {
  await using dir = await testDir();
  {
    await using store = await createMemorySessionStore(dir.path);
    await store.end('first', Date.now() + HOUR);
    await store.save('second', { subscriptions: ['ü'] });
  }
  const whole = await readFile(dir.journal);
  const start = whole.indexOf('\n') + 1;
  for (let length = start; length < whole.length - 1; length++) {
    await writeFile(dir.journal, whole);
    await truncate(dir.journal, length);
    {
      await using store = await createMemorySessionStore(dir.path);
      assert.equal(await store.isEnded('first'), true);
      assert.equal(await store.load('second'), undefined, `${length} bytes`);
      await store.save('third', { subscriptions: [] });
    }
    await using store = await createMemorySessionStore(dir.path);
    assert.equal(await store.isEnded('first'), true);
    assert.deepEqual(await store.load('third'), { subscriptions: [] });
  }
});

test('lines that make no sense cost only themselves', OPTIONS, async () => {
  await using dir = await testDir();
  {
    await using store = await createMemorySessionStore(dir.path);
    await store.end('first', Date.now() + HOUR);
  }
  await appendFile(
    dir.journal,
    'nonsense\nnull\n[]\n{}\n{"id":7}\n{"id":"x","record":{"subscriptions":[7]},"savedAtMs":1}\n\n',
  );
  await appendFile(dir.journal, `{"id":"last","endedUntilMs":${Date.now() + HOUR}}\n`);
  await using store = await createMemorySessionStore(dir.path);
  assert.equal(await store.isEnded('first'), true);
  assert.equal(await store.isEnded('last'), true);
  assert.equal(await store.load('x'), undefined);
  assert.equal((await dir.lines()).length, 2);
});

test('opening drops what is over and what was replaced', OPTIONS, async () => {
  await using dir = await testDir();
  {
    await using store = await createMemorySessionStore(dir.path);
    for (let i = 0; i < 20; i++) await store.save('one', { subscriptions: [String(i)] });
    await store.end('expired', Date.now() - 1);
    await store.end('ended', Date.now() + HOUR);
    await appendFile(dir.journal, '{"id":"old","savedAtMs":1,"record":{"subscriptions":[]}}\n');
    assert.equal((await dir.lines()).length, 23);
  }
  await using store = await createMemorySessionStore(dir.path, HOUR);
  assert.equal((await dir.lines()).length, 2);
  assert.deepEqual(await store.load('one'), { subscriptions: ['19'] });
  assert.equal(await store.isEnded('ended'), true);
  assert.equal(await store.load('old'), undefined);
});

test('the journal does not grow with the number of changes', OPTIONS, async () => {
  await using dir = await testDir();
  await using store = await createMemorySessionStore(dir.path);
  const changes = Array.from({ length: 3_500 }, (_, i) => store.save(`s${i % 10}`, { subscriptions: [String(i)] }));
  await Promise.all(changes);
  await store.end('s0', Date.now() + HOUR);
  assert.ok((await dir.lines()).length <= 1_010);
  await using again = await createMemorySessionStore(dir.path);
  assert.equal(await again.isEnded('s0'), true);
  for (let i = 1; i < 10; i++) assert.deepEqual(await again.load(`s${i}`), { subscriptions: [String(3_490 + i)] });
});

test('a change that cannot be written is reported, and the next one that can be is kept', OPTIONS, async () => {
  await using dir = await testDir();
  {
    await using store = await createMemorySessionStore(dir.path);
    await mkdir(dir.journal);
    await assert.rejects(store.end('lost', Date.now() + HOUR), { code: 'EISDIR' });
    assert.equal(await store.isEnded('lost'), true, 'in this process it has ended all the same');
    await rm(dir.journal, { recursive: true });
    await store.end('kept', Date.now() + HOUR);
  }
  await using store = await createMemorySessionStore(dir.path);
  assert.equal(await store.isEnded('kept'), true);
});

test('the journal is ours alone to read', OPTIONS, async () => {
  await using dir = await testDir();
  {
    await using store = await createMemorySessionStore(dir.path);
    await store.save('one', { subscriptions: [] });
    assert.equal((await stat(dir.journal)).mode & 0o777, 0o600);
  }
  await chmod(dir.journal, 0o644);
  await using _store = await createMemorySessionStore(dir.path);
  assert.equal((await stat(dir.journal)).mode & 0o777, 0o600);
});
