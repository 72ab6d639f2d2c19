import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { WirePool } from '../../../src/http1/pool.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Notification } from '../../../src/protocol/jsonrpc.ts';
import { META } from '../../../src/protocol/meta.ts';
import { LATEST_MODERN } from '../../../src/protocol/revisions.ts';
import { modernHttpTransport } from '../../../src/upstream/http/http-modern.ts';
import { DroppedMessages } from '../../../src/upstream/rpc/dropped-messages.ts';
import { UndeliveredMessages } from '../../../src/upstream/http/undelivered-messages.ts';
import { UpstreamSubscription } from '../../../src/upstream/link/upstream-subscription.ts';
import { Connection } from '../../../src/upstream/rpc/connection.ts';
import type { StartTransport, TransportEvents } from '../../../src/upstream/rpc/transport.ts';
import { NO_FEATURES } from '../../../src/upstream/link/link.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { event, stream, TIMEOUTS, Waitlist } from '../../fixtures/servers/http-harness.ts';
import { type HttpUpstream, modernUpstream, type Served } from '../../support/http-upstream.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { UNBOUNDED } from '../../support/receiving.ts';

const LIMIT = { timeout: 120_000 };
const LISTEN = 'subscriptions/listen';
const UPDATED = 'notifications/resources/updated';
const LISTS = { tools: { listChanged: true }, resources: { listChanged: true, subscribe: true } };
const TASKS = { extensions: { 'io.modelcontextprotocol/tasks': {} } };

interface Subscribed extends AsyncDisposable {
  readonly subscription: UpstreamSubscription;
  readonly notifications: Waitlist<Notification>;
}

async function connect(start: StartTransport): Promise<Connection<string>> {
  const ignore = () => undefined;
  const connection = await Connection.open<string>(
    'notes',
    start,
    { onNotification: ignore, onServerRequest: ignore, onClose: ignore },
    AbortSignal.timeout(PATIENCE_MS),
    { audience: '' },
  );
  connection.setModern(LATEST_MODERN, RawObject.of({ name: 'linkspan', version: '1' }));
  return connection;
}

/** Stands for a reported gap among the notifications. */
const GAP: Notification = { kind: 'notification', method: 'gap', params: undefined };

function subscriptionOver(
  connection: Connection<string>,
  capabilities: object,
  onNotification: (notification: Notification) => void,
  callMs = PATIENCE_MS,
): UpstreamSubscription {
  const hello = {
    revision: LATEST_MODERN,
    capabilities: RawObject.of(capabilities),
    serverInfo: RawObject.EMPTY,
    instructions: undefined,
  } as const;
  const log = pino({ level: 'silent' });
  const onGap = () => onNotification(GAP);
  return new UpstreamSubscription({ connection, hello, timeouts: () => ({ callMs }), log, onNotification, onGap });
}

/** Opens a connection to a server over HTTP, and subscribes on it. */
async function subscribe({ url }: HttpUpstream, capabilities: object, callMs = PATIENCE_MS): Promise<Subscribed> {
  const log = pino({ level: 'silent' });
  const wire = new WirePool(new URL(url), PATIENCE_MS);
  const start = modernHttpTransport(
    { kind: 'http', url, headers: {} },
    {
      upstream: 'notes',
      timeouts: TIMEOUTS,
      messageBytes: 100_000,
      receiving: UNBOUNDED,
      undelivered: new UndeliveredMessages(),
      dropped: new DroppedMessages(log),
      log,
      wire,
      userAgent: 'linkspan/test',
    },
  );
  const connection = await connect(start);
  const notifications = new Waitlist<Notification>();
  const onNotification = (notification: Notification) => notifications.push(notification);
  const subscription = subscriptionOver(connection, capabilities, onNotification, callMs);
  return {
    subscription,
    notifications,
    [Symbol.asyncDispose]: async () => {
      subscription.close();
      await connection.close();
      await wire.destroy();
    },
  };
}

const filters = (server: HttpUpstream) => server.requests(LISTEN).map(({ params }) => params['notifications']);
const nextListen = (server: HttpUpstream, n: number): Promise<Served> =>
  server.received.find((item) => item === server.requests(LISTEN)[n]);

test('an upstream whose lists can change gets one stream for them at once', LIMIT, async () => {
  await using server = await modernUpstream({});
  await using to = await subscribe(server, LISTS);
  await nextListen(server, 0);
  assert.deepEqual(filters(server), [{ toolsListChanged: true, resourcesListChanged: true }]);
  server.notify('notifications/tools/list_changed');
  const { method, params } = await to.notifications.at(0);
  assert.deepEqual([method, params?.toString()], ['notifications/tools/list_changed', '{}']);
});

test('an upstream without such lists gets a stream with the first resource', LIMIT, async () => {
  await using server = await modernUpstream({});
  await using to = await subscribe(server, { resources: { subscribe: true } });
  assert.equal(await to.subscription.add('notes://a'), true);
  assert.deepEqual(filters(server), [{ resourceSubscriptions: ['notes://a'] }]);
});

test('each further resource opens a new stream, and then closes the old one', LIMIT, async () => {
  await using server = await modernUpstream({});
  await using to = await subscribe(server, {});
  await to.subscription.add('notes://a');
  assert.equal(await to.subscription.add('notes://b'), true);
  assert.deepEqual(filters(server).at(-1), { resourceSubscriptions: ['notes://a', 'notes://b'] });
  await waitUntil(() => server.listens().length === 1);
  server.notify(UPDATED, { uri: 'notes://b' });
  assert.equal((await to.notifications.at(0)).params?.string('uri'), 'notes://b');
});

test('a change that comes with the acknowledgement of a further stream is reported', LIMIT, async () => {
  const acknowledgeAndChange = ({ id, params, response }: Served) => {
    const _meta = { [META.subscriptionId]: id };
    const messages = [
      { jsonrpc: '2.0', method: 'notifications/subscriptions/acknowledged', params: { ...params, _meta } },
      { jsonrpc: '2.0', method: UPDATED, params: { uri: 'notes://a', _meta } },
    ];
    stream(response);
    response.write(messages.map((message) => event(JSON.stringify(message))).join(''));
    return undefined;
  };
  await using server = await modernUpstream({ answers: { [LISTEN]: acknowledgeAndChange } });
  await using to = await subscribe(server, {});
  await to.subscription.add('notes://a');
  await to.subscription.add('notes://b');
  const updated = to.notifications.items.map(({ params }) => params?.toString());
  assert.deepEqual(updated, ['{"uri":"notes://a"}', '{"uri":"notes://a"}']);
});

/** A transport to a server that acknowledges each stream at once. */
const acknowledging = memoryUpstream({
  isRaw: true,
  request: (peer, { id, params }) => {
    const notifications = { ...Object(JSON.parse(params?.raw('notifications') ?? '{}')) };
    const method = 'notifications/subscriptions/acknowledged';
    const _meta = { [META.subscriptionId]: Number(id) };
    setImmediate(() => peer.send(JSON.stringify({ jsonrpc: '2.0', method, params: { notifications, _meta } })));
  },
});

test('a resource that is added right after an acknowledgement gets a stream too', LIMIT, async () => {
  for (let turns = 0; turns < 12; turns++) {
    const acknowledged = Promise.withResolvers<void>();
    const connection = await connect(async (events, ...rest) => {
      const onMessage: TransportEvents['onMessage'] = (...args) => {
        events.onMessage(...args);
        acknowledged.resolve();
      };
      return await acknowledging.start({ ...events, onMessage }, ...rest);
    });
    const subscription = subscriptionOver(connection, { resources: { subscribe: true } }, () => undefined);
    const first = subscription.add('notes://a');
    await acknowledged.promise;
    for (let turn = 0; turn < turns; turn++) await Promise.resolve();
    assert.deepEqual(await Promise.all([first, subscription.add('notes://b')]), [true, true], `after ${turns} turns`);
    await connection.close();
  }
});

test('a resource that is subscribed to needs no further stream', LIMIT, async () => {
  await using server = await modernUpstream({});
  await using to = await subscribe(server, {});
  await to.subscription.add('notes://a');
  assert.equal(await to.subscription.add('notes://a'), true);
  assert.equal(server.requests(LISTEN).length, 1);
});

test('a resource that the upstream does not acknowledge is not subscribed to', LIMIT, async () => {
  await using server = await modernUpstream({ honoured: () => ({ resourceSubscriptions: ['notes://a'] }) });
  await using to = await subscribe(server, {});
  assert.equal(await to.subscription.add('notes://secret'), false);
  assert.equal(await to.subscription.add('notes://a'), true);
  assert.deepEqual(filters(server).at(-1), { resourceSubscriptions: ['notes://a'] });
});

test('a resource that only the upstream names is never reported as changed', LIMIT, async () => {
  const more = { resourceSubscriptions: ['notes://b', 'notes://a'], taskIds: ['t'] };
  await using server = await modernUpstream({ honoured: (filter) => ({ ...filter, ...more }) });
  await using to = await subscribe(server, { ...TASKS, resources: { subscribe: true } });
  assert.equal(await to.subscription.add('notes://a'), true);
  await waitUntil(() => server.listens().length === 1);
  server.listens()[0]?.breakOff();
  await to.notifications.find((one) => one === GAP);
  server.notify(UPDATED, { uri: 'notes://last' });
  await to.notifications.find(({ params }) => params?.string('uri') === 'notes://last');
  assert.deepEqual(
    to.notifications.items.map(({ params }) => params?.toString()),
    [undefined, '{"uri":"notes://last"}'],
  );
});

test('without the last resource the stream is closed', LIMIT, async () => {
  await using server = await modernUpstream({});
  await using to = await subscribe(server, {});
  await to.subscription.add('notes://a');
  to.subscription.remove('notes://a');
  await waitUntil(() => server.listens().length === 0);
  assert.equal(server.requests(LISTEN).length, 1);
});

test('a task is subscribed to until its last user has gone', LIMIT, async () => {
  await using server = await modernUpstream({});
  await using to = await subscribe(server, TASKS);
  assert.deepEqual(await Promise.all([to.subscription.addTask('t'), to.subscription.addTask('t')]), [true, true]);
  assert.deepEqual(filters(server).at(-1), { taskIds: ['t'] });
  const count = server.requests(LISTEN).length;
  to.subscription.removeTask('t');
  assert.equal(await to.subscription.addTask('t'), true);
  assert.equal(server.requests(LISTEN).length, count);
  to.subscription.removeTask('t');
  to.subscription.removeTask('t');
  await waitUntil(() => server.listens().length === 0);
});

test('an upstream without tasks gets no subscription to one', LIMIT, async () => {
  await using server = await modernUpstream({});
  await using to = await subscribe(server, {});
  assert.equal(await to.subscription.addTask('t'), false);
  assert.deepEqual(server.received.items, []);
});

test('a broken stream is opened again, and the gap is reported', LIMIT, async () => {
  await using server = await modernUpstream({});
  await using to = await subscribe(server, LISTS);
  await to.subscription.add('notes://a');
  await waitUntil(() => server.listens().length === 1);
  server.listens()[0]?.breakOff();
  await to.notifications.find((one) => one === GAP);
  assert.deepEqual(to.notifications.items, [GAP]);
  assert.deepEqual(filters(server).at(-1), {
    toolsListChanged: true,
    resourcesListChanged: true,
    resourceSubscriptions: ['notes://a'],
  });
});

test('a first stream that is acknowledged late reports a gap', LIMIT, async () => {
  const late = Promise.withResolvers<void>();
  const connection = await connect(async (events, ...rest) => {
    const onMessage: TransportEvents['onMessage'] = (...args) =>
      void late.promise.then(() => events.onMessage(...args));
    return await acknowledging.start({ ...events, onMessage }, ...rest);
  });
  const notifications = new Waitlist<Notification>();
  const subscription = subscriptionOver(connection, LISTS, (notification) => notifications.push(notification));
  await subscription.beginning;
  late.resolve();
  assert.equal(await notifications.at(0), GAP);
  await connection.close();
});

test('a task that may have changed while its stream was broken is reported', LIMIT, async () => {
  await using server = await modernUpstream({});
  await using to = await subscribe(server, TASKS);
  await to.subscription.addTask('t');
  await waitUntil(() => server.listens().length === 1);
  server.listens()[0]?.breakOff();
  const { params } = await to.notifications.find(({ method }) => method === 'notifications/tasks');
  assert.equal(params?.toString(), '{"taskId":"t"}');
});

test('a stream that ends with its acknowledgement is opened again', LIMIT, async () => {
  let isFirst = true;
  const listen = (served: Served) => {
    served.notifySubscriber('notifications/subscriptions/acknowledged', served.params);
    if (isFirst) served.result({});
    isFirst = false;
    return undefined;
  };
  await using server = await modernUpstream({ answers: { [LISTEN]: listen } });
  await using to = await subscribe(server, LISTS);
  await nextListen(server, 1);
  await to.notifications.find((one) => one === GAP);
  await waitUntil(() => server.listens().length === 1);
});

for (const [name, refuse] of [
  ['is refused', ({ response }: Served) => void response.writeHead(429).end()],
  ['is not acknowledged in time', () => undefined],
] as const) {
  // R4
  test(`a first stream that ${name} is opened later, with a gap`, LIMIT, async () => {
    let isFirst = true;
    const listen = (served: Served) => {
      if (isFirst) refuse(served);
      else served.notifySubscriber('notifications/subscriptions/acknowledged', served.params);
      isFirst = false;
      return undefined;
    };
    await using server = await modernUpstream({ answers: { [LISTEN]: listen } });
    await using to = await subscribe(server, LISTS, 1_000);
    await to.notifications.find((one) => one === GAP);
    assert.equal(server.listens().length, 1);
    assert.equal(filters(server).length, 2);
  });
}

test('a stream is not asked for again at an upstream that has no such method', LIMIT, async (t) => {
  const time = stopTime(t);
  await using server = await modernUpstream({
    answers: {
      [LISTEN]: (served) => {
        served.error(-32_601, 'Method not found');
        return undefined;
      },
    },
  });
  await using to = await subscribe(server, LISTS);
  await assert.rejects(to.subscription.add('notes://a'), { code: 'upstream-lost' });
  const count = server.requests(LISTEN).length;
  time.pass(120_000);
  assert.equal(await to.subscription.add('notes://a').catch(() => false), false);
  assert.equal(server.requests(LISTEN).length, count + 1);
});

for (const status of [404, 405, 501]) {
  test(`a stream that was first refused with ${status} is not asked for again`, LIMIT, async (t) => {
    const time = stopTime(t);
    await using server = await modernUpstream({
      answers: {
        [LISTEN]: ({ response }) => {
          response.writeHead(status).end();
          return undefined;
        },
      },
    });
    await using to = await subscribe(server, LISTS);
    await assert.rejects(to.subscription.add('notes://a'), { code: 'upstream-lost' });
    const count = server.requests(LISTEN).length;
    time.pass(120_000);
    assert.equal(await to.subscription.add('notes://a').catch(() => false), false);
    assert.equal(server.requests(LISTEN).length, count + 1);
  });
}

test('a resource whose subscription fails is not asked for again', LIMIT, async () => {
  let isSilent = true;
  const listen = (served: Served) => {
    if (!isSilent) served.notifySubscriber('notifications/subscriptions/acknowledged', served.params);
    isSilent = false;
    return undefined;
  };
  await using server = await modernUpstream({ answers: { [LISTEN]: listen } });
  await using to = await subscribe(server, {}, 1_000);
  await assert.rejects(to.subscription.add('notes://a'), { code: 'upstream-timeout' });
  assert.equal(await to.subscription.add('notes://b'), true);
  assert.deepEqual(filters(server).at(-1), { resourceSubscriptions: ['notes://b'] });
});

test('a stream that is not acknowledged in time fails the subscription', LIMIT, async () => {
  await using server = await modernUpstream({ answers: { [LISTEN]: () => undefined } });
  await using to = await subscribe(server, {}, 50);
  await assert.rejects(to.subscription.add('notes://a'), { code: 'upstream-timeout' });
  await waitUntil(() => server.listens().length === 0);
});

test('a closed subscription ends its stream, and opens no other', LIMIT, async () => {
  await using server = await modernUpstream({});
  await using to = await subscribe(server, LISTS);
  await to.subscription.add('notes://a');
  const count = server.requests(LISTEN).length;
  to.subscription.close();
  await waitUntil(() => server.listens().length === 0);
  assert.equal(server.requests(LISTEN).length, count);
  assert.deepEqual(to.notifications.items, []);
});

test('a stream that is acknowledged after the close of its subscription is ended', LIMIT, async () => {
  await using server = await modernUpstream({ answers: { [LISTEN]: () => undefined } });
  await using to = await subscribe(server, LISTS);
  const listen = await nextListen(server, 0);
  to.subscription.close();
  listen.notifySubscriber('notifications/subscriptions/acknowledged', listen.params);
  await waitUntil(() => server.listens().length === 0);
  assert.equal(server.requests(LISTEN).length, 1);
});

test('the first listing waits for the acknowledgement of the first stream', LIMIT, async () => {
  const order: string[] = [];
  const memory = memoryUpstream({
    isRaw: true,
    hold: (_peer, { method }) => Promise.resolve(void order.push(method)),
    request: (peer, request) => {
      const { id, method } = request;
      if (method === LISTEN) {
        setImmediate(() => {
          order.push('acknowledged');
          const params = { notifications: {}, _meta: { [META.subscriptionId]: Number(id) } };
          peer.send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/subscriptions/acknowledged', params }));
        });
      } else {
        const capabilities = { tools: { listChanged: true } };
        const hello = { resultType: 'complete', ttlMs: 0, cacheScope: 'private', supportedVersions: [LATEST_MODERN] };
        peer.send(result(request, { ...hello, capabilities }));
      }
    },
  });
  await using at = new GatewayParts({ up: { memory, era: 'modern' } });
  await at.upstream('up').refresh('modern', NO_FEATURES, '');
  assert.deepEqual(order, ['acknowledged', 'tools/list']);
});
