import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLogger, requestLogBeside, setLogLevel } from '../../src/telemetry/log.ts';
import { hasUnseen, shownText } from '../../src/peer-text.ts';
import { RequestLog, type RequestLine } from '../../src/telemetry/request-log.ts';

const CALL: RequestLine = {
  kind: 'request',
  method: 'tools/call',
  id: '7',
  tool: 'a"b',
  upstreamTool: 'b',
  upstream: 'files',
  session: '0123456789abcdef',
  client: { name: 'Some "client"', version: '1.2' },
  principal: 'ann',
  view: 'work',
  era: 'legacy',
  revision: '2025-11-25',
  error: undefined,
  reason: undefined,
  denied: undefined,
  code: undefined,
  bytesIn: 12,
  bytesOut: 345,
  ms: 1.23456,
  traceId: undefined,
};

/** Returns the parsed lines of a request log. */
function written(lines: readonly RequestLine[]): readonly unknown[] {
  let text = '';
  let time = 0;
  const log = new RequestLog({ write: (more) => void (text += more) }, () => `,"time":"${++time}"`);
  for (const line of lines) log.write(line);
  log.flush();
  return text
    .trimEnd()
    .split('\n')
    .map((line): unknown => JSON.parse(line));
}

test('every request gets its own line, even if all are equal', () => {
  const lines: RequestLine[] = [
    CALL,
    { ...CALL, ms: 7 },
    { ...CALL, ms: 12.0094 },
    { ...CALL, ms: 59.9999 },
    { ...CALL, ms: 0.0401 },
    { ...CALL, traceId: '4bf92f3577b34da6a3ce929d0e0e4736' },
    { ...CALL, upstreamTool: 'c' },
    { ...CALL, error: 'tool_error' },
    { ...CALL, error: 'rpc_error', code: -32_602, bytesOut: undefined },
    { ...CALL, principal: 'bob' },
    { ...CALL, revision: '2025-06-18' },
    { ...CALL, session: 'fedcba9876543210' },
    { ...CALL, client: undefined, view: '', id: '"text"' },
    { ...CALL, upstream: undefined, tool: undefined, method: 'ping' },
    CALL,
  ];
  const expected = lines.map(({ kind, id, client, view, ms, ...line }, i) => ({
    level: 30,
    time: String(i + 1),
    name: 'linkspan',
    pid: process.pid,
    ...line,
    requestId: JSON.parse(id ?? ''),
    client: client?.name,
    clientVersion: client?.version,
    endpoint: view === '' ? undefined : view,
    status: line.error === undefined ? 'ok' : 'error',
    ms: Math.round((ms ?? 0) * 1000) / 1000,
    msg: kind,
  }));
  // Undefined fields are omitted.
  assert.deepEqual(written(lines), JSON.parse(JSON.stringify(expected)));
});

test('a notification has neither id, status nor duration', () => {
  const bare = {
    id: undefined,
    upstreamTool: undefined,
    tool: undefined,
    upstream: undefined,
    bytesOut: undefined,
    ms: undefined,
  };
  const [line] = written([{ ...CALL, ...bare, kind: 'notification', method: 'notifications/initialized' }]);
  assert.deepEqual(
    Object.keys(Object(line)).join(),
    'level,time,name,pid,method,client,clientVersion,principal,endpoint,era,revision,session,bytesIn,msg',
  );
});

// N-73
test('texts of clients are one line without control characters, and short', () => {
  const text = `a\u001B[31m\u009B31m\u2028\u202E\u200B${'b'.repeat(1_000)}`;
  let all = '';
  const log = new RequestLog({ write: (more) => void (all += more) }, () => '');
  log.write({ ...CALL, method: text, id: JSON.stringify(text) });
  log.flush();
  assert.ok(!hasUnseen(all.slice(0, -1)));
  const { method, requestId } = Object(JSON.parse(all));
  assert.equal(method, shownText(text));
  assert.equal(requestId, shownText(text));
});

/** Texts whose parts take the most bytes in a line. */
const DENSE = { ASCII: 'x', quotes: '"', backslashes: '\\', controls: '\u009b', 'letters of three bytes': '名' };

for (const [what, text] of Object.entries(DENSE)) {
  // N-70
  test(`a line of 4 MB of ${what} in each member has at most 1 KiB`, () => {
    const long = text.repeat(4_000_000);
    let all = '';
    const log = new RequestLog({ write: (more) => void (all += more) }, () => `,"time":"${new Date(0).toISOString()}"`);
    const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
    const client = { name: long, version: long };
    const names = { tool: long, upstreamTool: long, method: long, principal: long, reason: long };
    log.write({ ...CALL, ...names, client, id: JSON.stringify(long), error: 'rpc_error', code: -32_602, traceId });
    log.flush();
    assert.ok(Buffer.byteLength(all) <= 1_024, `${Buffer.byteLength(all)} bytes`);
    assert.equal(Object(JSON.parse(all)).error, 'rpc_error');
  });
}

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
  // N-49
  test(`accessLog ${requests} writes lines of ${methods.join(' and ') || 'no request'}`, () => {
    let text = '';
    const log = createLogger('info', { write: (more) => void (text += more) }, { requests });
    const lines = requestLogBeside(log);
    lines?.write({ ...CALL, method: 'tools/list' });
    lines?.write({ ...CALL, error: 'upstream-timeout' });
    lines?.flush();
    assert.deepEqual(
      [...text.matchAll(/"method":"([^"]+)"/g)].map(([, method]) => method),
      methods,
    );
  });
}

test('lines of requests begin and end while the level of the log changes', () => {
  let text = '';
  const log = createLogger('warn', { write: (more) => void (text += more) });
  const lines = requestLogBeside(log);
  for (const [level, method] of [
    ['warn', 'a'],
    ['info', 'b'],
    ['error', 'c'],
    ['trace', 'd'],
  ] as const) {
    setLogLevel(log, level);
    lines?.write({ ...CALL, method });
  }
  lines?.flush();
  assert.deepEqual(
    [...text.matchAll(/"method":"(.)"/g)].map(([, method]) => method),
    ['b', 'd'],
  );
});
