/** JSON that few clients send: values that are no object, and integers with a fraction or an exponent as ids. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type HttpUpstream, legacyUpstream, modernUpstream, type Served } from '../support/http-upstream.ts';
import { MODERN, modernHeaders, modernText } from '../support/modern-wire.ts';
import { type OpenGateway, openGateway } from '../support/open-gateway.ts';
import { testCore, toolCall } from '../support/core.ts';
import { memoryUpstream } from '../support/memory-upstream.ts';
import { getEvents, type Got, initialize, post, rpc } from './client.ts';
import { shortened } from '../support/test-name.ts';

const TIMEOUT = { timeout: 120_000 };
const VALUES = ['5', 'null', 'true', '"x"'];
const IDS = ['1.0', '1e2', '-0', '12345678901234567890.0'];
const LIST = rpc(0, 'tools/list');

let upstream: HttpUpstream;
let gateway: OpenGateway;

before(async () => {
  upstream = await legacyUpstream({ tools: [{ name: 'echo', inputSchema: { type: 'object' } }] });
  gateway = await openGateway({ up: { url: upstream.url } });
});

after(async () => {
  await gateway[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

/** Returns the text of a request with another id. */
function withId(text: string, id: string): string {
  return text.replace(/"id":\d+/, `"id":${id}`);
}

/** A client that posts to the gateway. */
interface Poster {
  readonly send: (body: string) => Promise<Got>;
}

const posters: Readonly<Record<string, () => Promise<Poster>>> = {
  '2025-11-25': async () => {
    const session = await initialize(gateway.url);
    return { send: (body) => post(gateway.url, body, session) };
  },
  '2025-03-26': async () => {
    const session = await initialize(gateway.url, '2025-03-26');
    return { send: (body) => post(gateway.url, body, session) };
  },
  [MODERN]: async () => ({ send: (body) => post(gateway.url, body, undefined, modernHeaders('tools/list', {})) }),
  'no session': async () => ({ send: (body) => post(gateway.url, body) }),
  'HTTP+SSE': async () => ({ send: (await openSse()).send }),
};

async function openSse() {
  const events = await getEvents(new URL('/sse', gateway.url).href, undefined);
  await events.until(({ seen }) => seen.length > 0);
  const url = new URL(events.seen[0]?.data ?? '', gateway.url);
  const send = async (body: string) => await post(url.href, body);
  const params = { protocolVersion: '2024-11-05', capabilities: {}, clientInfo: { name: 'old', version: '1' } };
  await send(rpc(0, 'initialize', params));
  await events.until(({ seen }) => seen.length > 1);
  return { events, send };
}

for (const [client, open] of Object.entries(posters)) {
  // N-90
  test(`JSON that is no object is an invalid request: ${client}`, TIMEOUT, async () => {
    const { send } = await open();
    for (const body of VALUES) {
      const { status, text } = await send(body);
      assert.equal(status, 400, body);
      assert.equal(JSON.parse(text).error.code, -32_600, text);
    }
    assert.equal(JSON.parse((await send('5}')).text).error.code, -32_700);
  });
}

// N-90
test('each value of a batch that is no object is an invalid request', TIMEOUT, async () => {
  const { send } = (await posters['2025-03-26']?.()) ?? assert.fail();
  const { status, text } = await send(`[1,null,${withId(LIST, '1e2')}]`);
  assert.equal(status, 200);
  const data = text.startsWith('[') ? text : (/^data: (\[.*)$/m.exec(text)?.[1] ?? text);
  const codes = [...data.matchAll(/"code":(-\d+)/g)].map(([, code]) => code);
  assert.deepEqual(codes, ['-32600', '-32600'], text);
  assert.ok(data.includes('"id":1e2,"result"'), text);
});

for (const id of IDS) {
  for (const client of ['2025-11-25', MODERN]) {
    // N-90
    test(`the id ${id} comes back as it was sent: ${client}`, TIMEOUT, async () => {
      const { send } = (await posters[client]?.()) ?? assert.fail();
      const { text } = await send(withId(client === MODERN ? modernText('tools/list') : LIST, id));
      assert.ok(text.includes(`"id":${id},"result"`), shortened(text, 200));
    });
  }

  // N-90
  test(`the id ${id} comes back as it was sent: HTTP+SSE`, TIMEOUT, async () => {
    const { events, send } = await openSse();
    assert.equal((await send(withId(LIST, id))).status, 202);
    await events.until(({ seen }) => seen.length > 2);
    assert.ok(events.seen[2]?.data.includes(`"id":${id},"result"`), events.seen[2]?.data);
    events.close();
  });
}

// N-90
test('a client may write the id of the call that it cancels in another way', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'wait', inputSchema: { type: 'object' } }] },
    request: () => undefined,
  });
  await using core = await testCore({ up: { memory } });
  const client = await core.connect();
  const call = client.send('tools/call', toolCall('up__wait'), { id: '1.0' });
  await memory.until(() => memory.requests('tools/call')[0]);
  client.notify('notifications/cancelled', { requestId: 1 });
  assert.equal((await call).answer, undefined);
});

for (const [era, start] of [
  ['legacy', legacyUpstream],
  ['modern', modernUpstream],
] as const) {
  // N-90
  test(`an answer finds its call if a ${era} upstream writes our id with a fraction`, TIMEOUT, async () => {
    const answer = ({ id, response }: Served): undefined => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(`{"jsonrpc":"2.0","id":${Number(id)}.0,"result":{"resultType":"complete","content":[]}}`);
    };
    await using up = await start({
      tools: [{ name: 'echo', inputSchema: { type: 'object' } }],
      answers: { 'tools/call': answer },
    });
    await using core = await testCore({ up: up.config });
    const client = await core.connect();
    assert.deepEqual((await client.result('tools/call', toolCall('up__echo')))['content'], []);
  });
}

// N-90
test('a body of an upstream that is no object fails its call at once', TIMEOUT, async () => {
  const answer = ({ response }: Served): undefined => {
    // The stream stays open, so that only the event can end the call.
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('data: 5\n\n');
  };
  await using up = await legacyUpstream({
    tools: [{ name: 'echo', inputSchema: { type: 'object' } }],
    answers: { 'tools/call': answer },
  });
  await using core = await testCore({ up: up.config });
  const client = await core.connect();
  const { answer: failed } = await client.request('tools/call', toolCall('up__echo'));
  assert.ok(failed.kind === 'error' && failed.error.code === -31_012, JSON.stringify(failed));
});
