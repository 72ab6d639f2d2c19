import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { AdminError } from '../../../src/operator/admin/admin-port.ts';
import { logStream, type LogStreamOptions } from '../../../src/operator/admin/log-stream.ts';
import { LogTail } from '../../../src/telemetry/log/log-tail.ts';

function portOf(tail: LogTail) {
  return {
    recentLog: () => tail.recent(),
    followLog: (receive: (text: string) => void) => tail.follow(receive) ?? assert.fail('too many'),
  };
}

function streamOf(tail: LogTail, options: Partial<LogStreamOptions> = {}): ReadableStream<Uint8Array> {
  return logStream(portOf(tail), { follow: true, isAllowed: () => true, onLimit: () => undefined, ...options });
}

test('a reader whose key was removed gets no further line', async () => {
  const tail = new LogTail();
  let isAllowed = true;
  const stream = streamOf(tail, { isAllowed: () => isAllowed });
  tail.write('{"n":1}\n');
  isAllowed = false;
  tail.write('{"n":2}\n');
  tail.write('{"n":3}\n');
  assert.equal(await new Response(stream).text(), '{"n":1}\n');
});

test('without follow, the stream ends after the latest lines', async () => {
  const tail = new LogTail();
  tail.write('{"n":1}\n');
  tail.write('{"n":2}\n');
  assert.equal(await new Response(streamOf(tail, { follow: false })).text(), '{"n":1}\n{"n":2}\n');
});

test('limit logFollowerBytes: a slow reader loses lines, and learns how many', async () => {
  const tail = new LogTail();
  const limits: string[] = [];
  const stream = streamOf(tail, { onLimit: (limit) => limits.push(limit) });
  const line = `${JSON.stringify({ pad: 'x'.repeat(1_023) })}\n`;
  const fitting = Math.ceil(LIMITS.logFollowerBytes / line.length);
  for (let n = 0; n < fitting + 5; n++) tail.write(line);
  assert.deepEqual(limits, ['logFollowerBytes']);
  const reader = stream.getReader();
  let text = '';
  for (let n = 0; n < fitting; n++) text += new TextDecoder().decode((await reader.read()).value);
  assert.doesNotMatch(text, /"dropped"/);
  tail.write('{"n":1}\n');
  assert.match(new TextDecoder().decode((await reader.read()).value), /"dropped":5,/);
  assert.equal(new TextDecoder().decode((await reader.read()).value), '{"n":1}\n');
  await reader.cancel();
});

test('a refusal to follow is thrown before the stream begins', () => {
  const followLog = () => {
    throw new AdminError('overloaded', 'Too many operators follow the log.');
  };
  const options = { follow: true, isAllowed: () => true, onLimit: () => undefined };
  assert.throws(() => logStream({ recentLog: () => [], followLog }, options), AdminError);
});
