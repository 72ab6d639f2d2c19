import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { pino } from 'pino';
import { RawObject } from '../../../src/json/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import { Connection } from '../../../src/upstream/rpc/connection.ts';
import { httpTransport } from '../../../src/upstream/http/http.ts';
import { sseTransport } from '../../../src/upstream/http/sse.ts';
import { modernHttpTransport } from '../../../src/upstream/http/http-modern.ts';
import { WireOpeners } from '../../../src/upstream/http/http-wire.ts';
import { DroppedMessages } from '../../../src/upstream/rpc/dropped-messages.ts';
import { UndeliveredMessages } from '../../../src/upstream/http/undelivered-messages.ts';
import { connect, event, result, serve, stream, TIMEOUTS } from '../../fixtures/servers/http-harness.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { UNBOUNDED } from '../../support/receiving.ts';
import { waitUntil } from '../../support/wait-until.ts';

const BOUNDED = { timeout: 120_000 };
const COUNT = 5_000;
const SAID = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}';

for (const [era, transport] of [
  ['legacy', httpTransport],
  ['modern', modernHttpTransport],
] as const) {
  // N-29
  test(`limit notificationsPerSecond: a flood over HTTP is paused, not lost, ${era}`, BOUNDED, async () => {
    await using server = await serve((request, response) => {
      if (request.rpc !== 'tools/call') response.writeHead(202).end();
      else stream(response, event(SAID).repeat(COUNT), event(result(request.id)));
    });
    const target = { kind: 'http', url: server.url, headers: {} } as const;
    const wire = new WireOpeners().open(target, TIMEOUTS);
    let pauses = 0;
    let received = 0;
    const start = transport(target, {
      upstream: 'up',
      timeouts: TIMEOUTS,
      messageBytes: 4_194_304,
      receiving: UNBOUNDED,
      undelivered: new UndeliveredMessages(),
      dropped: new DroppedMessages(pino({ level: 'silent' })),
      log: pino({ level: 'silent' }),
      wire,
      userAgent: 'linkspan/test',
      onLimit: () => pauses++,
    });
    const events = { onNotification: () => received++, onServerRequest: () => undefined, onClose: () => undefined };
    const connection = await Connection.open('up', start, events, new AbortController().signal, { audience: '' });
    const limits = { timeoutMs: PATIENCE_MS, maxMs: PATIENCE_MS, progress: false, context: undefined } as const;
    const answer = await connection.call('tools/call', RawObject.of({ name: 'x' }), limits).answer;
    assert.ok(answer.kind === 'result');
    assert.equal(received, COUNT);
    assert.ok(pauses > 0);
    await connection.close();
    await wire.destroy();
  });
}

const PING = '{"jsonrpc":"2.0","id":"p","method":"ping"}';
const PINGS = 5_000;
const EVENTS = { 'content-type': 'text/event-stream' };

for (const [name, transport] of [
  ['http', httpTransport],
  ['sse', sseTransport],
] as const) {
  // N-29
  test(`limit undeliveredMessages: pings of an upstream that takes no answers, ${name}`, BOUNDED, async () => {
    const answers = Promise.withResolvers<void>();
    let waiting = 0;
    let most = 0;
    let events: ServerResponse | undefined;
    await using server = await serve((request, response) => {
      if (request.method === 'GET') {
        response.writeHead(200, EVENTS).write('event: endpoint\ndata: /mcp\n\n');
        events = response;
      } else if (request.rpc === 'tools/call') {
        if (name === 'sse') response.writeHead(202).end();
        else events = response.writeHead(200, EVENTS);
        events?.write(event(PING).repeat(PINGS) + event(result(request.id)));
      } else {
        waiting++;
        most = Math.max(most, waiting);
        void answers.promise.then(() => {
          waiting--;
          response.writeHead(202).end();
        });
      }
    });
    const target = { kind: name, url: server.url, headers: {} } as const;
    const wire = new WireOpeners().open(target, TIMEOUTS);
    const reached = new Set<string>();
    const undelivered = new UndeliveredMessages((limit) => reached.add(limit));
    const start = transport(target, {
      upstream: 'up',
      timeouts: TIMEOUTS,
      messageBytes: 4_194_304,
      receiving: UNBOUNDED,
      undelivered,
      dropped: new DroppedMessages(pino({ level: 'silent' })),
      log: pino({ level: 'silent' }),
      wire,
      userAgent: 'linkspan/test',
      onLimit: (limit) => reached.add(limit),
    });
    const nothing = { onNotification: () => undefined, onServerRequest: () => undefined, onClose: () => undefined };
    const connection = await Connection.open('up', start, nothing, new AbortController().signal, { audience: '' });
    const limits = { timeoutMs: PATIENCE_MS, maxMs: PATIENCE_MS, progress: false, context: undefined } as const;
    const answer = await connection.call('tools/call', RawObject.of({ name: 'x' }), limits).answer;
    assert.equal(answer.kind, 'result');
    assert.deepEqual([...reached].toSorted(), ['notificationsPerSecond', 'undeliveredMessages']);
    assert.ok(most <= LIMITS.undeliveredMessages, `${most} answers at once`);
    answers.resolve();
    await waitUntil(() => undelivered.count === 0);
    connection.notify('notifications/roots/list_changed');
    await server.received.find(({ rpc }) => rpc === 'notifications/roots/list_changed');
    await connection.close();
    await wire.destroy();
  });
}

const UNKNOWN = '{"jsonrpc":"2.0","id":123456789,"result":{}}';
const MALFORMED = '{"jsonrpc":"1.0","id":123456789,"result":{}}';
const STRAY_PROGRESS =
  '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":123456789,"progress":1}}';

const KINDS = [
  { kind: 'http', transport: httpTransport },
  { kind: 'modern', transport: modernHttpTransport },
  { kind: 'sse', transport: sseTransport },
] as const;
const IGNORED = [
  { what: 'comments', sent: ':\n\n', lines: 0 },
  { what: 'events of another type', sent: 'event: x\ndata: y\n\n', lines: 0 },
  { what: 'events without data', sent: 'data:\n\n', lines: 0 },
  { what: 'unknown fields', sent: 'x\n', lines: 0 },
  { what: 'malformed answers', sent: event(MALFORMED), lines: 1 },
  { what: 'malformed notifications', sent: event('{"jsonrpc":"2.0","method":"x","params":1}'), lines: 1 },
  { what: 'blank lines', sent: '\n'.repeat(1_024), lines: 0 },
  { what: 'types without data', sent: 'event: x\n\n'.repeat(103), lines: 0 },
  { what: 'ids without data', sent: 'id: 1\r\n\r\n'.repeat(103), lines: 0 },
] as const;

const STRAY = [
  { what: 'answers to unknown requests', kind: 'http', transport: httpTransport, sent: event(UNKNOWN), lines: 1 },
  {
    what: 'answers to unknown requests',
    kind: 'modern',
    transport: modernHttpTransport,
    sent: event(UNKNOWN),
    lines: 1,
  },
  { what: 'answers to unknown requests', kind: 'sse', transport: sseTransport, sent: event(UNKNOWN), lines: 0 },
  { what: 'progress of no request', kind: 'http', transport: httpTransport, sent: event(STRAY_PROGRESS), lines: 0 },
  ...IGNORED.flatMap((ignored) => KINDS.map((kind) => ({ ...ignored, ...kind }))),
] as const;

for (const { what, kind, transport, sent, lines } of STRAY) {
  // SEC-24
  test(`limit notificationsPerSecond: a flood of ${what} is paused and counted, ${kind}`, BOUNDED, async () => {
    let events: ServerResponse | undefined;
    await using server = await serve((request, response) => {
      if (kind === 'sse' && request.method === 'GET') {
        response.writeHead(200, EVENTS).write('event: endpoint\ndata: /mcp\n\n');
        events = response;
      } else if (request.rpc === 'tools/call') {
        if (kind === 'sse') response.writeHead(202).end();
        else events = response.writeHead(200, EVENTS);
        events?.write(sent.repeat(COUNT) + event(result(request.id)));
      } else response.writeHead(202).end();
    });
    const target = { kind: kind === 'sse' ? 'sse' : 'http', url: server.url, headers: {} } as const;
    const wire = new WireOpeners().open(target, TIMEOUTS);
    let pauses = 0;
    const written: string[] = [];
    const log = pino({ level: 'warn' }, { write: (line) => written.push(line) });
    const start = transport(target, {
      upstream: 'up',
      timeouts: TIMEOUTS,
      messageBytes: 4_194_304,
      receiving: UNBOUNDED,
      undelivered: new UndeliveredMessages(),
      dropped: new DroppedMessages(log),
      log,
      wire,
      userAgent: 'linkspan/test',
      onLimit: (limit) => {
        if (limit === 'notificationsPerSecond') pauses++;
      },
    });
    const nothing = { onNotification: () => undefined, onServerRequest: () => undefined, onClose: () => undefined };
    const connection = await Connection.open('up', start, nothing, new AbortController().signal, { audience: '' });
    const limits = { timeoutMs: PATIENCE_MS, maxMs: PATIENCE_MS, progress: false, context: undefined } as const;
    const answer = await connection.call('tools/call', RawObject.of({ name: 'x' }), limits).answer;
    assert.equal(answer.kind, 'result');
    assert.ok(pauses > 0);
    assert.equal(written.length, lines, written[0]);
    await connection.close();
    await wire.destroy();
  });
}

test('keep-alives of hours that arrive at once pause no stream', BOUNDED, async () => {
  await using server = await serve((request, response) =>
    stream(response, ': ping\r\n\r\n'.repeat(1_900), event(result(request.id))),
  );
  const reached: string[] = [];
  await using peer = await connect(server.url, { onLimit: (limit) => reached.push(limit) });
  peer.request(2);
  await peer.answer(2);
  assert.deepEqual(reached, []);
});
