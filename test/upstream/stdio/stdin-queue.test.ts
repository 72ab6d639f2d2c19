import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { test } from 'node:test';
import { pino } from 'pino';
import { GatewayError } from '../../../src/errors.ts';
import { LIMITS } from '../../../src/limits.ts';
import { StdinQueue } from '../../../src/upstream/stdio/stdin-queue.ts';

const EXIT = new GatewayError(
  'upstream-lost',
  { upstream: 'up', message: 'up exited with code 3' },
  new Error('last line on stderr: boom'),
);

/** A pipe that accepts one write at a time, on demand. */
class Pipe extends Writable {
  readonly writes: string[] = [];
  #done: (() => void) | undefined;

  constructor() {
    super({ highWaterMark: 1, decodeStrings: false });
  }

  override _write(chunk: string, _: string, done: () => void): void {
    this.writes.push(chunk);
    this.#done = done;
  }

  /** Completes the write in flight. */
  accept(): void {
    const done = this.#done;
    this.#done = undefined;
    done?.();
  }
}

function queueOf() {
  const pipe = new Pipe();
  const failed = new Map<number, GatewayError>();
  const reached: string[] = [];
  const queue = new StdinQueue(
    'up',
    pipe,
    (id, error) => failed.set(id, error),
    pino({ level: 'silent' }),
    (limit) => reached.push(limit),
  );
  const send = (id: number, text = `{"id":${id}}`) => queue.add({ text, id, method: 'ping' });
  return { pipe, failed, reached, queue, send };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('messages of one turn are one write, each on its own line', async () => {
  const { pipe, queue, send } = queueOf();
  send(1, '{"id":\n1}');
  send(2);
  await turn();
  assert.deepEqual(pipe.writes, ['{"id": 1}\n{"id":2}\n']);
  queue.close(EXIT);
});

test('a request that is forgotten before its write is never written', async () => {
  const { pipe, queue, send } = queueOf();
  send(1);
  await turn();
  send(2);
  send(3);
  assert.equal(queue.forget(2), 'unsent');
  assert.equal(queue.forget(1), undefined, 'it is being written');
  pipe.accept();
  await turn();
  assert.deepEqual(pipe.writes, ['{"id":1}\n', '{"id":3}\n']);
  queue.close(EXIT);
});

// REL-14
test('limit stdinQueueBytes: a request is not executed, other messages are dropped', async () => {
  const { failed, reached, queue, send } = queueOf();
  send(1, `"${'x'.repeat(LIMITS.stdinQueueBytes - 10)}"`);
  const kibibytes16 = `"${'x'.repeat(16_381)}"`;
  for (let id = 10; id < 74; id++) send(id, kibibytes16);
  assert.deepEqual(reached, []);
  send(2);
  queue.add({ text: '{}', method: 'notifications/cancelled' });
  assert.deepEqual([...failed.keys()], [2]);
  assert.deepEqual([failed.get(2)?.code, failed.get(2)?.detail.executed], ['overloaded', 'no']);
  assert.match(failed.get(2)?.detail.message ?? '', /^more messages than 1048576 bytes wait for upstream/);
  assert.equal(queue.dropped, 1);
  assert.deepEqual(reached, ['stdinQueueBytes', 'stdinQueueBytes']);
  queue.close(EXIT);
});

test('small messages are not refused because large ones wait', async () => {
  const { pipe, failed, queue, send } = queueOf();
  const large = `"${'x'.repeat(LIMITS.stdinQueueBytes)}"`;
  send(1, large);
  await turn();
  send(2, large);
  send(3);
  assert.deepEqual([...failed.keys()], [2]);
  pipe.accept();
  send(4, large);
  assert.deepEqual([...failed.keys()], [2]);
  pipe.accept();
  await turn();
  assert.deepEqual(
    pipe.writes.map((text) => text.length),
    [large.length + 1, 9, large.length + 1],
  );
  queue.close(EXIT);
});

// G6
test('close fails the messages that were not written, as not executed', async () => {
  const { pipe, failed, queue, send } = queueOf();
  send(1);
  await turn();
  send(2);
  queue.close(EXIT);
  send(3);
  assert.deepEqual([...failed.keys()], [2, 3]);
  assert.deepEqual([failed.get(2)?.code, failed.get(2)?.detail.executed], ['upstream-lost', 'no']);
  assert.equal(pipe.writes.length, 1);
});

test('messages wait for the reason of a broken pipe, and fail with it', async () => {
  const { pipe, failed, queue, send } = queueOf();
  send(1);
  queue.stopWriting();
  send(2);
  await turn();
  assert.deepEqual([pipe.writes, failed.size], [[], 0]);
  queue.close(EXIT);
  assert.match(
    failed.get(1)?.message ?? '',
    /^Upstream connection lost: up exited with code 3; the request was not sent/,
  );
  assert.equal(failed.get(2)?.detail.executed, 'no');
  assert.equal(failed.get(1)?.detail.message, 'up exited with code 3', 'operators do not see the advice for clients');
  assert.equal(failed.get(1)?.cause, EXIT.cause);
});

test('end writes the queue before it ends the pipe, and accepts nothing more', async () => {
  const { pipe, failed, queue, send } = queueOf();
  send(1);
  await turn();
  send(2);
  queue.end();
  send(3);
  assert.deepEqual([...failed.keys()], [3]);
  pipe.accept();
  pipe.accept();
  await turn();
  assert.deepEqual(pipe.writes, ['{"id":1}\n', '{"id":2}\n']);
  assert.ok(pipe.writableEnded);
});
