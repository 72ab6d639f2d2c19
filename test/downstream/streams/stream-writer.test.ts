import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { test } from 'node:test';
import { ByteBudget } from '../../../src/downstream/memory/byte-budget.ts';
import type { StreamEvent } from '../../../src/downstream/streams/event-log.ts';
import { StreamWriter } from '../../../src/downstream/streams/stream-writer.ts';
import { RawObject } from '../../../src/json/json.ts';
import { notificationText, requestText, responseText } from '../../../src/protocol/jsonrpc.ts';

/** A stream that accepts one write at a time, on demand. */
class Reader extends Writable {
  readonly taken: string[] = [];
  #next: (() => void) | undefined;

  constructor() {
    super({ highWaterMark: 1, decodeStrings: false });
  }

  override _write(chunk: string, _: string, done: () => void): void {
    this.taken.push(chunk);
    this.#next = done;
  }

  /** Accepts writes until none is left. */
  async drain(): Promise<void> {
    while (this.#next !== undefined) {
      const next = this.#next;
      this.#next = undefined;
      next();
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

const PROGRESS = notificationText('notifications/progress', RawObject.EMPTY);
const LOG = notificationText('notifications/message', RawObject.EMPTY);
const TOOLS = notificationText('notifications/tools/list_changed', undefined);
const PROMPTS = notificationText('notifications/prompts/list_changed', undefined);
const ANSWER = responseText('1', { kind: 'result', result: '{}' });
const ASK = requestText(1, 'roots/list', undefined);

const MAX_AGE_MS = 3_600_000;

function setUp(isImpatient = true, budget?: ByteBudget) {
  const reader = new Reader();
  const wrote: number[] = [];
  const stalls: boolean[] = [];
  const unsent: (readonly StreamEvent[])[] = [];
  const seen = { dropped: 0, unsent, wrote, stalls };
  const writer = new StreamWriter(
    reader,
    {
      beforeWrite: ({ seq }) => void wrote.push(seq),
      onGone: (streamEvents) => unsent.push(streamEvents),
      onDropped: () => seen.dropped++,
    },
    { isImpatient, ...(budget && { budget }), maxAgeMs: MAX_AGE_MS, onStall: (isStalled) => stalls.push(isStalled) },
  );
  let seq = 0;
  const write = (message: string, bytes = 10): void => {
    seq++;
    writer.write({ seq, text: `${seq} `, bytes, atMs: 0 }, message);
  };
  return { reader, writer, write, seen };
}

test('unread events wait for a slow reader, and arrive in order', async () => {
  const { reader, write, seen } = setUp();
  for (const message of [ANSWER, PROGRESS, ASK, PROGRESS]) write(message);
  assert.deepEqual(seen.wrote, [1]);
  await reader.drain();
  assert.deepEqual(seen.wrote, [1, 2, 3, 4]);
  assert.equal(reader.taken.join(''), '1 2 3 4 ');
  assert.equal(seen.stalls.at(0), true);
  assert.equal(seen.stalls.at(-1), false);
});

// REL-20
test('progress and log messages are dropped oldest first, and counted', async () => {
  const { reader, write, seen } = setUp();
  write(ANSWER);
  for (let i = 0; i < 100; i++) write(PROGRESS);
  for (let i = 0; i < 100; i++) write(ASK);
  for (let i = 0; i < 150; i++) write(LOG);
  assert.equal(seen.unsent.length, 0);
  assert.equal(seen.dropped, 94);
  await reader.drain();
  assert.deepEqual(
    seen.wrote.filter((seq) => seq > 101 && seq <= 201),
    Array.from({ length: 100 }, (_, i) => 102 + i),
  );
  assert.equal(seen.wrote[1], 96);
  assert.equal(seen.wrote.length, 257);
});

test('an unread list_changed is queued only once', async () => {
  const { reader, write, seen } = setUp();
  write(ANSWER);
  for (const message of [TOOLS, TOOLS, PROMPTS, TOOLS, PROMPTS, TOOLS]) write(message);
  await reader.drain();
  assert.deepEqual(seen.wrote, [1, 2, 4]);
  write(TOOLS);
  assert.deepEqual(seen.wrote, [1, 2, 4, 8]);
});

test('limit streamQueueMessages: a slow reader is disconnected, its events are kept', () => {
  const { reader, write, seen } = setUp();
  for (let i = 0; i < 257; i++) write(ASK);
  assert.equal(seen.unsent.length, 0);
  write(ASK);
  assert.ok(reader.destroyed);
  assert.deepEqual(
    seen.unsent[0]?.map(({ seq }) => seq),
    Array.from({ length: 257 }, (_, i) => i + 2),
  );
});

test('limit streamQueueBytes: an empty queue accepts one larger message only', () => {
  const { write, seen } = setUp();
  write(ASK);
  write(ANSWER, 8_000_000);
  assert.equal(seen.unsent.length, 0);
  write(PROGRESS);
  assert.equal(seen.dropped, 1);
  write(ANSWER, 8_000_000);
  assert.equal(seen.unsent[0]?.length, 2);
});

test('a patient writer keeps all requests and answers for its reader', async () => {
  const { reader, write, seen } = setUp(false);
  for (let i = 0; i < 400; i++) write(ASK);
  assert.equal(seen.unsent.length, 0);
  await reader.drain();
  assert.equal(seen.wrote.length, 400);
});

test('a patient writer with a full queue drops its oldest notifications', async () => {
  const { reader, write, seen } = setUp(false);
  write(ANSWER);
  const own = notificationText('notifications/own', undefined);
  for (let n = 0; n < 10_000; n++) write(own);
  for (const message of [TOOLS, ASK, ANSWER]) write(message);
  assert.equal(seen.dropped, 10_000 - 256 + 3);
  await reader.drain();
  assert.deepEqual([seen.wrote[1], seen.wrote.at(-1)], [10_000 + 1 - 256 + 3 + 1, 10_004]);
});

test('progress takes no place of another notification for a patient writer', async () => {
  const { reader, write, seen } = setUp(false);
  write(ANSWER);
  write(notificationText('notifications/tasks', undefined));
  for (let n = 0; n < 1_000; n++) write(PROGRESS);
  write(notificationText('notifications/elicitation/complete', undefined));
  await reader.drain();
  assert.deepEqual([seen.wrote[1], seen.wrote.at(-1)], [2, 1_003]);
});

test('end() writes the queued events first', async () => {
  const { reader, writer, write, seen } = setUp();
  write(ASK);
  write(ANSWER);
  writer.end();
  assert.equal(reader.writableEnded, false);
  await reader.drain();
  assert.deepEqual(seen.wrote, [1, 2]);
  assert.ok(reader.writableEnded);
});

test('a stream ends at its maximum age, and is gone at once', () => {
  const { reader, writer, seen } = setUp();
  writer.sweep(writer.openedMs + MAX_AGE_MS - 1);
  assert.equal(reader.writableEnded, false);
  writer.sweep(writer.openedMs + MAX_AGE_MS + 1);
  assert.ok(reader.writableEnded);
  assert.deepEqual(seen.unsent, [[]]);
});

test('a blocked stream ends at its maximum age, and its unsent events are kept', () => {
  const { reader, writer, write, seen } = setUp();
  for (const message of [ASK, ASK, ANSWER]) write(message);
  writer.sweep(writer.openedMs + MAX_AGE_MS + 1);
  assert.ok(reader.destroyed);
  assert.deepEqual(
    seen.unsent.map((streamEvents) => streamEvents.map(({ seq }) => seq)),
    [[2, 3]],
  );
});

test('the last events of a finished stream are written after its maximum age too', async () => {
  const { reader, writer, write } = setUp();
  for (const message of [ASK, ANSWER]) write(message);
  writer.end();
  writer.sweep(writer.openedMs + MAX_AGE_MS + 1);
  await reader.drain();
  assert.equal(reader.taken.join(''), '1 2 ');
  assert.ok(reader.writableEnded);
});

function smallBudget(): ByteBudget {
  return new ByteBudget({ totalBytes: 1_000, principalBytes: 1_000 }, () => undefined);
}

function events(count: number, bytes: number, text = 'event '): StreamEvent[] {
  return Array.from({ length: count }, (_, i) => ({ seq: i + 1, text, bytes, atMs: 0 }));
}

test('a replay that disconnects its reader for the budget loses no event', () => {
  const budget = smallBudget();
  const { reader, writer, seen } = setUp(true, budget);
  writer.replay(events(20, 100));
  assert.ok(reader.destroyed);
  assert.deepEqual(
    [...seen.wrote, ...seen.unsent.flat().map(({ seq }) => seq)],
    Array.from({ length: 20 }, (_, i) => i + 1),
  );
  assert.equal(budget.bytes, 0);
});

test('an event that disconnects its reader for the budget is kept once', () => {
  const budget = smallBudget();
  const { reader, writer, seen } = setUp(true, budget);
  writer.replay(events(2, 10, 'x'.repeat(2_000)));
  assert.ok(reader.destroyed);
  assert.deepEqual(seen.wrote, [1]);
  assert.deepEqual(
    seen.unsent.map((streamEvents) => streamEvents.map(({ seq }) => seq)),
    [[2]],
  );
  assert.equal(budget.bytes, 0);
});

// N-29
test('an unread update of one resource is queued only once', async () => {
  const { reader, write, seen } = setUp();
  const [one, other] = ['a', 'b'].map((uri) =>
    notificationText('notifications/resources/updated', RawObject.of({ uri })),
  );
  assert.ok(one !== undefined && other !== undefined);
  write(ANSWER);
  for (let n = 0; n < 1_000; n++) write(n % 2 === 0 ? one : other);
  await reader.drain();
  assert.deepEqual(seen.wrote, [1, 2, 3]);
});

test('no comment is written while an event waits for the log', async () => {
  const reader = new Reader();
  const kept = Promise.withResolvers<boolean>();
  const writer = new StreamWriter(
    reader,
    { beforeWrite: () => kept.promise, onGone: () => undefined, onDropped: () => undefined },
    { isImpatient: true },
  );
  writer.write({ seq: 1, text: 'event ', bytes: 6, atMs: 0 }, ANSWER);
  writer.comment('comment ');
  kept.resolve(true);
  await kept.promise;
  await reader.drain();
  assert.equal(reader.taken.join(''), 'event ');
});
