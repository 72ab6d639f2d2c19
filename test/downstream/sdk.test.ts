import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { ListRootsRequestSchema, ProgressNotificationSchema, ResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { connectSdk1, connectSdk2 } from '../support/sdk-client.ts';
import { startEdge } from './edge.ts';

const OPTIONS = { timeout: 120_000 };

test('SDK client 1 gets answers, notifications and questions, and ends its session', OPTIONS, async () => {
  await using edge = await startEdge();
  const progress: number[] = [];
  {
    await using sdk = await connectSdk1(`${edge.url}/mcp`, { capabilities: { roots: {} } }, (client) => {
      client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: 'file:///a' }] }));
      client.setNotificationHandler(ProgressNotificationSchema, ({ params }) => {
        progress.push(params.progress);
      });
    });
    assert.deepEqual((await sdk.client.listTools()).tools, []);
    assert.deepEqual(await sdk.client.request({ method: 'count', params: { to: 3 } }, ResultSchema), { counted: 3 });
    assert.deepEqual(progress, [1, 2, 3]);
    assert.deepEqual(await sdk.client.request({ method: 'ask' }, ResultSchema), {
      answered: { roots: [{ uri: 'file:///a' }] },
    });
  }
  assert.equal(edge.front.sessions.size, 0);
});

test('SDK client 2 initializes and gets answers', OPTIONS, async () => {
  await using edge = await startEdge();
  await using sdk = await connectSdk2(`${edge.url}/mcp`, { mode: 'legacy' });
  assert.deepEqual((await sdk.client.listTools()).tools, []);
});

test('the SDK client of 2024-11-05 initializes and gets answers', OPTIONS, async () => {
  await using edge = await startEdge();
  const client = new Client({ name: 'old', version: '1' }, { capabilities: {} });
  await client.connect(new SSEClientTransport(new URL(`${edge.url}/sse`)));
  assert.deepEqual((await client.listTools()).tools, []);
  assert.deepEqual(await client.request({ method: 'count', params: { to: 2 } }, ResultSchema), { counted: 2 });
  await client.close();
});

/** A TCP proxy whose connections can be cut. */
async function startWire(port: number) {
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(port, '127.0.0.1');
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.on('close', () => sockets.delete(from) && to.destroy());
      from.on('error', () => undefined);
      from.pipe(to);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    port: typeof address === 'object' ? address?.port : undefined,
    cut,
    [Symbol.asyncDispose]: async () => {
      cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

// REL-05 T-030
test('the SDK client gets the answer of a call whose connection was cut', OPTIONS, async () => {
  await using edge = await startEdge();
  await using wire = await startWire(edge.port);
  await using sdk = await connectSdk1(`http://127.0.0.1:${wire.port}/mcp`);
  const progress: number[] = [];
  const { promise: notified, resolve } = Promise.withResolvers<void>();
  sdk.client.setNotificationHandler(ProgressNotificationSchema, ({ params }) => {
    progress.push(params.progress);
    if (params.progress === 3) resolve();
  });
  const answer = sdk.client.request({ method: 'count', params: { to: 3, gate: 'g' } }, ResultSchema);
  await notified;
  wire.cut();
  edge.front.release('g');
  assert.deepEqual(await answer, { counted: 3 });
  assert.deepEqual(progress, [1, 2, 3]);
});
