import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLogger, requestLogBeside } from '../../src/telemetry/log.ts';
import { RequestLog, type RequestLine } from '../../src/telemetry/request-log.ts';

const CALL: RequestLine = {
  method: 'tools/call',
  tool: 'a"b',
  upstream: 'files',
  principal: 'ann',
  revision: '2025-11-25',
  error: undefined,
  ms: 1.23456,
};

test('every request gets its own line, even if all are equal', () => {
  let written = '';
  let time = 0;
  const log = new RequestLog({ write: (text) => void (written += text) }, () => `,"time":"${++time}"`);
  const lines: RequestLine[] = [
    CALL,
    { ...CALL, ms: 7 },
    { ...CALL, error: 'tool_error' },
    { ...CALL, principal: 'bob' },
    { ...CALL, revision: '2025-06-18' },
    { ...CALL, upstream: undefined, tool: undefined, method: 'ping' },
    CALL,
  ];
  for (const line of lines) log.write(line);
  log.flush();

  const expected = lines.map((line, i) => ({
    level: 30,
    time: String(i + 1),
    name: 'linkspan',
    pid: process.pid,
    ...line,
    ms: Math.round(line.ms * 1000) / 1000,
    msg: 'request',
  }));
  const read: unknown[] = written
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  // Undefined fields are omitted.
  assert.deepEqual(read, JSON.parse(JSON.stringify(expected)));
});

test('lines are written in batches, and none is lost', () => {
  const writes: string[] = [];
  const log = new RequestLog({ write: (text) => void writes.push(text) }, () => '');
  for (let i = 0; i < 1_000; i++) log.write({ ...CALL, ms: i });
  log.flush();
  const read = writes.flatMap((text) => text.trimEnd().split('\n')).map((line) => Number(/"ms":(\d+)/.exec(line)?.[1]));
  assert.deepEqual(
    read,
    Array.from({ length: 1_000 }, (_, i) => i),
  );
  assert.ok(writes.length < 10);
});

for (const [requests, methods] of [
  ['all', ['tools/list', 'tools/call']],
  ['errors', ['tools/call']],
  ['none', []],
] as const) {
  test(`N-49 accessLog ${requests} writes lines of ${methods.join(' and ') || 'no request'}`, () => {
    let written = '';
    const log = createLogger('info', { write: (text) => void (written += text) }, { requests });
    const lines = requestLogBeside(log);
    lines?.write({ ...CALL, method: 'tools/list' });
    lines?.write({ ...CALL, error: 'upstream-timeout' });
    lines?.flush();
    assert.deepEqual(
      [...written.matchAll(/"method":"([^"]+)"/g)].map(([, method]) => method),
      methods,
    );
  });
}
