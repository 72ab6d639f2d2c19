import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { once } from 'node:events';
import { test } from 'node:test';
import { LIMITS } from '../../src/limits.ts';
import { usedBytes } from '../support/used-bytes.ts';
import { waitUntil } from '../support/wait-until.ts';
import { event, stream } from '../fixtures/servers/http-harness.ts';
import { legacyUpstream, resultText, type Served } from '../support/http-upstream.ts';
import { inputRequiredIn } from '../support/modern-client.ts';
import { answerOf, modernEvents, modernPost } from '../support/modern-wire.ts';
import { openGateway } from '../support/open-gateway.ts';
import { type Events, getEvents, initialize, post, postForEvents, rpc } from './client.ts';
import { BY_NAME, type Edge, startEdge } from './edge.ts';

const MIB = 1_048_576;
const OPTIONS = { timeout: 120_000 };

async function metric(edge: Edge, name: string, kind: string): Promise<number> {
  const found = new RegExp(`^${name}\\{kind="${kind}"\\} (\\d+)$`, 'm').exec(await edge.metrics.text());
  return Number(found?.[1] ?? Number.NaN);
}

// N-24 N-61
test('the events of many sessions stay within the total', OPTIONS, async () => {
  await using edge = await startEdge({ sessions: { eventTotalBytes: 8 * MIB } });
  const url = `${edge.url}/mcp`;
  const before = usedBytes();
  let last = { id: '', event: '' };
  for (let session = 0; session < 30; session++) {
    const id = await initialize(url);
    for (let call = 1; call <= 6; call++) {
      const answered = await postForEvents(url, rpc(call, 'big', { chars: 500_000 }), id, {
        accept: 'text/event-stream',
      });
      await answered.ended();
      last = { id, event: answered.seen[0]?.id ?? '' };
    }
  }
  // The answers have 90 MB in total. Buffers of closed sockets are released a little later.
  await waitUntil(() => usedBytes() - before < 16 * MIB);
  const counted = await metric(edge, 'linkspan_held_bytes', 'events');
  assert.ok(counted > MIB && counted <= 8 * MIB, `${counted}`);
  assert.ok((await metric(edge, 'linkspan_budget_exceeded_total', 'events')) > 0);
  const resumed = await (await getEvents(url, last.id, { 'last-event-id': last.event })).ended();
  assert.equal(JSON.stringify(resumed.messages[0]?.result).length, 500_000 + '{"text":""}'.length);
});

// N-24
test('an ended session gives its events back', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  await (await postForEvents(url, rpc(1, 'count', { to: 3 }), id)).ended();
  assert.ok((await metric(edge, 'linkspan_held_bytes', 'events')) > 0);
  await edge.front.releaseSession(id);
  await waitUntil(async () => (await metric(edge, 'linkspan_held_bytes', 'events')) === 0);
});

/** Sends a POST and does not read the response. */
function postUnread(edge: Edge, session: string, body: string, accept = 'application/json'): Socket {
  const socket = connect(edge.port, '127.0.0.1');
  socket.pause();
  socket.on('error', () => undefined);
  socket.write(
    `POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: ${accept}\r\n` +
      `Mcp-Session-Id: ${session}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  return socket;
}

for (const accept of ['application/json', 'text/event-stream']) {
  // N-24
  test(`unread answers stay within their budget: ${accept}`, OPTIONS, async () => {
    await using edge = await startEdge({ limits: { unsentTotalBytes: 32 * MIB } });
    const url = `${edge.url}/mcp`;
    const id = await initialize(url);
    const sockets: Socket[] = [];
    for (let call = 1; call <= 20; call++) {
      sockets.push(postUnread(edge, id, rpc(call, 'big', { chars: 8_000_000 }), accept));
      await waitUntil(() => edge.front.finished.length === call);
    }
    await waitUntil(async () => (await metric(edge, 'linkspan_budget_exceeded_total', 'unsent')) > 0);
    assert.ok((await metric(edge, 'linkspan_held_bytes', 'unsent')) <= 16 * MIB);
    // Meanwhile a client that reads gets its answer.
    const answer = await post(url, rpc(100, 'big', { chars: 8_000_000 }), id);
    assert.equal(JSON.parse(answer.text).result.text.length, 8_000_000);
    for (const socket of sockets) socket.destroy();
    await waitUntil(async () => (await metric(edge, 'linkspan_held_bytes', 'unsent')) === 0);
  });
}

/** Sends the headers of a POST and a part of its body. */
async function postPartly(edge: Edge, length: number, part: Buffer, name = 'ann'): Promise<Socket> {
  const socket = connect(edge.port, '127.0.0.1');
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  socket.write(
    `POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json\r\n` +
      `Authorization: Bearer ${name}\r\nContent-Length: ${length}\r\n\r\n`,
  );
  socket.write(part);
  return socket;
}

// N-26
test('unfinished bodies stay within their budget, and the next one gets 503', OPTIONS, async () => {
  await using edge = await startEdge({ limits: { bodyTotalBytes: 32 * MIB } });
  const part = Buffer.alloc(3 * MIB, ' ');
  const sockets = [];
  for (let n = 0; n < 12; n++) sockets.push(await postPartly(edge, 4 * MIB, part));
  const answers = sockets.map(async (socket) => {
    const [chunk] = await once(socket, 'data');
    return String(chunk);
  });
  const refused = await Promise.race(answers);
  assert.match(refused, /^HTTP\/1\.1 503 /);
  assert.match(refused, /^retry-after: 1\r$/im);
  assert.match(refused, /"executed":"no","retryable":true/);
  assert.ok((await metric(edge, 'linkspan_held_bytes', 'bodies')) <= 16 * MIB);
  // A small request needs no budget.
  assert.equal((await initialize(`${edge.url}/mcp`)).startsWith('session-'), true);
  for (const socket of sockets) socket.destroy();
  await waitUntil(async () => (await metric(edge, 'linkspan_held_bytes', 'bodies')) === 0);
});

// N-26
test('unfinished bodies of one principal leave room for those of another', OPTIONS, async () => {
  await using edge = await startEdge({ limits: { bodyTotalBytes: 32 * MIB } }, BY_NAME);
  const part = Buffer.alloc(3 * MIB, ' ');
  const sockets = [];
  for (let n = 0; n < 6; n++) sockets.push(await postPartly(edge, 4 * MIB, part));
  await waitUntil(async () => (await metric(edge, 'linkspan_budget_exceeded_total', 'bodies')) > 0);
  for (let n = 0; n < 2; n++) sockets.push(await postPartly(edge, 4 * MIB, part, 'bob'));
  await waitUntil(async () => (await metric(edge, 'linkspan_held_bytes', 'bodies')) > 16 * MIB);
  for (const socket of sockets) socket.destroy();
  await waitUntil(async () => (await metric(edge, 'linkspan_held_bytes', 'bodies')) === 0);
});

const withPad = (chars: number) => rpc(1, 'count', { to: 1, pad: 'x'.repeat(chars) });

// N-26
test('a body larger than the part of one principal is too large, whatever is free', OPTIONS, async () => {
  await using edge = await startEdge({ limits: { bodyTotalBytes: MIB } });
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const refused = await post(url, withPad(600_000), id);
  assert.equal(refused.status, 413);
  assert.match(refused.text, /a message may have 524288 bytes"/);
  assert.equal(
    (await post(url, withPad(520_000), id)).status,
    200,
    'one that fits is accepted, although its buffer grows',
  );
  assert.equal(await metric(edge, 'linkspan_held_bytes', 'bodies'), 0);
});

// N-26
test('a changed limit of bodies changes their budget at once', OPTIONS, async () => {
  await using edge = await startEdge({ limits: { bodyTotalBytes: MIB } });
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  edge.setConfig({ limits: { bodyTotalBytes: 4 * MIB } });
  assert.equal((await post(url, withPad(1_900_000), id)).status, 200);
  edge.setConfig({ limits: { bodyTotalBytes: MIB } });
  assert.equal((await post(url, withPad(1_900_000), id)).status, 413);
});

// N-26
test('a body in chunks of one byte takes memory in proportion to its length', OPTIONS, async () => {
  await using edge = await startEdge();
  const before = usedBytes();
  const socket = connect(edge.port, '127.0.0.1');
  await once(socket, 'connect');
  socket.write(
    'POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n',
  );
  const chunks = Buffer.from('1\r\n \r\n'.repeat(100_000));
  for (let n = 1; n <= 3; n++) socket.write(chunks);
  await waitUntil(async () => (await metric(edge, 'linkspan_held_bytes', 'bodies')) >= 300_000);
  // Buffers of sockets are released a little later.
  await waitUntil(() => usedBytes() - before < 8 * MIB);
  socket.destroy();
});

// N-26
test('a body of any size, split anywhere, arrives complete', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  for (const chars of [1, 60_000, 70_000, 1_000_000, 4_000_000]) {
    const text = `\u{e9}${'x'.repeat(chars)}`;
    const answer = await post(url, rpc(chars, 'echo', { text }), id);
    assert.equal(JSON.parse(answer.text).result.text, text);
  }
  assert.equal(await metric(edge, 'linkspan_held_bytes', 'bodies'), 0);
});

// N-26
test('limit bodyStallMs: a stalled body is refused with 408', OPTIONS, async (t) => {
  await using edge = await startEdge();
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const socket = await postPartly(edge, 1_000_000, Buffer.alloc(MIB / 2, ' '));
  await waitUntil(async () => (await metric(edge, 'linkspan_held_bytes', 'bodies')) >= MIB / 2);
  t.mock.timers.tick(LIMITS.bodyStallMs);
  const [chunk] = await once(socket, 'data');
  assert.match(String(chunk), /^HTTP\/1\.1 408 /);
  assert.equal(await metric(edge, 'linkspan_held_bytes', 'bodies'), 0);
  socket.destroy();
});

const PAD = 'x'.repeat(400_000);
const BOB = { authorization: 'Bearer bob' };
const ANN = { authorization: 'Bearer ann', accept: 'application/json' };
const largeWait = (id: number) => rpc(id, 'wait', { pad: PAD });

// N-26
for (const [what, bodyOf] of [
  ['of a session', largeWait],
  ['of a batch', (id: number) => `[${largeWait(id)}]`],
] as const) {
  test(`large requests ${what} count for their principal until they are answered`, OPTIONS, async () => {
    await using edge = await startEdge({ limits: { bodyTotalBytes: 2 * MIB } }, BY_NAME);
    const url = `${edge.url}/mcp`;
    const id = await initialize(url, '2025-03-26', ANN);
    const answers = [post(url, bodyOf(1), id, ANN), post(url, bodyOf(2), id, ANN)];
    await waitUntil(() => edge.front.began.length === 2);
    assert.ok((await metric(edge, 'linkspan_held_bytes', 'running')) > 800_000);
    const refused = await post(url, bodyOf(3), id, ANN);
    assert.equal(refused.status, 503);
    assert.match(refused.text, /"code":-31013,.*your large requests that are not answered yet have 80\d{4} bytes/);
    assert.equal(await metric(edge, 'linkspan_budget_exceeded_total', 'running'), 1);
    assert.equal((await post(url, rpc(4, 'echo', {}), id, ANN)).status, 200, 'a small one is not counted');
    const other = await initialize(url, '2025-03-26', BOB);
    assert.equal((await post(url, rpc(1, 'echo', { pad: PAD }), other, BOB)).status, 200);
    edge.front.release('gate');
    for (const answer of answers) assert.equal((await answer).status, 200);
    assert.equal((await post(url, rpc(5, 'echo', { pad: PAD }), id, ANN)).status, 200);
    assert.equal(await metric(edge, 'linkspan_held_bytes', 'running'), 0);
  });
}

// N-26
test('a large request of a client that has gone counts, and leaves each other one', OPTIONS, async () => {
  await using edge = await startEdge({ limits: { bodyTotalBytes: MIB } }, BY_NAME);
  const url = `${edge.url}/mcp`;
  for (const name of ['ann', 'bob', 'dora']) {
    const headers = { authorization: `Bearer ${name}`, accept: 'text/event-stream' };
    const id = await initialize(url, '2025-11-25', headers);
    (await postForEvents(url, largeWait(1), id, headers)).close();
    const refused = await post(url, largeWait(2), id, headers);
    assert.equal(refused.status, 503);
  }
  edge.front.release('gate');
  await waitUntil(async () => (await metric(edge, 'linkspan_held_bytes', 'running')) === 0);
});

// N-26
test('large requests over HTTP+SSE count for their principal until they are answered', OPTIONS, async () => {
  await using edge = await startEdge({ limits: { bodyTotalBytes: MIB } }, BY_NAME);
  const events: Events = await getEvents(`${edge.url}/sse`, undefined, { authorization: ANN.authorization });
  await events.until(({ seen }) => seen.length > 0);
  const url = new URL(events.seen[0]?.data ?? '', edge.url).href;
  const params = { protocolVersion: '2024-11-05', capabilities: {}, clientInfo: { name: 'old', version: '1' } };
  await post(url, rpc(0, 'initialize', params), undefined, ANN);
  assert.equal((await post(url, largeWait(1), undefined, ANN)).status, 202);
  assert.equal((await post(url, largeWait(2), undefined, ANN)).status, 503);
  const answer = { jsonrpc: '2.0', id: 7, result: { pad: PAD } };
  assert.equal((await post(url, JSON.stringify(answer), undefined, ANN)).status, 202, 'answers are not refused');
  edge.front.release('gate');
  await waitUntil(async () => (await metric(edge, 'linkspan_held_bytes', 'running')) === 0);
  assert.equal((await post(url, largeWait(3), undefined, ANN)).status, 202);
});

// N-26
test('a large call that is parked with a question counts until it ends', OPTIONS, async () => {
  const calls: Served[] = [];
  const question = { message: 'sure?', requestedSchema: { type: 'object', properties: {} } };
  await using upstream = await legacyUpstream({
    tools: [{ name: 'ask', inputSchema: { type: 'object' } }],
    answers: {
      'tools/call': (served) => {
        calls.push(served);
        const asked = { jsonrpc: '2.0', id: 'q', method: 'elicitation/create', params: question };
        stream(served.response, event(JSON.stringify(asked)));
        return undefined;
      },
      // The answer to the question.
      '': ({ response }) => {
        response.writeHead(202).end();
        for (const call of calls) call.response.end(event(resultText(call.id, { content: [] })));
        return undefined;
      },
    },
  });
  await using gateway = await openGateway(
    { up: { url: upstream.url } },
    { limits: { body: '512KiB', bodyTotal: '1MiB' } },
  );
  const call = { name: 'up__ask', arguments: { pad: PAD } };
  const options = { capabilities: { elicitation: {} } };
  const asked = inputRequiredIn(answerOf(await modernPost(gateway.url, 'tools/call', call, options)));
  const refused = await modernPost(gateway.url, 'tools/call', call, options);
  assert.equal(refused.status, 503);
  assert.match(refused.text, /your large requests that are not answered yet/);
  const inputResponses = Object.fromEntries(
    Object.keys(asked.inputRequests).map((key) => [key, { action: 'decline' }]),
  );
  const retry = { name: 'up__ask', arguments: call.arguments, requestState: asked.requestState, inputResponses };
  assert.equal(
    answerOf(await modernPost(gateway.url, 'tools/call', retry, options)).result?.['resultType'],
    'complete',
  );
  assert.match(await gateway.metrics(), /^linkspan_held_bytes\{kind="running"\} 0$/m);
});

// N-26
test('a large retry counts until the call that is parked again has ended', OPTIONS, async () => {
  const question = { message: 'sure?', requestedSchema: { type: 'object', properties: {} } };
  const ask = (id: string) =>
    event(JSON.stringify({ jsonrpc: '2.0', id, method: 'elicitation/create', params: question }));
  let asking: Served | undefined;
  let answered = 0;
  await using upstream = await legacyUpstream({
    tools: [{ name: 'ask', inputSchema: { type: 'object' } }],
    answers: {
      'tools/call': (served) => {
        asking = served;
        stream(served.response, ask('q1'));
        return undefined;
      },
      '': ({ response, body }) => {
        response.writeHead(202).end();
        if (!body.includes('"action"')) return undefined;
        if (++answered === 1) asking?.response.write(ask('q2'));
        else asking?.response.end(event(resultText(asking.id, { content: [] })));
        return undefined;
      },
    },
  });
  await using gateway = await openGateway(
    { up: { url: upstream.url } },
    { limits: { body: '512KiB', bodyTotal: '1MiB' } },
  );
  const options = { capabilities: { elicitation: {} } };
  const held = async () => Number(/^linkspan_held_bytes\{kind="running"\} (\d+)$/m.exec(await gateway.metrics())?.[1]);
  const send = async (more: object) =>
    answerOf(await modernPost(gateway.url, 'tools/call', { name: 'up__ask', ...more }, options));
  const retryOf = ({ inputRequests, requestState }: ReturnType<typeof inputRequiredIn>, data: string) => {
    const inputResponses = Object.fromEntries(
      Object.keys(inputRequests).map((key) => [key, { action: 'accept', content: { data } }]),
    );
    return { arguments: {}, requestState, inputResponses };
  };
  const first = inputRequiredIn(await send({ arguments: {} }));
  assert.equal(await held(), 0);
  const second = inputRequiredIn(await send(retryOf(first, PAD)));
  assert.ok((await held()) > PAD.length);
  assert.equal((await send(retryOf(second, 'x'))).result?.['resultType'], 'complete');
  assert.equal(await held(), 0);
});

// N-26
test('a large subscriptions/listen counts until it is acknowledged', OPTIONS, async () => {
  let subscribing: Served | undefined;
  await using upstream = await legacyUpstream({
    capabilities: { resources: { subscribe: true } },
    resources: [{ uri: 'file:///a', name: 'a' }],
    answers: {
      'resources/subscribe': (served) => {
        subscribing = served;
        return undefined;
      },
    },
  });
  await using gateway = await openGateway(
    { up: { url: upstream.url } },
    { limits: { body: '512KiB', bodyTotal: '1MiB', streamsPerPrincipal: 2 } },
  );
  const held = async () => Number(/^linkspan_held_bytes\{kind="running"\} (\d+)$/m.exec(await gateway.metrics())?.[1]);
  const filter = { notifications: { resourceSubscriptions: ['up+file:///a'] }, pad: PAD };
  const opening = modernEvents(gateway.url, 'subscriptions/listen', filter);
  await waitUntil(() => subscribing !== undefined);
  assert.ok((await held()) > PAD.length);
  const refused = await modernPost(gateway.url, 'subscriptions/listen', filter);
  assert.equal(refused.status, 503, refused.text);
  subscribing?.response.writeHead(200, { 'content-type': 'application/json' }).end(resultText(subscribing.id, {}));
  const stream = await opening;
  await stream.until(({ seen }) => seen.length > 0);
  assert.equal(await held(), 0);
  const other = await modernEvents(gateway.url, 'subscriptions/listen', { notifications: {} });
  await other.until(({ seen }) => seen.length > 0);
  for (const one of [stream, other]) one.close();
});
