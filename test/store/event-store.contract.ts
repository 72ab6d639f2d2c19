import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { EventChange, EventStore, OnEventLimit } from '../../src/store/event-store.ts';
import type { SessionRef } from '../../src/store/session-store.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const HOUR = 3_600_000;

/** The bounds of a store; undefined ones are not reached. */
export interface EventBounds {
  readonly events?: number;
  readonly bytes?: number;
  readonly principalBytes?: number;
  readonly totalBytes?: number;
}

/** One process of a gateway. */
export interface EventStoreProcess {
  /** The name by which it writes the streams of its sessions. */
  readonly name: string;
  readonly store: EventStore;
  /** Makes this process the owner of a session. */
  claim(session: SessionRef): Promise<void>;
}

/** Opens processes of one gateway, all of which are alive but those in `dead`. */
type OpenProcesses = (parts: {
  readonly bounds: EventBounds;
  readonly dead: ReadonlySet<string>;
  readonly onLimit: OnEventLimit;
}) => Promise<readonly [one: EventStoreProcess, two: EventStoreProcess]>;

/** The contract of every event store. Each opened store has no events yet. */
export function eventStoreContract(name: string, openProcesses: OpenProcesses): void {
  /** Opens two processes, the first of which has a session. */
  async function open(bounds: EventBounds = {}) {
    const [dead, limits] = [new Set<string>(), new Array<string>()];
    const [one, two] = await openProcesses({ bounds, dead, onLimit: (limit) => limits.push(limit) });
    const session = newSession();
    await one.claim(session);
    return { one, two, session, dead, limits };
  }

  const newSession = (principal: string = randomUUID()): SessionRef => ({
    principal,
    serial: 1,
    expiresMs: Date.now() + HOUR,
  });

  /** Returns the changes of one stream by a process. */
  const streamOf = ({ name: writer }: EventStoreProcess, stream = 'a') => ({
    open: (isEndless = false): EventChange => ({ stream, writer, kind: 'open', isEndless }),
    add: (seq: number, text = `${seq}`): EventChange => ({ stream, writer, kind: 'add', seq, text, reopen: undefined }),
    reopen: (seq: number, reopen: 'endless' | 'ending'): EventChange => {
      return { stream, writer, kind: 'add', seq, text: `${seq}`, reopen };
    },
    finish: (last: number): EventChange => ({ stream, writer, kind: 'finish', last }),
    remove: (): EventChange => ({ stream, writer, kind: 'remove' }),
  });
  const NONE: ReadonlySet<string> = new Set();
  const seqsIn = async ({ store }: EventStoreProcess, session: SessionRef, stream = 'a') =>
    (await store.read(session, stream))?.events.map(({ seq }) => seq);

  test(`${name}: a stream is read at every process as it was written`, OPTIONS, async () => {
    const { one, two, session } = await open();
    const [a, b] = [streamOf(one), streamOf(one, 'b')];
    const changes = [a.open(), a.add(1, 'ü\ud800\n'), a.add(3, ''), a.finish(3), b.open(true), b.add(7)];
    assert.deepEqual(await one.store.write(session, changes), NONE);
    assert.deepEqual(await one.store.read(session, 'a'), {
      isEndless: false,
      isWritten: false,
      lastAdded: 3,
      last: 3,
      events: [
        { seq: 1, text: 'ü\ud800\n' },
        { seq: 3, text: '' },
      ],
    });
    const endless = { isEndless: true, isWritten: true, lastAdded: 7, last: undefined };
    assert.deepEqual(await two.store.read(session, 'b'), { ...endless, events: [{ seq: 7, text: '7' }] });
    assert.equal(await two.store.read(session, 'c'), undefined);
    assert.equal(await two.store.read({ ...session, serial: 2 }, 'a'), undefined);
    assert.equal(await two.store.read(newSession(), 'a'), undefined);
  });

  test(`${name}: changes that are written again have no effect`, OPTIONS, async () => {
    const { one, session } = await open();
    const { open: opened, add, finish } = streamOf(one);
    const changes = [opened(), add(1), add(2), finish(2)];
    for (let n = 0; n < 3; n++) assert.deepEqual(await one.store.write(session, changes), NONE);
    assert.deepEqual(await seqsIn(one, session), [1, 2]);
    await one.store.write(session, [add(2, 'other'), finish(9), opened(true)]);
    const { isEndless, last, events } = (await one.store.read(session, 'a')) ?? assert.fail();
    assert.deepEqual([isEndless, last, events.at(-1)], [false, 2, { seq: 2, text: '2' }]);
  });

  test(`${name}: the last event may come after the end, and a removed stream is gone`, OPTIONS, async () => {
    const { one, session } = await open();
    const { open: opened, add, finish, remove } = streamOf(one);
    await one.store.write(session, [opened(), add(1), finish(2)]);
    assert.deepEqual((await one.store.read(session, 'a'))?.lastAdded, 1);
    await one.store.write(session, [add(2)]);
    assert.deepEqual(await seqsIn(one, session), [1, 2]);
    await one.store.write(session, [remove()]);
    assert.equal(await one.store.read(session, 'a'), undefined);
  });

  test(`${name}: an event opens a stream again that is gone, unless it has ended`, OPTIONS, async () => {
    const { one, session } = await open();
    for (const [stream, reopen] of [
      ['a', 'ending'],
      ['b', 'endless'],
    ] as const) {
      await one.store.write(session, [streamOf(one, stream).reopen(5, reopen)]);
      const { isEndless, lastAdded } = (await one.store.read(session, stream)) ?? assert.fail();
      assert.deepEqual([isEndless, lastAdded], [stream === 'b', 5]);
    }
    await one.store.write(session, [streamOf(one, 'c').add(1)]);
    assert.equal(await one.store.read(session, 'c'), undefined);
  });

  // REL-27
  test(`${name}: a process without the session opens and takes no stream`, OPTIONS, async () => {
    const { one, two, session } = await open();
    await one.store.write(session, [streamOf(one).open(), streamOf(one).add(1)]);
    const strange = streamOf(two, 'b');
    await two.store.write(session, [strange.open(), strange.add(1), strange.reopen(2, 'ending')]);
    assert.equal(await one.store.read(session, 'b'), undefined);
    assert.equal(await two.store.take(session, 'a', two.name), undefined);
    assert.deepEqual(await two.store.write(session, [streamOf(two).add(2), streamOf(two).remove()]), new Set(['a']));
    assert.deepEqual(await seqsIn(one, session), [1]);
  });

  // REL-27
  test(`${name}: a stream that was taken is changed by its new writer alone`, OPTIONS, async () => {
    const { one, two, session } = await open();
    const [former, next] = [streamOf(one), streamOf(two)];
    await one.store.write(session, [former.open(), former.add(1)]);
    await two.claim(session);
    const taken = await two.store.take(session, 'a', two.name);
    assert.deepEqual([taken?.isWritten, taken?.events], [false, [{ seq: 1, text: '1' }]]);
    assert.equal(await two.store.take(session, 'never', two.name), undefined);
    const late = [former.add(2, 'late'), former.finish(2), former.remove(), former.open()];
    assert.deepEqual(await one.store.write(session, late), new Set(['a']));
    assert.deepEqual(await two.store.write(session, [next.add(2, 'new'), next.finish(2)]), NONE);
    const { last, events } = (await one.store.read(session, 'a')) ?? assert.fail();
    assert.deepEqual([last, events.at(-1)], [2, { seq: 2, text: 'new' }]);
  });

  test(`${name}: a stream is written by its process until that dies or it is taken`, OPTIONS, async () => {
    const { one, two, session, dead } = await open();
    const { open: opened, add } = streamOf(one);
    await one.store.write(session, [opened(), add(1)]);
    const isWritten = async ({ store }: EventStoreProcess) => (await store.read(session, 'a'))?.isWritten;
    assert.deepEqual([await isWritten(one), await isWritten(two)], [false, true], 'by another process');
    await two.claim(session);
    assert.deepEqual(await one.store.write(session, [add(2)]), NONE, 'it goes on with its stream');
    assert.deepEqual(await seqsIn(two, session), [1, 2]);
    dead.add(one.name);
    assert.equal(await isWritten(two), false);
  });

  test(`${name}: beyond the bounds of a session ended streams go, then the oldest events`, OPTIONS, async () => {
    const { one, session } = await open({ events: 4 });
    const [running, ended] = [streamOf(one, 'running'), streamOf(one, 'ended')];
    await one.store.write(session, [running.open(), running.add(1), running.add(2)]);
    await one.store.write(session, [ended.open(), ended.add(1), ended.finish(1), running.add(3)]);
    assert.deepEqual(await seqsIn(one, session, 'ended'), [1]);
    await one.store.write(session, [running.add(4)]);
    assert.equal(await one.store.read(session, 'ended'), undefined);
    await one.store.write(session, [running.add(5), running.add(6)]);
    assert.deepEqual(await seqsIn(one, session, 'running'), [3, 4, 5, 6]);
    const bytes = await open({ bytes: 3_000 });
    const long = streamOf(bytes.one);
    const text = 'x'.repeat(500);
    await bytes.one.store.write(bytes.session, [long.open(), ...[1, 2, 3, 4].map((seq) => long.add(seq, text))]);
    assert.deepEqual(await seqsIn(bytes.one, bytes.session), [3, 4]);
  });

  test(`${name}: limit storedEventBytesPerPrincipal: the events that expire first go`, OPTIONS, async () => {
    const { one, session, limits } = await open({ principalBytes: 6_000 });
    const { open: opened, add } = streamOf(one);
    const text = 'x'.repeat(1_500);
    const sooner = { ...session, serial: 2, expiresMs: Date.now() + HOUR / 2 };
    const other = newSession();
    for (const each of [sooner, other]) {
      await one.claim(each);
      await one.store.write(each, [opened(), add(1, text)]);
    }
    await one.store.write(session, [opened(), add(1, text)]);
    assert.deepEqual(limits, []);
    await one.store.write(session, [add(2, text)]);
    assert.deepEqual(limits, ['storedEventBytesPerPrincipal']);
    assert.equal(await one.store.read(sooner, 'a'), undefined);
    assert.deepEqual([await seqsIn(one, session), await seqsIn(one, other)], [[1, 2], [1]]);
  });

  test(`${name}: limit storedEventsBytes: events of the principal that has most go`, OPTIONS, async () => {
    const { one, session: small, limits } = await open({ totalBytes: 12_000 });
    const { open: opened, add } = streamOf(one);
    const big = newSession();
    await one.claim(big);
    await one.store.write(small, [opened(), add(1, 'x'.repeat(1_000))]);
    await one.store.write(big, [opened(), ...[1, 2, 3, 4, 5].map((seq) => add(seq, 'x'.repeat(2_000)))]);
    await waitUntil(async () => (await one.store.read(big, 'a')) === undefined);
    assert.deepEqual(await seqsIn(one, small), [1]);
    assert.deepEqual(new Set(limits), new Set(['storedEventsBytes']));
  });

  test(`${name}: the writer of new streams is the process that has the session`, OPTIONS, async () => {
    const { one, two, session } = await open();
    assert.equal(one.store.writerOf(session), one.name);
    assert.equal(two.store.writerOf(session), undefined);
  });
}
