import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { suite, test } from 'node:test';
import { pino } from 'pino';
import { LIMITS } from '../../../src/limits.ts';
import { Stdio, until } from '../../support/stdio.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { usedBytes } from '../../support/used-bytes.ts';

const LIMIT = { timeout: 120_000 };

function response(id: number, text: string): string {
  return JSON.stringify({ jsonrpc: '2.0', id, result: { text } });
}

suite('messages over stdio', { concurrency: 1 }, () => {
  // T-040
  test('requests are lines on stdin, and answers lines on stdout', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-echo.ts');
    const ids = Array.from({ length: 500 }, (_, i) => stdio.send('echo', { text: `Nº ${i}` }));
    await until(() => stdio.messages.length === ids.length, 'all are answered');
    for (const [i, id] of ids.entries()) assert.equal(stdio.answer(id)?.object('params')?.string('text'), `Nº ${i}`);
  });

  // T-040
  test('a message with line breaks is sent on one line', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-echo.ts');
    const text = '{"jsonrpc":"2.0",\r\n"id":7,\n\n"method":"echo","params":{\n"text":"a\\nb"}}';
    stdio.transport.send({ text, id: 7, method: 'echo' });
    await until(() => stdio.answer(7) !== undefined, 'it is answered');
    assert.equal(stdio.answer(7)?.object('params')?.string('text'), 'a\nb');
    assert.equal(stdio.junk, 0);
  });

  // REL-13
  test('a result with invalid nested JSON is still delivered, in every era', LIMIT, async () => {
    for (const revision of ['2025-11-25', '2026-07-28'] as const) {
      await using stdio = await Stdio.server('stdio-echo.ts');
      stdio.transport.setRevision(revision);
      await stdio.call('print', { text: '{"jsonrpc":"2.0","id":99,"result":{"a":1,"a":2}}\n' });
      const broken = stdio.messages.find((message) => message.kind === 'result' && message.id === '99');
      assert.equal(broken?.kind === 'result' && broken.result, '{"a":1,"a":2}');
      assert.equal(stdio.junk, 0);
    }
  });

  // REL-12
  test('a character split between two reads is read correctly', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-bytes.ts', { env: { TEXT: `${response(1, 'è語🙂')}\n` } });
    await until(() => stdio.messages.length > 0, 'the message came');
    assert.equal(stdio.answer(1)?.string('text'), 'è語🙂');
  });

  // REL-12
  test('a line of exactly the limit is read, and one byte more fails its request', LIMIT, async () => {
    const line = response(0, 'é'.repeat(2_000));
    const messageBytes = Buffer.byteLength(line);
    await using stdio = await Stdio.server('stdio-echo.ts', { messageBytes });
    await stdio.call('print', { text: `${line}\r\n` });
    assert.equal(stdio.answer(0)?.string('text')?.length, 2_000);

    await stdio.call('print', { text: `${line} \n` });
    assert.equal(stdio.failed.get(0)?.code, 'too-large');
    assert.match(stdio.failed.get(0)?.message ?? '', new RegExp(`more than ${messageBytes} bytes`));
    assert.equal(stdio.closings, 0);
  });

  const text = 'x'.repeat(3_000);
  for (const [what, large] of [
    ['the id first', `{"jsonrpc":"2.0","id":7,"result":{"text":"${text}"}}`],
    ['the id first, with spaces', `{ "id" : "7", "jsonrpc" : "2.0", "error" : {"message":"${text}"} }`],
    ['the id last', `{"result":{"id":8,"text":"${text}"},"jsonrpc":"2.0","id":7}\r`],
    ['the version last', `{"result":{"id":8,"text":"${text}","a":{"id":8}},"id":7,"jsonrpc":"2.0"}`],
  ] as const) {
    // REL-12
    test(`an answer beyond the limit fails its request alone: ${what}`, LIMIT, async () => {
      await using stdio = await Stdio.server('stdio-echo.ts', { messageBytes: 1_000 });
      await stdio.call('print', { text: `${large}\n${response(8, 'small')}\n` });
      assert.deepEqual([...stdio.failed.keys()], [7]);
      assert.equal(stdio.failed.get(7)?.code, 'too-large');
      assert.equal(stdio.answer(8)?.string('text'), 'small');
      assert.equal(stdio.closings, 0);
    });
  }

  test('a notification or a request beyond the limit is dropped', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-echo.ts', { messageBytes: 1_000 });
    const members = `"method":"a","params":{"text":"${text}"}`;
    const large = [`{"jsonrpc":"2.0",${members}}`, `{${members},"id":7}`, `{"id":7,"jsonrpc":"2.0",${members}}`];
    await stdio.call('print', { text: `${large.join('\n')}\n` });
    assert.deepEqual([stdio.failed.size, stdio.closings, stdio.junk], [0, 0, 3]);
  });

  // R6
  for (const [what, line] of [
    ['that shows no request', `{"result":{"text":"${text}","a":{"id":7}}}\n`],
    ['of eight times the limit', `{"jsonrpc":"2.0","id":7,"result":{"text":"${text.repeat(3)}`],
  ] as const) {
    test(`a line beyond the limit ${what} ends the process`, LIMIT, async () => {
      await using stdio = await Stdio.server('stdio-echo.ts', { messageBytes: 1_000 });
      stdio.send('print', { text: line });
      const error = await stdio.closed;
      assert.equal(error.code, 'too-large');
      assert.match(error.message, /more than 1000 bytes/);
    });
  }

  // R6 REL-11
  test('a gibibyte without a line break ends the process in bounded memory', LIMIT, async () => {
    const messageBytes = 4_194_304;
    const before = usedBytes();
    let peakBytes = 0;
    await using stdio = await Stdio.server('stdio-endless-line.ts', { messageBytes });
    await until(() => {
      peakBytes = Math.max(peakBytes, usedBytes() - before);
      return stdio.closings > 0;
    }, 'the process is ended');
    assert.equal((await stdio.closed).code, 'too-large');
    assert.ok(peakBytes < 8 * messageBytes, `${peakBytes} bytes were held`);
    assert.deepEqual(stdio.messages, []);
  });

  // T-040 R6 REL-13
  test('lines that are no messages are counted and skipped', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-echo.ts');
    const junk = [
      'Server running on stdio',
      '{"level":"info"}',
      '{',
      '[]x',
      '\0',
      '{"jsonrpc":"1.0","id":77,"result":{}}',
    ];
    await stdio.call('print', { text: `${junk.join('\n')}\n` });
    await stdio.call('echo');
    assert.equal(stdio.junk, junk.length);
    assert.equal(stdio.messages.length, 2);
  });

  // REL-13
  test('limit nonProtocolLines: one more line that is no message ends the process', LIMIT, async () => {
    const reached: string[] = [];
    await using stdio = await Stdio.server('stdio-echo.ts', { onLimit: (limit) => reached.push(limit) });
    await stdio.call('print', { text: 'junk\n'.repeat(100) });
    await stdio.call('echo');
    stdio.send('print', { text: 'junk\n' });
    const error = await stdio.closed;
    assert.equal(error.code, 'upstream-protocol');
    assert.equal(stdio.junk, 101);
    assert.deepEqual(reached, ['nonProtocolLines']);
  });

  // REL-13
  test('limit nonProtocolBytes: the process is ended, in any number of lines', LIMIT, async () => {
    const reached: string[] = [];
    await using stdio = await Stdio.server('stdio-echo.ts', { onLimit: (limit) => reached.push(limit) });
    stdio.send('print', { text: `${'x'.repeat(600_000)}\n`.repeat(2) });
    assert.equal((await stdio.closed).code, 'upstream-protocol');
    assert.equal(stdio.junk, 2);
    assert.deepEqual(reached, ['nonProtocolBytes']);
  });

  test('an answer that is no JSON-RPC fails its request at once', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-bytes.ts', {
      env: { TEXT: '{"jsonrpc":"2.0","id":7,"result":3}\n' },
    });
    await until(() => stdio.failed.has(7), 'the request failed');
    assert.equal(stdio.failed.get(7)?.code, 'upstream-protocol');
    assert.equal(stdio.closings, 0);
  });

  for (const broken of ['{"a":"\\q"}}', '{"a":"\u0001"}}', '{"a":NaN}}', '{"a":1,}}', '{"a":"cut']) {
    // N-32
    test(`an answer with the result ${JSON.stringify(broken)} fails its request`, LIMIT, async () => {
      const text = `{"jsonrpc":"2.0","id":"7","result":${broken}\n`;
      await using stdio = await Stdio.server('stdio-bytes.ts', { env: { TEXT: text } });
      await until(() => stdio.failed.has(7), 'the request failed');
      assert.equal(stdio.failed.get(7)?.code, 'upstream-protocol');
      assert.equal(stdio.closings, 0);
    });
  }

  // R5 N-32
  test('answers that are refused for a bound fail alone, however large or many', LIMIT, async () => {
    const reached: string[] = [];
    await using stdio = await Stdio.server('stdio-echo.ts', { onLimit: (limit) => reached.push(limit) });
    const deep = `${'['.repeat(LIMITS.jsonDepth + 1)}${']'.repeat(LIMITS.jsonDepth + 1)}`;
    const members = Array.from({ length: LIMITS.upstreamObjectMembers + 1 }, (_, n) => `"${n}":1`);
    const results = [
      `{"a":${deep},"pad":"${'x'.repeat(1_100_000)}"}`,
      `{"a":[${'1,'.repeat(LIMITS.upstreamMessageValues)}1]}`,
      `{"a":{${members.join()}}}`,
      ...Array.from({ length: 150 }, () => `{"a":${deep}}`),
    ];
    const lines = results.map((result, at) => `{"jsonrpc":"2.0","id":${1_000 + at},"result":${result}}\n`);
    const log = `{"method":"notifications/message","params":{"level":"info","data":${results[0]}},"jsonrpc":"2.0"}\n`;
    await stdio.call('print', { text: [log, ...lines].join('') });
    await stdio.call('echo');
    assert.deepEqual(
      [...stdio.failed.keys()],
      results.map((_, at) => 1_000 + at),
    );
    assert.deepEqual(new Set(reached), new Set(['jsonDepth', 'upstreamMessageValues', 'upstreamObjectMembers']));
  });

  test('an invalid request of the server fails no call of ours', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-echo.ts');
    await stdio.call('print', { text: '{"jsonrpc":"2.0","id":1,"method":"ping","params":3}\n' });
    assert.equal(stdio.failed.size, 0);
    assert.equal(stdio.junk, 1);
  });

  test('a batch of 2025-03-26 is read as its messages', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-echo.ts');
    const notification = '{"jsonrpc":"2.0","method":"notifications/message","params":{}}';
    await stdio.call('print', { text: `[${response(90, 'a')}, 1, ${notification}, ${response(91, 'b')}]\n` });
    assert.deepEqual(
      stdio.messages.slice(0, 3).map(({ kind }) => kind),
      ['result', 'notification', 'result'],
    );
    assert.equal(stdio.junk, 1);
  });

  test('a malformed answer in a batch fails its request, and the line counts once', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-echo.ts');
    const malformed = [90, 91].map((id) => `{"jsonrpc":"2.0","id":${id},"result":1}`);
    const request = '{"jsonrpc":"2.0","id":92,"method":"ping","params":3}';
    await stdio.call('print', { text: `[${malformed.join()}, ${request}, ${response(93, 'a')}]\n` });
    assert.deepEqual([...stdio.failed.keys()], [90, 91]);
    assert.equal(stdio.answer(93)?.string('text'), 'a');
    assert.equal(stdio.junk, 1);
  });

  test('a byte order mark before the first message is ignored', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-echo.ts');
    await stdio.call('print', { text: `\uFEFF${response(90, 'a')}\n` });
    assert.equal(stdio.answer(90)?.string('text'), 'a');
  });

  test('a message that cannot be handled does not affect others', LIMIT, async () => {
    const onMessage = () => {
      throw new SyntaxError('broken deep within');
    };
    await using stdio = await Stdio.server('stdio-echo.ts', { onMessage });
    await stdio.call('echo');
    await stdio.call('echo');
    assert.equal(stdio.junk, 2);
    assert.equal(stdio.closings, 0);
  });

  /** Returns a log, and the lines of the program that it quotes. */
  function quoting() {
    const lines: string[] = [];
    const sink = new Writable({
      write(chunk: Buffer, _encoding, done) {
        const entry: unknown = JSON.parse(chunk.toString());
        if (typeof entry === 'object' && entry !== null && 'line' in entry) lines.push(String(entry.line));
        done();
      },
    });
    return { lines, log: pino({ level: 'debug' }, sink) };
  }

  // N-12
  test('a line on stdout that is no message is logged without secrets of the config', LIMIT, async () => {
    const { lines, log } = quoting();
    await using stdio = await Stdio.server('stdio-echo.ts', { log, env: { API_KEY: 'key-12345678' } });
    await stdio.call('print', { text: 'started with key-12345678\n{"jsonrpc":"2.0","key":"key-12345678"}\n' });
    assert.deepEqual(lines, ['started with [redacted]', '{"jsonrpc":"2.0","key":"[redacted]"}']);
  });

  test('stderr is logged line by line, and endless lines are cut', LIMIT, async () => {
    const { lines, log } = quoting();
    await using stdio = await Stdio.server('stdio-echo.ts', { log });
    stdio.send('complain', { text: `first\n${'x'.repeat(20_000)}\nlast` });
    stdio.send('exit', { code: 0 });
    await stdio.closed;
    assert.deepEqual(lines, ['first', `${'x'.repeat(LIMITS.stderrLineBytes)}…`, 'last']);
  });
});

// REL-14
suite('a process that does not read', { concurrency: 1 }, () => {
  async function stopped(stdio: Stdio): Promise<number> {
    const pid = Number((await stdio.call('pid')).raw('pid'));
    process.kill(pid, 'SIGSTOP');
    return pid;
  }

  test('has at most a mebibyte queued, and failed requests have executed no', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-echo.ts');
    const pid = await stopped(stdio);
    const sent: number[] = [];
    const text = 'x'.repeat(16_384);
    while (stdio.failed.size === 0 && sent.length < 1_000) {
      sent.push(stdio.send('echo', { text }));
      await new Promise((resolve) => setImmediate(resolve));
    }
    // A dropped notification has no caller to report it to.
    stdio.transport.send({ text: '{"jsonrpc":"2.0","method":"notifications/x"}', method: 'notifications/x' });

    const [[failedId, error] = []] = stdio.failed;
    assert.equal(error?.code, 'overloaded');
    assert.equal(error.detail.executed, 'no');
    const queuedBytes = (sent.length - 1) * text.length;
    assert.ok(queuedBytes >= 1_000_000 && queuedBytes < 2_500_000, `took ${queuedBytes} bytes`);

    process.kill(pid, 'SIGCONT');
    await until(() => stdio.messages.length === sent.length, 'the rest is answered');
    for (const id of sent) assert.equal(stdio.answer(id) === undefined, id === failedId);
  });

  test('fails queued requests after some seconds, and may read again later', LIMIT, async (t) => {
    stopTime(t).flow(10);
    await using stdio = await Stdio.server('stdio-echo.ts');
    const pid = await stopped(stdio);
    const text = 'x'.repeat(900_000);
    const written = stdio.send('echo', { text });
    await new Promise((resolve) => setImmediate(resolve));
    const waiting = stdio.send('echo', { text });
    await until(() => stdio.failed.size > 0, 'the second request failed');
    assert.deepEqual([...stdio.failed.keys()], [waiting]);
    assert.equal(stdio.failed.get(waiting)?.code, 'overloaded');
    assert.equal(stdio.failed.get(waiting)?.detail.executed, 'no');

    process.kill(pid, 'SIGCONT');
    await until(() => stdio.answer(written) !== undefined, 'the first request is answered');
    await stdio.call('echo');
  });

  test('does not get a request that was forgotten before it was written', LIMIT, async () => {
    await using stdio = await Stdio.server('stdio-echo.ts');
    const pid = await stopped(stdio);
    stdio.send('echo', { text: 'x'.repeat(900_000) });
    await new Promise((resolve) => setImmediate(resolve));
    const forgotten = stdio.send('echo');
    const last = stdio.send('echo');
    assert.equal(stdio.transport.forget(forgotten), 'unsent');
    process.kill(pid, 'SIGCONT');
    await until(() => stdio.answer(last) !== undefined, 'the last request is answered');
    assert.equal(stdio.answer(forgotten), undefined);
    assert.equal(stdio.failed.size, 0);
  });
});
