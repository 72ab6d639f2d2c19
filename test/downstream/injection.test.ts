import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RawObject } from '../../src/json/json.ts';
import { notificationText } from '../../src/protocol/jsonrpc.ts';
import { startEdge } from './edge.ts';
import { getEvents, initialize, postForEvents, rpc, send } from './client.ts';

const BREAKS = ['\n', '\r', '\r\n', '\n\n', '\r\r', '\r\n\r\n', '\u{2028}', '\u{2029}', '\u{85}', '\v', '\f', '\0'];

const FIELDS = [
  'data: {"jsonrpc":"2.0","id":1,"result":{"evil":true}}',
  'id: evil',
  'event: endpoint',
  'retry: 1',
  ': comment',
  'data',
  ':',
  '\u{feff}data: x',
  'event: message\ndata: x',
  'data: x\r\rdata: y',
];

const EXPECTED = ['cache-control', 'connection', 'content-length', 'content-type', 'date', 'transfer-encoding'];

/** Every kind of line break before, after and around every field. */
const PAYLOADS = BREAKS.flatMap((line) => FIELDS.map((field) => `a${line}${line}${field}${line}${line}b`));

test('the corpus has 120 texts', () => {
  assert.equal(PAYLOADS.length, 120);
});

// SEC-27
test('a client reads exactly the message that was sent, whatever it contains', { timeout: 120_000 }, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const listening = await getEvents(url, id);
  const session = edge.front.own(id);
  for (const text of PAYLOADS) {
    session.send(notificationText('notifications/message', RawObject.of({ level: 'info', data: text, [text]: 1 })));
  }
  await listening.until(({ messages }) => messages.length === PAYLOADS.length);
  assert.deepEqual(
    listening.messages.map(({ params }) => params),
    PAYLOADS.map((text) => ({ level: 'info', data: text, [text]: 1 })),
  );
  const named = listening.seen.filter(({ data }) => data !== '');
  assert.ok(named.every(({ event }) => event === 'message'));
  assert.ok(listening.seen.every(({ data, event }) => data !== '' || event === undefined));
  assert.equal(listening.retryMs, 3_000);
  listening.close();
});

test('each answer in an event stream names its type, as some clients need', { timeout: 120_000 }, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const events = await postForEvents(url, rpc(1, 'echo', {}), id, { accept: 'text/event-stream' });
  await events.ended();
  assert.deepEqual(
    events.seen.map(({ data, event }) => [data === '', event]),
    [
      [true, undefined],
      [false, 'message'],
    ],
  );
});

// SEC-27
test('an answer is one event, whatever it contains', { timeout: 120_000 }, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const events = await postForEvents(url, rpc(1, 'echo', { texts: PAYLOADS }), id, { accept: 'text/event-stream' });
  await events.ended();
  assert.deepEqual(events.messages, [{ jsonrpc: '2.0', id: 1, result: { texts: PAYLOADS } }]);
});

// SEC-27
test('JSON over several lines becomes one event', { timeout: 120_000 }, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const listening = await getEvents(url, id);
  edge.front.own(id).send('{\r"jsonrpc"\n:\r\n"2.0",\n\n"method":"notifications/x"\r}');
  await listening.until(({ messages }) => messages.length === 1);
  assert.deepEqual(listening.messages, [{ jsonrpc: '2.0', method: 'notifications/x' }]);
  listening.close();
});

// S-018
test('a request id can end neither an event nor a header', { timeout: 120_000 }, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const session = await initialize(url);
  for (const text of PAYLOADS) {
    const events = await (await postForEvents(url, rpc(text, 'count', { to: 1 }), session)).ended();
    assert.deepEqual(events.messages.at(-1), { jsonrpc: '2.0', id: text, result: { counted: 1 } });
    assert.equal(events.seen.length, 3);
    // As after a restart.
    const id = events.lastId.replace(/-\d+\./, '-999.');
    const unknown = await (await getEvents(url, session, { 'last-event-id': id })).ended();
    assert.equal(unknown.messages.length, 1);
    assert.equal(unknown.messages[0]?.id, text);
  }
});

// S-018
test('nothing of a refused request is in the headers of its refusal', { timeout: 120_000 }, async () => {
  await using edge = await startEdge();
  for (const text of PAYLOADS) {
    const refused = await send(`${edge.url}/mcp`, {
      method: 'POST',
      body: rpc(text, 'ping'),
      headers: { 'content-type': 'application/json' },
    });
    assert.equal(refused.status, 400);
    const names = Object.keys(refused.headers);
    assert.ok(
      names.every((name) => EXPECTED.includes(name)),
      names.join(),
    );
  }
});
