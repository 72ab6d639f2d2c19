import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { logStream } from '../../../src/operator/admin/log-stream.ts';
import { LogTail } from '../../../src/telemetry/log-tail.ts';

function portOf(tail: LogTail) {
  return {
    recentLog: () => tail.recent(),
    followLog: (receive: (text: string) => void) => tail.follow(receive) ?? assert.fail('too many'),
  };
}

test('without follow, the stream ends after the latest lines', async () => {
  const tail = new LogTail();
  tail.write('{"n":1}\n');
  tail.write('{"n":2}\n');
  assert.equal(await new Response(logStream(portOf(tail), false, () => undefined)).text(), '{"n":1}\n{"n":2}\n');
});

test('limit logFollowerBytes: a slow reader loses lines, and learns how many', async () => {
  const tail = new LogTail();
  const limits: string[] = [];
  const stream = logStream(portOf(tail), true, (limit) => limits.push(limit));
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
