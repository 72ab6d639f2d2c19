import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { appendFile, chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as fc from '../../support/fast-check.ts';
import { LocalSessionStore } from '../../../src/store/sessions/local-session-store.ts';
import { openState } from '../../../src/store/open-state.ts';
import type { SessionRef, SessionStore } from '../../../src/store/session-store.ts';
import { systemCode } from '../../../src/thrown.ts';
import { smallDisk, type SmallDisk } from '../../support/small-disk.ts';
import { until } from '../../support/stdio.ts';
import { sessionStoreContract } from '../session-store.contract.ts';

const OPTIONS = { timeout: 120_000 };
const HOUR = 3_600_000;
const IGNORE = {
  onWriteFailed: () => undefined,
  onFailing: () => undefined,
  onRecovered: () => undefined,
  onLimit: () => undefined,
  onRefused: () => undefined,
};

async function testDir() {
  const path = await mkdtemp(join(tmpdir(), 'linkspan-store-'));
  const journal = join(path, 'sessions.jsonl');
  const lines = async () => (await readFile(journal, 'utf8')).split('\n').filter((line) => line !== '');
  const open = () => LocalSessionStore.open(path, IGNORE);
  return { path, journal, lines, open, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) };
}

async function newSession(store: SessionStore, principal = 'one'): Promise<SessionRef> {
  return { principal, serial: await store.nextSerial(principal), expiresMs: Date.now() + HOUR };
}

const subscribe = (store: SessionStore, session: SessionRef, uri: string) =>
  store.change(session, { kind: 'subscribe', uri });

sessionStoreContract('memory', async () => new LocalSessionStore(() => undefined));
sessionStoreContract('disk', async () => {
  const dir = await testDir();
  const store = await dir.open();
  return {
    failure: undefined,
    nextSerial: (principal) => store.nextSerial(principal),
    load: (session) => store.load(session),
    change: (session, change) => store.change(session, change),
    end: (session) => store.end(session),
    isEnded: (session) => store.isEnded(session),
    [Symbol.asyncDispose]: async () => {
      await store[Symbol.asyncDispose]();
      await dir[Symbol.asyncDispose]();
    },
  };
});

test('attachments are known after restarts, on lines that earlier versions skip', OPTIONS, async () => {
  await using dir = await testDir();
  let session: SessionRef | undefined;
  {
    await using store = await dir.open();
    session = await newSession(store);
    await subscribe(store, session, 'a');
    for (const text of ['old', 'new']) await store.change(session, { kind: 'attach', upstream: 'up', text });
  }
  const expected = { subscriptions: ['a'], attachments: [{ upstream: 'up', text: 'new' }] };
  for (let n = 0; n < 2; n++) {
    await using store = await dir.open();
    assert.deepEqual(await store.load(session), expected);
  }
  const whole = (await dir.lines()).find((line) => line.includes('"uris"')) ?? '';
  assert.deepEqual(Object.keys(JSON.parse(whole)), ['id', 'expires', 'uris'], 'as earlier versions write it');
});

test('records and ends are known after a restart, and numbers continue', OPTIONS, async () => {
  await using dir = await testDir();
  let [kept, ended]: SessionRef[] = [];
  {
    await using store = await dir.open();
    kept = await newSession(store);
    ended = await newSession(store);
    await subscribe(store, kept, 'a');
    await subscribe(store, kept, 'b');
    await store.change(kept, { kind: 'unsubscribe', uri: 'a' });
    await store.change(kept, { kind: 'level', level: 'error' });
    await subscribe(store, ended, 'a');
    assert.equal(await store.end(ended), true);
  }
  for (const _again of [1, 2]) {
    await using store = await dir.open();
    assert.deepEqual(await store.load(kept), { subscriptions: ['b'], logLevel: 'error' });
    assert.equal(await store.isEnded(ended), true);
    assert.equal(await store.load(ended), undefined);
    assert.ok((await store.nextSerial('one')) > ended.serial);
  }
});

test('a confirmed change survives SIGKILL', OPTIONS, async () => {
  await using dir = await testDir();
  const program = fileURLToPath(new URL('../../fixtures/servers/ends-sessions.ts', import.meta.url));
  const expiresMs = Date.now() + HOUR;
  const child = spawn(process.execPath, [program, dir.path, String(expiresMs)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close');
  const confirmed: number[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    confirmed.push(Number(line));
    if (confirmed.length === 200) child.kill('SIGKILL');
  }
  await closed;
  assert.ok(confirmed.length >= 200);

  await using store = await dir.open();
  for (const serial of confirmed) {
    assert.equal(await store.isEnded({ principal: 'one', serial: serial + 1, expiresMs }), true);
    const record = await store.load({ principal: 'one', serial, expiresMs });
    assert.deepEqual(record, { subscriptions: [`uri-${serial}`] });
  }
});

type Step = {
  readonly session: number;
  readonly act: 'end' | 'level' | 'subscribe' | 'unsubscribe';
  readonly text: string;
};

const step: fc.Arbitrary<Step> = fc.record({
  session: fc.nat(5),
  act: fc.constantFrom('subscribe', 'subscribe', 'unsubscribe', 'level', 'end'),
  text: fc.constantFrom('a', 'b', 'ü\n'),
});

async function take(store: SessionStore, session: SessionRef, { act, text }: Step): Promise<void> {
  if (act === 'end') await store.end(session);
  else if (act === 'level') await store.change(session, { kind: act, level: text });
  else await store.change(session, { kind: act, uri: text });
}

async function stateOf(store: SessionStore, sessions: readonly SessionRef[]): Promise<unknown> {
  return await Promise.all(
    sessions.map(async (session) => ({ ended: await store.isEnded(session), record: await store.load(session) })),
  );
}

// N-65
test('a journal cut at any byte keeps complete changes and revives no session', OPTIONS, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 25 }), fc.nat(), async (steps, cut) => {
      await using dir = await testDir();
      const sessions: SessionRef[] = [];
      const states: { readonly bytes: number; readonly state: unknown }[] = [];
      {
        await using store = await dir.open();
        for (let i = 0; i < 6; i++) sessions.push(await newSession(store, `p${i % 2}`));
        states.push({ bytes: 0, state: await stateOf(store, sessions) });
        for (const each of steps) {
          const session = sessions[each.session];
          assert.ok(session);
          await take(store, session, each);
          const bytes = (await stat(dir.journal)).size;
          states.push({ bytes, state: await stateOf(store, sessions) });
        }
      }
      const whole = await readFile(dir.journal);
      const length = cut % (whole.length + 1);
      await writeFile(dir.journal, whole.subarray(0, length));
      for (const _again of [1, 2]) {
        await using store = await dir.open();
        // A line without its line end is complete.
        const expected = states.findLast(({ bytes }) => bytes <= length + 1)?.state;
        assert.deepEqual(await stateOf(store, sessions), expected);
      }
    }),
    { numRuns: 60 },
  );
});

// N-65
test('compaction in the middle of changes loses none and revives nothing', OPTIONS, async () => {
  await using dir = await testDir();
  const padding = 'x'.repeat(3_000);
  const sessions: SessionRef[] = [];
  let [before, rewritten] = [0, 0];
  const state = async (store: SessionStore) => await stateOf(store, sessions);
  let expected: unknown;
  {
    await using store = await dir.open();
    for (let i = 0; i < 40; i++) sessions.push(await newSession(store, `p${i % 3}`));
    for (let round = 0; round < 30; round++) {
      await Promise.all(
        sessions.map(async (session, i) => {
          await subscribe(store, session, `${padding}${round}`);
          await store.change(session, { kind: 'unsubscribe', uri: `${padding}${round - 1}` });
          if (round === i) await store.end(session);
        }),
      );
      const { size } = await stat(dir.journal);
      if (size < before) rewritten++;
      before = size;
    }
    expected = await state(store);
  }
  assert.ok(rewritten > 0, 'the journal was rewritten meanwhile');
  await using store = await dir.open();
  assert.deepEqual(await state(store), expected);
});

test('an invalid line does not affect the other lines', OPTIONS, async () => {
  await using dir = await testDir();
  let [first, last]: SessionRef[] = [];
  {
    await using store = await dir.open();
    first = await newSession(store);
    last = await newSession(store);
    await store.end(first);
    const text = await readFile(dir.journal, 'utf8');
    await appendFile(dir.journal, 'nonsense\nnull\n[]\n{}\n{"id":7}\n{"id":"x.1","expires":"no","uris":[]}\n\n');
    await appendFile(dir.journal, text.replaceAll(String(first.serial), String(last.serial)));
  }
  await using store = await dir.open();
  assert.equal(await store.isEnded(first), true);
  assert.equal(await store.isEnded(last), true);
  assert.equal((await dir.lines()).length, 1);
});

// N-65
test('records of sessions that a joined range of the journal ends are removed', OPTIONS, async () => {
  await using dir = await testDir();
  {
    await using store = await dir.open();
    const [first, between, last] = [await newSession(store), await newSession(store), await newSession(store)];
    await subscribe(store, between, 'a');
    await store.end(first);
    const line = (await dir.lines()).at(-1) ?? '';
    const serial = String(first.serial);
    await appendFile(dir.journal, `${line.replace(`${serial},${serial}`, `${serial},${last.serial}`)}\n`);
  }
  await using _store = await dir.open();
  const lines = await dir.lines();
  assert.deepEqual([lines.length, Object.keys(JSON.parse(lines[0] ?? ''))], [1, ['owner', 'ended']]);
});

// N-65
test('opening removes expired entries', OPTIONS, async (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: Date.now() });
  await using dir = await testDir();
  const soon = Date.now() + 200;
  {
    await using store = await dir.open();
    const [ended, changed] = [await newSession(store), await newSession(store)];
    await store.end({ ...ended, expiresMs: soon });
    await subscribe(store, { ...changed, expiresMs: soon }, 'a');
    assert.equal((await dir.lines()).length, 2);
  }
  t.mock.timers.setTime(soon);
  await using _store = await dir.open();
  assert.deepEqual(await dir.lines(), []);
});

// N-23
test('two megabytes of subscriptions write about two megabytes', OPTIONS, async () => {
  await using dir = await testDir();
  await using store = await dir.open();
  const sessions = await Promise.all([newSession(store), newSession(store)]);
  let written = 0;
  let before = 0;
  for (let i = 0; i < 1_000; i++) {
    for (const session of sessions) await subscribe(store, session, `${i}`.padEnd(1_000, 'x'));
    const { size } = await stat(dir.journal);
    // A rewrite writes the whole file.
    written += size >= before ? size - before : size;
    before = size;
  }
  assert.ok(written < 8_000_000, `${written} bytes written`);
});

// N-23
test('repeated subscribing and unsubscribing keeps the journal short', OPTIONS, async () => {
  await using dir = await testDir();
  await using store = await dir.open();
  const session = await newSession(store);
  let longest = 0;
  for (let i = 0; i < 500; i++) {
    const uri = `${i}`.padEnd(1_000, 'x');
    await subscribe(store, session, uri);
    await store.change(session, { kind: 'unsubscribe', uri });
    longest = Math.max(longest, (await stat(dir.journal)).size);
  }
  assert.ok(longest <= 300_000, `${longest} bytes`);
  assert.equal(await store.load(session), undefined);
});

// N-31
test('an end during a write failure is valid, reported and written later', OPTIONS, async () => {
  await using dir = await testDir();
  const failures: unknown[] = [];
  let recovered = 0;
  const events = { ...IGNORE, onWriteFailed: (error: unknown) => failures.push(error), onRecovered: () => recovered++ };
  let session: SessionRef;
  {
    await using store = await LocalSessionStore.open(dir.path, events);
    session = await newSession(store);
    await rm(dir.journal, { force: true });
    await mkdir(dir.journal);
    assert.equal(await store.end(session), false);
    assert.equal(await store.isEnded(session), true);
    assert.equal(store.failure, `state directory ${dir.path} cannot be written: EISDIR`);
    assert.equal(failures.length, 1);
    await rm(dir.journal, { recursive: true });
    await until(() => store.failure === undefined, 'it was tried again');
    assert.equal(recovered, 1);
  }
  await using store = await dir.open();
  assert.equal(await store.isEnded(session), true);
});

// N-31
test('stopping writes waiting changes once more', OPTIONS, async () => {
  await using dir = await testDir();
  let session: SessionRef;
  {
    await using store = await dir.open();
    session = await newSession(store);
    await rm(dir.journal, { force: true });
    await mkdir(dir.journal);
    assert.equal(await store.end(session), false);
    await rm(dir.journal, { recursive: true });
  }
  await using store = await dir.open();
  assert.equal(await store.isEnded(session), true);
});

// N-31
test('a state directory that was emptied before the first change gets its keys back', OPTIONS, async () => {
  await using dir = await testDir();
  const ring = join(dir.path, 'keys.json');
  const state = await openState(dir.path, { mayOwn: true, events: IGNORE });
  const keys = await state.keys.read();
  for (const name of await readdir(dir.path)) await rm(join(dir.path, name), { recursive: true });
  const session = await newSession(state.sessions);
  assert.equal(await state.sessions.end(session), true);
  await state[Symbol.asyncDispose]();
  assert.deepEqual(JSON.parse(await readFile(ring, 'utf8')), { keys });
  await using store = await dir.open();
  assert.equal(await store.isEnded(session), true);
});

// N-31
test('another, empty disk in place of a broken one gets the keys too', OPTIONS, async () => {
  await using dir = await testDir();
  const failures: unknown[] = [];
  const events = { ...IGNORE, onWriteFailed: (error: unknown) => failures.push(systemCode(error)) };
  await using state = await openState(dir.path, { mayOwn: true, events });
  const keys = await state.keys.read();
  await rm(dir.journal);
  await mkdir(dir.journal);
  assert.equal(await state.sessions.end(await newSession(state.sessions)), false);
  for (const name of await readdir(dir.path)) await rm(join(dir.path, name), { recursive: true });
  await until(() => existsSync(join(dir.path, 'keys.json')), 'the keys are written again');
  assert.deepEqual(failures, ['EISDIR', 'ENOENT']);
  assert.deepEqual(await state.keys.read(), keys);
});

/** Fills the disk and the last page of the journal. */
async function fillUp(disk: SmallDisk, store: SessionStore): Promise<void> {
  await disk.fill();
  const session = await newSession(store, 'filler');
  for (let i = 0; store.failure === undefined; i++) await subscribe(store, session, `${i}`.padEnd(500, 'x'));
  assert.equal(store.failure, `state directory ${disk.path} cannot be written: ENOSPC`);
}

// N-31
test('a session ended on a full disk stays ended after a restart', OPTIONS, async () => {
  await using disk = await smallDisk('2m');
  const sessions: SessionRef[] = [];
  {
    await using store = await LocalSessionStore.open(disk.path, IGNORE);
    await fillUp(disk, store);
    for (let i = 0; i < 200; i++) sessions.push(await newSession(store, `p${i}`));
    for (const session of sessions) assert.equal(await store.end(session), true);
    assert.notEqual(store.failure, undefined, 'the reserve is missing');
  }
  {
    await using store = await LocalSessionStore.open(disk.path, IGNORE);
    for (const session of sessions) assert.equal(await store.isEnded(session), true);
    assert.equal(store.failure, `state directory ${disk.path} cannot be written: ENOSPC`);
    await disk.free();
    await until(() => store.failure === undefined, 'the reserve is there again');
  }
});

for (const amount of [1, 200, 20_000]) {
  // N-31
  test(`${amount} ends that a disk without any room refuses are written once it has some`, OPTIONS, async () => {
    await using disk = await smallDisk('4m');
    const sessions: SessionRef[] = [];
    {
      await using store = await LocalSessionStore.open(disk.path, IGNORE);
      await fillUp(disk, store);
      await disk.free();
      await disk.fill();
      let isWritten = true;
      for (let i = 0; isWritten; i++) isWritten = await store.end(await newSession(store, `last page ${i}`));
      for (let i = 0; i < amount; i++) sessions.push(await newSession(store, `p${i}`));
      const written = await Promise.all(sessions.map((session) => store.end(session)));
      assert.ok(!written.includes(true));
      await disk.free();
      await until(() => store.failure === undefined, 'the disk is written again');
    }
    await using store = await LocalSessionStore.open(disk.path, IGNORE);
    for (const session of sessions) assert.equal(await store.isEnded(session), true);
  });
}

// N-31
test('a full disk at the start keeps the journal that is there', OPTIONS, async () => {
  await using disk = await smallDisk('2m');
  let session: SessionRef;
  {
    await using store = await LocalSessionStore.open(disk.path, IGNORE);
    session = await newSession(store);
    await store.end(session);
  }
  await disk.fill();
  for (const _again of [1, 2]) {
    await using store = await LocalSessionStore.open(disk.path, IGNORE);
    assert.equal(await store.isEnded(session), true);
  }
});

test('the journal is readable by this user alone', OPTIONS, async () => {
  await using dir = await testDir();
  {
    await using store = await dir.open();
    await subscribe(store, await newSession(store), 'a');
    assert.equal((await stat(dir.journal)).mode & 0o777, 0o600);
  }
  await chmod(dir.journal, 0o644);
  await using _store = await dir.open();
  assert.equal((await stat(dir.journal)).mode & 0o777, 0o600);
});

test('old drafts of killed processes are removed', OPTIONS, async () => {
  await using dir = await testDir();
  const old = `sessions.jsonl.${crypto.randomUUID()}`;
  const young = `sessions.jsonl.${crypto.randomUUID()}`;
  for (const name of [old, young]) await writeFile(join(dir.path, name), '');
  await utimes(join(dir.path, old), 1, 1);
  await using _state = await openState(dir.path, { mayOwn: true, events: IGNORE });
  const names = await readdir(dir.path);
  assert.ok(!names.includes(old) && names.includes(young));
});
