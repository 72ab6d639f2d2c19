import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { EventLog, OpenEventLog, StreamEvent } from '../../../src/downstream/streams/event-log.ts';
import type { ClientSession } from '../../../src/gateway/front/front.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LOCAL } from '../../../src/policy/principal.ts';

const OPTIONS = { timeout: 120_000 };

function streamEvent(seq: number, text = `${seq}`): StreamEvent {
  return { seq, text, bytes: 2 * text.length, atMs: 0 };
}

let lastSerial = 0;

/** Returns a session of a principal of its own, unless another one is given. */
export function eventSession(principal: string = randomUUID()): Pick<ClientSession, 'ref' | 'caller'> {
  const caller = { principal: LOCAL, view: '', revision: '2025-11-25', capabilities: RawObject.EMPTY } as const;
  return { ref: { principal, serial: ++lastSerial, expiresMs: Date.now() + 3_600_000 }, caller };
}

/** The contract of every kind of event log, with room for 100 events of a session. */
export function eventLogContract(name: string, open: () => OpenEventLog): void {
  const logOf = (logs: OpenEventLog, removed: string[] = []): EventLog =>
    logs(eventSession(), (stream) => removed.push(stream));
  const append = async (log: EventLog, stream: string, seqs: readonly number[]): Promise<void> => {
    for (const seq of seqs) await log.append(stream, streamEvent(seq));
  };
  /** Reads as an event stream does: what it takes it appends again. */
  const read = async (log: EventLog, stream: string, after: number): Promise<number[]> => {
    const streamEvents = log.takeAfter(stream, after);
    for (const each of streamEvents) await log.append(stream, each);
    return streamEvents.map(({ seq }) => seq);
  };

  test(`${name}: later events are read in order, as often as a client resumes`, OPTIONS, async () => {
    const log = logOf(open());
    log.open('a', false);
    await append(log, 'a', [1, 2, 3]);
    for (let n = 0; n < 3; n++) assert.deepEqual(await read(log, 'a', 1), [2, 3]);
    assert.deepEqual(await read(log, 'a', 0), [1, 2, 3]);
    assert.deepEqual(await read(log, 'a', 3), []);
    log.close();
  });

  test(`${name}: events are read whose append is under way`, OPTIONS, async () => {
    const log = logOf(open());
    log.open('a', false);
    const appended = [1, 2, 3].map((seq) => log.append('a', streamEvent(seq)));
    log.finish('a', 0, 3);
    const taken = log.takeAfter('a', 1);
    assert.deepEqual(
      taken.map(({ seq }) => seq),
      [2, 3],
    );
    for (const each of appended) await each;
    log.close();
  });

  test(`${name}: an event is read as it was written`, OPTIONS, async () => {
    const log = logOf(open());
    log.open('a', true);
    const text = 'id: a.1\ndata: {"ü":"\u{1F600}\\ud800"}\n\n';
    await log.append('a', streamEvent(1, text));
    const [first] = log.takeAfter('a', 0);
    assert.deepEqual(first, streamEvent(1, text));
    log.close();
  });

  test(`${name}: streams and sessions are told apart`, OPTIONS, async () => {
    const logs = open();
    const [one, other] = [logOf(logs), logOf(logs)];
    for (const log of [one, other]) for (const stream of ['a', 'b', '__proto__']) log.open(stream, false);
    await append(one, 'a', [1, 2]);
    await append(one, '__proto__', [7]);
    assert.deepEqual(await read(one, 'b', 0), []);
    assert.deepEqual(await read(other, 'a', 0), []);
    assert.deepEqual(await read(one, '__proto__', 0), [7]);
    other.close();
    assert.deepEqual(await read(one, 'a', 0), [1, 2]);
    one.close();
  });

  test(`${name}: a stream that was not opened, or removed, keeps nothing`, OPTIONS, async () => {
    const removed: string[] = [];
    const log = logOf(open(), removed);
    await append(log, 'never', [1]);
    assert.deepEqual(await read(log, 'never', 0), []);
    log.open('a', false);
    await append(log, 'a', [1]);
    log.remove('a');
    await append(log, 'a', [2]);
    assert.deepEqual(await read(log, 'a', 0), []);
    assert.equal(log.hasAfter('a', 0), false);
    assert.deepEqual(removed, ['a']);
    log.close();
  });

  test(`${name}: a stream that nobody has opened is not recovered`, OPTIONS, async () => {
    const log = logOf(open());
    log.open('b', false);
    await append(log, 'b', [1]);
    for (const stream of ['a', '__proto__']) assert.equal(await log.recover(stream), undefined);
    log.close();
  });

  test(`${name}: a finished stream can be read, and hasAfter finds its end`, OPTIONS, async () => {
    const log = logOf(open());
    log.open('a', false);
    await append(log, 'a', [1, 2]);
    log.finish('a', 0, 2);
    assert.equal(log.hasAfter('a', 1), true);
    assert.equal(log.hasAfter('a', 2), false);
    assert.deepEqual(await read(log, 'a', 1), [2]);
    log.close();
  });
}
