import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { test } from 'node:test';
import * as z from 'zod';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const MODERN = '2026-07-28';

const asked = z.object({
  id: z.union([z.string(), z.number()]),
  method: z.string(),
  params: z.object({ uri: z.string().optional() }).loose().optional(),
});

/** A server of 2026-07-28 that declares how long its resources may be cached, and counts how often they are read. */
class Library implements AsyncDisposable {
  readonly reads: string[] = [];
  readonly #server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => this.#answer(asked.parse(JSON.parse(body)), response));
  });
  #listening: { readonly id: string | number; readonly response: ServerResponse } | undefined;

  static async open(): Promise<Library> {
    const library = new Library();
    library.#server.listen(0, '127.0.0.1');
    await once(library.#server, 'listening');
    return library;
  }

  get url(): string {
    const address = this.#server.address();
    return `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}/mcp`;
  }

  get isReceived(): boolean {
    return this.#listening !== undefined;
  }

  changed(uri: string): void {
    const { id, response } = this.#listening ?? assert.fail('nobody listens');
    const params = { uri, _meta: { 'io.modelcontextprotocol/subscriptionId': id } };
    response.write(
      `data: ${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/resources/updated', params })}\n\n`,
    );
  }

  #answer({ id, method, params }: z.infer<typeof asked>, response: ServerResponse): void {
    const result = (value: object) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ jsonrpc: '2.0', id, result: { resultType: 'complete', ...value } }));
    };
    const caching = { ttlMs: 60_000, cacheScope: 'public' };
    switch (method) {
      case 'server/discover': {
        const capabilities = { resources: { listChanged: true, subscribe: true } };
        return result({ supportedVersions: [MODERN], capabilities, ...caching });
      }
      case 'resources/list': {
        const names = ['public', 'private', 'never'];
        return result({ resources: names.map((name) => ({ uri: `lib://${name}`, name })), ...caching });
      }
      case 'resources/templates/list':
        return result({ resourceTemplates: [], ...caching });
      case 'resources/read': {
        const uri = params?.uri ?? '';
        this.reads.push(uri);
        const contents = [{ uri, text: `${uri} for the ${this.reads.length}th time` }];
        const ttlMs = uri === 'lib://never' ? 0 : 60_000;
        return result({ contents, ttlMs, cacheScope: uri === 'lib://public' ? 'public' : 'private' });
      }
      case 'subscriptions/listen': {
        this.#listening = { id, response };
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        const _meta = { 'io.modelcontextprotocol/subscriptionId': id };
        const notifications = { resourcesListChanged: true };
        const acknowledged = {
          jsonrpc: '2.0',
          method: 'notifications/subscriptions/acknowledged',
          params: { _meta, notifications },
        };
        response.write(`data: ${JSON.stringify(acknowledged)}\n\n`);
        return undefined;
      }
      default:
        response.writeHead(404, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32601, message: method } }));
        return undefined;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

test('a cached resource of a replaced upstream is read again', TIMEOUT, async () => {
  await using library = await Library.open();
  const file = (query: string) => ({ mcpServers: { lib: { url: `${library.url}${query}`, prefix: '' } } });
  await using gateway = await startGateway(file(''));
  const endpoint = gateway.endpoint();
  const session = await initialize(endpoint);
  const read = () => post(endpoint, rpc(1, 'resources/read', { uri: 'lib://public' }), session);
  await read();
  await read();
  assert.equal(library.reads.length, 1);
  await gateway.configure(file('?v=2'));
  await gateway.waitForLog((line) => (line.includes('"config applied"') ? true : undefined));
  await read();
  assert.equal(library.reads.length, 2);
});

// M-015
test('a resource is cached as its server declares, until it changes', TIMEOUT, async () => {
  await using library = await Library.open();
  await using gateway = await startGateway({ mcpServers: { lib: { url: library.url, prefix: '' } } });
  const endpoint = gateway.endpoint();
  const withRoots = await initialize(endpoint, '2025-11-25', {}, { roots: {} });
  const without = await initialize(endpoint);
  const read = async (session: string, name: string) =>
    JSON.stringify(
      messagesOf(await post(endpoint, rpc(name, 'resources/read', { uri: `lib://${name}` }), session))[0]?.result,
    );

  const first = await read(without, 'public');
  // The stream with its changes opens in the background.
  await waitUntil(() => library.isReceived);
  assert.equal(first, await read(withRoots, 'public'));
  assert.equal(await read(without, 'private'), await read(without, 'private'));
  await read(withRoots, 'private');
  await read(without, 'never');
  await read(without, 'never');
  // A client with other capabilities may get another private resource, so it shares no cached one.
  assert.deepEqual(library.reads.toSorted(), [
    'lib://never',
    'lib://never',
    'lib://private',
    'lib://private',
    'lib://public',
  ]);

  library.changed('lib://public');
  const before = library.reads.length;
  await waitUntil(async () => {
    await read(without, 'public');
    return library.reads.length > before;
  });
  assert.equal(library.reads.length, before + 1);
});
