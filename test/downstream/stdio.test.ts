import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { pino } from 'pino';
import { serveStdio } from '../../src/downstream/stdio.ts';
import { LIMITS } from '../../src/limits.ts';
import { rpc } from './client.ts';
import { HonestFront } from './honest-front.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };

/** Both ends of a pair of pipes; the test is the client. */
class Pipes {
  readonly front = new HonestFront();
  readonly input = new PassThrough();
  readonly output: PassThrough;
  readonly over: Promise<void>;
  readonly lines: string[] = [];
  readonly limits: string[] = [];
  #rest = '';
  #changed = Promise.withResolvers<void>();

  constructor(highWaterMark = 65_536) {
    this.output = new PassThrough({ highWaterMark });
    const streams = { input: this.input, output: this.output };
    this.over = serveStdio(this.front, '', streams, pino({ level: 'silent' }), (limit) => this.limits.push(limit));
  }

  read(): this {
    this.output.setEncoding('utf8');
    this.output.on('data', (text: string) => {
      const lines = (this.#rest + text).split('\n');
      this.#rest = lines.pop() ?? '';
      this.lines.push(...lines);
      this.#changed.resolve();
      this.#changed = Promise.withResolvers<void>();
    });
    return this;
  }

  send(...texts: readonly string[]): void {
    for (const text of texts) this.input.write(`${text}\n`);
  }

  async until(count: number): Promise<{ id?: unknown; result?: unknown; error?: { code: number }; method?: string }[]> {
    while (this.lines.length < count) await this.#changed.promise;
    return this.lines.map((line) => JSON.parse(line));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.input.end();
    await this.over;
  }
}

function hello(protocolVersion = '2025-11-25'): string {
  return rpc(0, 'initialize', { protocolVersion, capabilities: {}, clientInfo: { name: 'x', version: '1' } });
}

test('a stdio client exchanges one message per line, in both directions', OPTIONS, async () => {
  await using pipes = new Pipes().read();
  // Does not wait for the answer to initialize, like a shell pipe.
  pipes.send(hello(), '{"jsonrpc":"2.0","method":"notifications/initialized"}', rpc(1, 'count', { to: 2 }));
  await pipes.until(4);
  pipes.send(rpc('a', 'ask'));
  const [, , , , question] = await pipes.until(5);
  assert.equal(question?.method, 'roots/list');
  pipes.send(JSON.stringify({ jsonrpc: '2.0', id: question?.id, result: {} }));
  pipes.front.onlySession.notify(9);
  const all = await pipes.until(7);
  assert.deepEqual(
    all.filter(({ method }) => method === undefined).map(({ id }) => id),
    [0, 1, 'a'],
  );
  assert.deepEqual(
    all.slice(1, 3).map(({ method }) => method),
    ['notifications/progress', 'notifications/progress'],
  );
  assert.equal(pipes.front.notifications.length, 1);
});

test('a byte order mark before a message of a stdio client is ignored', OPTIONS, async () => {
  await using pipes = new Pipes().read();
  pipes.send(`\uFEFF${hello()}`, rpc('a', 'ask'));
  const [greeting, question] = await pipes.until(2);
  assert.deepEqual([greeting?.id, greeting?.error], [0, undefined]);
  // Some clients read ids into 32-bit integers.
  assert.ok(Number(question?.id) < 2 ** 31, String(question?.id));
});

test('an answer that is not valid ends its question, and gets no response', OPTIONS, async () => {
  await using pipes = new Pipes().read();
  pipes.send(hello(), rpc('a', 'ask'));
  const [, question] = await pipes.until(2);
  pipes.send(JSON.stringify({ jsonrpc: '2.0', id: question?.id, result: null }));
  const [, , answer] = await pipes.until(3);
  assert.equal(answer?.id, 'a');
  assert.equal(Object(answer?.result).answered.code, -32600);
});

test('an invalid message gets an error, and the next one is handled', OPTIONS, async () => {
  await using pipes = new Pipes().read();
  pipes.send('{', '{"jsonrpc":"2.0","id":7}', `[${rpc(1, 'ping')}]`, rpc(2, 'ping'));
  const answers = await pipes.until(4);
  assert.deepEqual(
    answers.map(({ id, error }) => [id, error?.code]).toSorted((a, b) => String(a).localeCompare(String(b))),
    [
      [null, -32600],
      [null, -32700],
      [2, undefined],
      [7, -32600],
    ].toSorted((a, b) => String(a).localeCompare(String(b))),
  );
});

// N-90
test('a line with another JSON value gets -32600, and an id with a fraction comes back', OPTIONS, async () => {
  await using pipes = new Pipes().read();
  pipes.send('5', 'null', '"x"', '5}', '{"jsonrpc":"2.0","id":1.0,"method":"ping"}');
  const answers = await pipes.until(5);
  const codes = answers.map(({ error }) => error?.code);
  assert.equal(codes.filter((code) => code === -32_600).length, 3, String(codes));
  assert.equal(codes.filter((code) => code === -32_700).length, 1, String(codes));
  assert.ok(pipes.lines.includes('{"jsonrpc":"2.0","id":1.0,"result":{}}'), pipes.lines.join('\n'));
});

// T-033
test('a batch gets a batch at 2025-03-26, and is refused at other revisions', OPTIONS, async () => {
  await using pipes = new Pipes().read();
  pipes.send(hello('2025-03-26'), `[${rpc(1, 'ping')},{"jsonrpc":"2.0","method":"notifications/x"},7]`);
  await pipes.until(2);
  const answers: { id: unknown }[] = JSON.parse(pipes.lines[1] ?? '');
  assert.deepEqual(
    answers.map(({ id }) => id),
    [1, null],
  );
  await using newer = new Pipes().read();
  newer.send(hello('2025-06-18'), `[${rpc(1, 'ping')}]`);
  assert.equal((await newer.until(2))[1]?.error?.code, -32600);
});

test('input of a client that does not read is paused; it loses only notifications', OPTIONS, async () => {
  await using pipes = new Pipes(1_000);
  pipes.send(hello(), rpc(1, 'count', { to: 2_000, pad: 1_000 }));
  await waitUntil(() => pipes.front.finished.length > 0);
  assert.ok(pipes.input.isPaused());
  pipes.send(rpc(2, 'echo', { last: true }));
  assert.deepEqual(pipes.front.began, ['count']);
  pipes.read();
  await waitUntil(() => pipes.front.began.includes('echo'));
  let count = pipes.lines.length;
  while (!pipes.lines.some((line) => line.includes('"id":2'))) await pipes.until(++count);
  const ids = pipes.lines.map((line) => JSON.parse(line).id).filter((id) => id !== undefined);
  assert.deepEqual(ids, [0, 1, 2]);
  assert.ok(pipes.lines.length < 2_000);
});

test('after the end of input, pending answers are sent and the session ends', OPTIONS, async () => {
  const pipes = new Pipes().read();
  pipes.send(hello());
  pipes.input.end(`${rpc(1, 'count', { to: 3 })}\n${rpc(2, 'ping')}`);
  await pipes.over;
  const answers = await pipes.until(6);
  assert.deepEqual(new Set(answers.map(({ id }) => id)), new Set([0, undefined, 2, 1]));
  assert.equal(pipes.front.sessions.size, 0);
});

test('serveStdio resolves when the client closes its output', OPTIONS, async () => {
  const pipes = new Pipes().read();
  pipes.send(hello());
  await pipes.until(1);
  pipes.output.destroy();
  await pipes.over;
  assert.equal(pipes.front.sessions.size, 0);
});

test('serveStdio resolves when the gateway ends the session', OPTIONS, async () => {
  const pipes = new Pipes().read();
  pipes.send(hello());
  await pipes.until(1);
  await pipes.front.endSession(pipes.front.onlySession);
  await pipes.over;
});

// N-27
test('a refused line counts the bound that it exceeds', OPTIONS, async () => {
  const pipes = new Pipes().read();
  pipes.send(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":${'['.repeat(65)}${']'.repeat(65)}}}`);
  const [refusal] = await pipes.until(1);
  assert.equal(refusal?.error?.code, -32600);
  assert.deepEqual(pipes.limits, ['jsonDepth']);
  pipes.input.end();
  await pipes.over;
});

test('limit clientLineBytes: a longer line is refused, and the next one is read', OPTIONS, async () => {
  await using pipes = new Pipes().read();
  pipes.send('x'.repeat(LIMITS.clientLineBytes + 1), hello());
  const [refused, answer] = await pipes.until(2);
  assert.equal(refused?.error?.code, -32_700);
  assert.notEqual(answer?.result, undefined);
  assert.deepEqual(pipes.limits, ['clientLineBytes']);
});
