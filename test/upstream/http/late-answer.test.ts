import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Call } from '../../../src/upstream/rpc/call.ts';
import {
  type Caller,
  connectCaller,
  event,
  greeted,
  json,
  type Received,
  result,
  serve,
  stream,
  type Upstream,
} from '../../fixtures/servers/http-harness.ts';
import { stopTime } from '../../support/stopped-time.ts';

const LIMIT = { timeout: 120_000 };
const SECOND = 1_000;

/** The default timeouts of an upstream. */
const TIMEOUTS = {
  startMs: 20_000,
  connectMs: 5_000,
  firstByteMs: 30_000,
  callMs: 60_000,
  toolMs: 60_000,
  maxMs: 600_000,
};
const KINDS = ['http', 'sse', 'modern'] as const;
const QUESTION = '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Sure?"}}';

/** Starts a server that sends no headers for a call by itself. `posted` gets its POSTs, and the stream of its GET if it has one. */
function serveCalls(
  kind: (typeof KINDS)[number],
  posted: (request: Received, response: ServerResponse, events: ServerResponse | undefined) => void,
): Promise<Upstream> {
  let events: ServerResponse | undefined;
  return serve((request, response) => {
    if (request.method === 'GET') {
      events = response;
      stream(response, kind === 'sse' ? 'event: endpoint\ndata: /mcp\n\n' : ': hi\n\n');
    } else if (!greeted(request, response)) {
      posted(request, response, events);
    }
  });
}

function callTool(
  { connection }: Caller,
  timeoutMs = TIMEOUTS.callMs,
  sender?: { senderKey: string },
): Call<undefined> {
  const { maxMs } = TIMEOUTS;
  const limits = { timeoutMs, maxMs, progress: false, context: undefined, ...(sender && { sender }) };
  return connection.call('tools/call', RawObject.of({ name: 'slow' }), limits);
}

/** Begins a session, so that the upstream has a stream for its own requests. */
async function greet({ connection }: Caller, server: Upstream): Promise<void> {
  const limits = { timeoutMs: TIMEOUTS.startMs, maxMs: TIMEOUTS.startMs, progress: false, context: undefined };
  await connection.call('initialize', RawObject.EMPTY, limits).answer;
  connection.notify('notifications/initialized');
  await server.received.find(({ method }) => method === 'GET');
}

const isCall = ({ rpc }: Received): boolean => rpc === 'tools/call';

for (const kind of KINDS) {
  // REL-04
  test(`over ${kind}, a POST waits for its answer as long as its call does`, LIMIT, async (t) => {
    let answer: (() => void) | undefined;
    await using server = await serveCalls(kind, (request, response, events) => {
      answer = () => {
        if (kind === 'sse') events?.write(event(result(request.id)));
        json(response, kind === 'sse' ? '' : result(request.id));
      };
    });
    const time = stopTime(t);
    await using caller = await connectCaller(server.url, { kind, timeouts: TIMEOUTS });
    const call = callTool(caller, TIMEOUTS.maxMs);
    await server.received.find(isCall);
    time.pass(TIMEOUTS.maxMs - SECOND);
    answer?.();
    assert.equal((await call.answer).kind, 'result');
  });

  // R2
  // REL-04
  test(`over ${kind}, a call without an answer is cancelled, its socket closed`, LIMIT, async (t) => {
    await using server = await serveCalls(kind, () => undefined);
    const time = stopTime(t);
    await using caller = await connectCaller(server.url, { kind, timeouts: TIMEOUTS });
    const call = callTool(caller);
    const received = await server.received.find(isCall);
    time.pass(TIMEOUTS.callMs);
    await assert.rejects(call.answer, (thrown) => {
      assert.ok(thrown instanceof GatewayError);
      assert.match(thrown.message, /"notes" did not answer tools\/call within 60 s/);
      assert.equal(thrown.code, 'upstream-timeout');
      assert.equal(thrown.detail.executed ?? thrown.row.executed, 'unknown');
      return true;
    });
    await received.closed;
    if (kind !== 'modern') await server.received.find(({ rpc }) => rpc === 'notifications/cancelled');
  });
}

for (const kind of ['http', 'sse'] as const) {
  test(`over ${kind}, firstByte ends a notification that is not accepted`, LIMIT, async (t) => {
    await using server = await serve((request, response) => {
      if (request.method === 'GET') stream(response, 'event: endpoint\ndata: /mcp\n\n');
    });
    const time = stopTime(t);
    await using caller = await connectCaller(server.url, { kind, timeouts: TIMEOUTS });
    caller.connection.notify('notifications/roots/list_changed');
    const { closed } = await server.received.find(({ method }) => method === 'POST');
    time.pass(TIMEOUTS.firstByteMs + SECOND);
    await closed;
  });

  // R2
  // REL-04
  test(`over ${kind}, a call waits for a question on another stream`, LIMIT, async (t) => {
    await using server = await serveCalls(kind, (request, response, events) => {
      if (isCall(request)) {
        events?.write(event(QUESTION));
        void server.received
          .find(({ id }) => id === 'q')
          .then(() => {
            if (kind === 'sse') events?.write(event(result(request.id)));
            json(response, kind === 'sse' ? '' : result(request.id));
          });
      } else {
        response.writeHead(202).end();
      }
    });
    const time = stopTime(t);
    await using caller = await connectCaller(server.url, { kind, timeouts: TIMEOUTS });
    if (kind === 'http') await greet(caller, server);
    const call = callTool(caller);
    const question = await caller.asked.at(0);
    time.pass(TIMEOUTS.callMs + 30 * SECOND);
    question.answer({ kind: 'result', result: '{"action":"accept"}' });
    assert.equal((await call.answer).kind, 'result');
  });
}

for (const kind of KINDS)
  for (const awaited of ['connection', 'credential'] as const) {
    //
    test(`over ${kind}, a call that ends before its ${awaited} is there is not cancelled`, LIMIT, async () => {
      await using server = await serveCalls(kind, (request, response, events) => {
        if (kind === 'sse') events?.write(event(result(request.id)));
        json(response, kind === 'sse' ? '' : result(request.id));
      });
      const credential = { headers: ['authorization', 'Bearer t'] };
      const acquired = Promise.withResolvers<typeof credential>();
      let isAwaited = false;
      const credentials = {
        current: () => (isAwaited ? undefined : credential),
        acquire: () => acquired.promise,
        renew: () => Promise.resolve(undefined),
        extend: () => Promise.resolve(undefined),
      };
      await using caller = await connectCaller(server.url, { kind, timeouts: TIMEOUTS, credentials });
      isAwaited = awaited === 'credential';
      const call = callTool(caller, TIMEOUTS.callMs, { senderKey: 'ann' });
      call.cancel('enough');
      isAwaited = false;
      acquired.resolve(credential);
      await assert.rejects(call.answer, { code: 'cancelled' });
      assert.equal(caller.connection.hasAbandoned('question'), false, 'no late question can be about it');
      assert.equal((await callTool(caller).answer).kind, 'result');
      assert.deepEqual(
        server.received.items.flatMap(({ rpc }) => rpc ?? []),
        ['tools/call'],
      );
    });
  }
