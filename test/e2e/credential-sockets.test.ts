/** Tests the credentials on each socket from the gateway to an HTTP upstream, as the server sees them. */
import assert from 'node:assert/strict';
import { createHash, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { initialize, post, rpc } from '../downstream/client.ts';
import { modernPost } from '../support/modern-wire.ts';
import { openGateway } from '../support/open-gateway.ts';

const TIMEOUT = { timeout: 120_000 };
const ROUNDS = 20;
const KEYS = { ada: 'a-key-of-ada-0123456789abcdef', bob: 'a-key-of-bob-0123456789abcdef' } as const;
const PEOPLE = ['ada', 'bob'] as const;
const apiKeys = PEOPLE.map((name) => ({ name, sha256: createHash('sha256').update(KEYS[name]).digest('hex') }));
const as = (name: keyof typeof KEYS) => ({ authorization: `Bearer ${KEYS[name]}` });

/** The credentials of each upstream at the same server. */
const ACCOUNTS = { sales: 'Bearer of-sales', support: 'Bearer of-support', anyone: undefined } as const;
const UPSTREAMS = ['sales', 'support', 'anyone'] as const;

interface AccountServer extends AsyncDisposable {
  readonly url: string;
  /** The credentials of each request, by socket. */
  readonly bySocket: ReadonlyMap<Socket, readonly (string | undefined)[]>;
}

function resultOf(method: unknown, authorization: string | undefined): object {
  if (method === 'tools/call') return { content: [{ type: 'text', text: `account ${authorization}` }] };
  const tools = { tools: [{ name: 'whoami', inputSchema: { type: 'object' } }] };
  if (method === 'tools/list') return tools;
  const capabilities = { tools: {} };
  const serverInfo = { name: 'accounts', version: '1' };
  if (method === 'initialize') return { protocolVersion: '2025-11-25', capabilities, serverInfo };
  return { supportedVersions: ['2026-07-28'], capabilities };
}

/** Starts a server of one era that keeps its connections alive, and answers with the credentials of the request. */
async function accountServer(era: 'legacy' | 'modern'): Promise<AccountServer> {
  const bySocket = new Map<Socket, (string | undefined)[]>();
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const { authorization } = request.headers;
    const seen = bySocket.get(request.socket) ?? [];
    bySocket.set(request.socket, seen);
    seen.push(authorization);
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += String(chunk);
    if (request.method !== 'POST') return response.writeHead(request.method === 'DELETE' ? 204 : 405).end();
    const { id, method }: { id?: unknown; method?: unknown } = JSON.parse(body);
    if (id === undefined) return response.writeHead(202).end();
    const stamp = era === 'modern' ? { resultType: 'complete', ttlMs: 0, cacheScope: 'private' } : {};
    const result = { ...stamp, ...resultOf(method, authorization) };
    if (method === 'initialize') response.setHeader('mcp-session-id', randomUUID());
    response.writeHead(200, { 'content-type': 'application/json' });
    return response.end(JSON.stringify({ jsonrpc: '2.0', id, result }));
  };
  const server = createServer((request, response) => {
    answer(request, response).catch((thrown: unknown) =>
      response.destroy(new Error('not answered', { cause: thrown })),
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  return {
    url: `http://127.0.0.1:${address.port}/mcp`,
    bySocket,
    [Symbol.asyncDispose]: async () => {
      server.close();
      server.closeAllConnections();
      await Promise.resolve();
    },
  };
}

for (const era of ['legacy', 'modern'] as const) {
  // N-20
  test(`no socket to a ${era} upstream carries requests of two credentials`, TIMEOUT, async () => {
    await using server = await accountServer(era);
    const entries = UPSTREAMS.map((id) => {
      const authorization = ACCOUNTS[id];
      return [id, { url: server.url, era, headers: authorization === undefined ? {} : { authorization } }] as const;
    });
    await using gateway = await openGateway(Object.fromEntries(entries), { auth: { apiKeys } });
    const sessions = await Promise.all(PEOPLE.map((name) => initialize(gateway.url, '2025-11-25', as(name))));
    for (let round = 0; round < ROUNDS; round++) {
      // One after the other, so that each request finds the idle sockets of all others.
      for (const id of UPSTREAMS) {
        const params = { name: `${id}__whoami`, arguments: {} };
        for (const [n, name] of PEOPLE.entries()) {
          const old = await post(gateway.url, rpc(round + 1, 'tools/call', params), sessions[n], as(name));
          const { text } = await modernPost(gateway.url, 'tools/call', params, { headers: as(name) });
          for (const shown of [old.text, text]) assert.ok(shown.includes(`account ${ACCOUNTS[id]}`), shown);
        }
      }
    }
    const used = [...server.bySocket.values()];
    for (const seen of used) assert.equal(new Set(seen).size, 1, JSON.stringify(seen));
    assert.ok(
      used.some((seen) => seen.length >= ROUNDS),
      'no socket was used again',
    );
    const credentials = new Set(used.flat());
    assert.deepEqual(credentials, new Set(Object.values(ACCOUNTS)), 'a key of a client, or none of an upstream');
  });
}
