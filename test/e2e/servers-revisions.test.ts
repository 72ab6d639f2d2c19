import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import * as z from 'zod';
import { getEvents, messagesOf, post, postForEvents, rpc } from '../downstream/client.ts';
import { connectOver, SDKS, textOf } from '../support/either-sdk.ts';
import type { RunningGateway } from '../support/gateway.ts';
import { startReferenceGateway } from '../support/reference-servers.ts';
import { connectSdk2 } from '../support/sdk-client.ts';

const TIMEOUT = { timeout: 120_000 };

let reference: Awaited<ReturnType<typeof startReferenceGateway>>;
let gateway: RunningGateway;
let url = '';

before(async () => {
  reference = await startReferenceGateway(['everything', 'memory']);
  ({ gateway } = reference);
  url = gateway.endpoint();
});

after(async () => {
  await reference[Symbol.asyncDispose]();
});

const TOOLS = z.looseObject({
  tools: z.array(z.looseObject({ name: z.string(), outputSchema: z.unknown().optional() })),
});
const CALLED = z.looseObject({
  content: z.array(z.looseObject({ type: z.string() })),
  structuredContent: z.unknown().optional(),
});

/** A client of an older revision, which sends nothing but the given messages. */
async function oldClient(revision: string, capabilities: object = {}) {
  const params = { protocolVersion: revision, capabilities, clientInfo: { name: 'old', version: '1' } };
  const hello = await post(url, rpc(0, 'initialize', params));
  const sessionId = String(hello.headers['mcp-session-id']);
  // Revisions before 2025-06-18 have no such header.
  const headers = revision < '2025-06-18' ? {} : { 'mcp-protocol-version': revision };
  await post(url, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), sessionId, headers);
  return {
    result: messagesOf(hello)[0]?.result,
    sessionId,
    open: (method: string, request: object) => postForEvents(url, rpc(1, method, request), sessionId, headers),
    ask: async (method: string, request: object = {}) => {
      const messages = messagesOf(await post(url, rpc(1, method, request), sessionId, headers));
      return { result: messages.at(-1)?.result, before: messages.slice(0, -1) };
    },
    post: (body: string) => post(url, body, sessionId, headers),
  };
}

const call = (name: string, args: object = {}) => ({ name: `everything__${name}`, arguments: args });

suite('a client of', { concurrency: 1 }, () => {
  for (const revision of ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']) {
    suite(revision, { concurrency: 1 }, () => {
      let client: Awaited<ReturnType<typeof oldClient>>;
      before(async () => {
        client = await oldClient(revision, { sampling: {} });
      });

      //
      test('a question before any list arrives on the stream of the call, and is answered', TIMEOUT, async () => {
        const events = await client.open('tools/call', call('trigger-sampling-request', { prompt: 'why' }));
        await events.until(({ messages }) => messages.some(({ method }) => method === 'sampling/createMessage'));
        const id = events.messages.find(({ method }) => method === 'sampling/createMessage')?.id;
        const result = { role: 'assistant', content: { type: 'text', text: `because ${revision}` }, model: 'old' };
        assert.equal((await client.post(JSON.stringify({ jsonrpc: '2.0', id, result }))).status, 202);
        await events.ended();
        assert.match(JSON.stringify(events.messages.at(-1)?.result), new RegExp(`because ${revision}`));
      });

      // L-002
      test('a client gets its own revision, and calls a server of a later one', TIMEOUT, async () => {
        assert.equal(z.looseObject({ protocolVersion: z.string() }).parse(client.result).protocolVersion, revision);
        const { tools } = TOOLS.parse((await client.ask('tools/list')).result);
        assert.equal(tools.length, 23);
        const { result } = await client.ask('tools/call', call('echo', { message: 'then' }));
        assert.deepEqual(CALLED.parse(result).content, [{ type: 'text', text: 'Echo: then' }]);
      });

      //
      test('content that its revision lacks is translated, and nothing is lost', TIMEOUT, async () => {
        const isOld = revision < '2025-06-18';
        const { tools } = TOOLS.parse((await client.ask('tools/list')).result);
        const weather = tools.find(({ name }) => name === 'everything__get-structured-content');
        assert.equal(weather?.outputSchema === undefined, isOld);

        const structured = await client.ask('tools/call', call('get-structured-content', { location: 'Chicago' }));
        const { content, structuredContent } = CALLED.parse(structured.result);
        assert.match(JSON.stringify(content), /Light rain/);
        assert.equal(structuredContent === undefined, isOld);

        const linked = await client.ask('tools/call', call('get-resource-links', { count: 1 }));
        const types = CALLED.parse(linked.result).content.map(({ type }) => type);
        assert.deepEqual(types, ['text', isOld ? 'text' : 'resource_link']);
        assert.match(JSON.stringify(linked.result), /everything\+demo:\/\/resource\/dynamic\/blob\/1/);
      });

      // M-019
      test('progress has the token of the client, with its type', TIMEOUT, async () => {
        const request = call('trigger-long-running-operation', { duration: 0.2, steps: 2 });
        const { before: notifications } = await client.ask('tools/call', {
          ...request,
          _meta: { progressToken: 'mine-7' },
        });
        assert.deepEqual(
          notifications.map(({ params }) => params),
          [1, 2].map((progress) => ({ progress, total: 2, progressToken: 'mine-7' })),
        );
      });
    });
  }
});

test('each request in a batch of a 2025-03-26 client is answered', TIMEOUT, async () => {
  const client = await oldClient('2025-03-26');
  const batch = [
    rpc('a', 'tools/call', call('echo', { message: 'one' })),
    rpc('b', 'ping'),
    rpc('c', 'tools/call', { name: 'nowhere', arguments: {} }),
    JSON.stringify({ jsonrpc: '2.0', method: 'notifications/roots/list_changed' }),
  ];
  const messages = messagesOf(await client.post(`[${batch.join(',')}]`));
  assert.equal(messages.length, 3);
  const byId = new Map(messages.map((message) => [message.id, message]));
  assert.match(JSON.stringify(byId.get('a')?.result), /Echo: one/);
  assert.deepEqual(byId.get('b')?.result, {});
  assert.match(JSON.stringify(byId.get('c')?.error), /-32602.*Unknown tool: nowhere/);
});

test('a batch of a client of any other revision is refused', TIMEOUT, async () => {
  for (const revision of ['2024-11-05', '2025-06-18', '2025-11-25']) {
    const client = await oldClient(revision);
    const { status, text } = await client.post(`[${rpc('a', 'ping')}]`);
    assert.equal(status, 400, revision);
    assert.match(text, /-32600/);
  }
});

// L-002
test('an unknown revision is answered with the latest one', TIMEOUT, async () => {
  const { result } = await oldClient('2031-01-01');
  assert.equal(z.looseObject({ protocolVersion: z.string() }).parse(result).protocolVersion, '2025-11-25');
});

// L-007
test('a modern client discovers that a server is legacy, and initializes', TIMEOUT, async () => {
  await using modern = await connectSdk2(url, { mode: 'auto' });
  assert.equal((await modern.client.listTools()).tools.length, 22);
  const { content } = await modern.client.callTool({ name: 'everything__echo', arguments: { message: 'x' } });
  assert.deepEqual(content, [{ type: 'text', text: 'Echo: x' }]);
});

test('a session is unknown at any other endpoint', TIMEOUT, async () => {
  const client = await oldClient('2025-11-25');
  const got = await post(gateway.endpoint('everything'), rpc(1, 'ping'), client.sessionId);
  assert.equal(got.status, 404);
  const stream = await getEvents(gateway.endpoint('memory'), client.sessionId);
  assert.equal(stream.status, 404);
  stream.close();
});

for (const sdk of SDKS) {
  test(`${sdk} over HTTP+SSE lists, calls, and gets notifications and questions`, TIMEOUT, async () => {
    const human = { sampling: (prompt: string) => `heard ${prompt}` };
    await using client = await connectOver(sdk, { kind: 'sse', url: `${gateway.url}/sse` }, human);
    assert.equal((await client.tools()).length, 23);
    assert.equal(textOf(await client.call('everything__echo', { message: 'x' })), 'Echo: x');
    const progressed: number[] = [];
    const onprogress = ({ progress }: { progress: number }) => progressed.push(progress);
    const args = { duration: 0.8, steps: 4 };
    await client.call('everything__trigger-long-running-operation', args, { onprogress });
    // The SDK loses messages that arrive in one piece with the answer.
    assert.equal(progressed[0], 1);
    assert.match(textOf(await client.call('everything__trigger-sampling-request', { prompt: 'why' })), /heard .*why/);
    const uri = 'everything+demo://resource/static/document/features.md';
    await client.subscribe(uri);
    await client.call('everything__toggle-subscriber-updates');
    const updated = await client.waitForNotification('notifications/resources/updated');
    assert.deepEqual(updated.params, { uri });
  });

  test(`${sdk} over HTTP+SSE reaches one server alone, under original names`, TIMEOUT, async () => {
    await using client = await connectOver(sdk, { kind: 'sse', url: `${gateway.url}/sse/everything` });
    assert.equal(textOf(await client.call('echo', { message: 'x' })), 'Echo: x');
  });
}
