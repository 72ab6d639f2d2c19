import assert from 'node:assert/strict';
import { mkdtempDisposable, readFile } from 'node:fs/promises';
import { createServer, request as send } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { listenLocally } from '../support/local-port.ts';
import { startGateway } from '../support/gateway.ts';
import { openGateway } from '../support/open-gateway.ts';
import { SessionServer } from '../support/session-server.ts';
import { waitUntil } from '../support/wait-until.ts';

const CALLS = [1, 2, 3, 4];

/** A load balancer that leads a client to the server that its cookie names, and one without a cookie to the next server. */
class StickyBalancer implements AsyncDisposable {
  readonly url: string;
  readonly #close: () => void;

  private constructor(url: string, close: () => void) {
    this.url = url;
    this.#close = close;
  }

  static async start(servers: readonly SessionServer[]): Promise<StickyBalancer> {
    let next = 0;
    const listener = createServer((incoming, response) => {
      const { cookie = '' } = incoming.headers;
      const named = /^node=(\d+)$/.exec(cookie)?.[1];
      const node = Number(named ?? next++ % servers.length);
      const stick = named === undefined ? { 'set-cookie': `node=${node}; path=/; HttpOnly` } : {};
      const { method, headers } = incoming;
      const outgoing = send(servers[node]?.url ?? '', { method, headers }, (answer) => {
        response.writeHead(answer.statusCode ?? 500, { ...answer.headers, ...stick });
        answer.pipe(response);
      });
      outgoing.on('error', () => response.destroy());
      response.on('close', () => outgoing.destroy());
      incoming.pipe(outgoing);
    });
    const port = await listenLocally(listener);
    return new StickyBalancer(`http://127.0.0.1:${port}/mcp`, () => {
      listener.closeAllConnections();
      listener.close();
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#close();
    return Promise.resolve();
  }
}

/** Calls the counter of a session several times at once. Resolves with what it has counted. */
async function counts(endpoint: string, client: string, name = 'count'): Promise<readonly (string | undefined)[]> {
  const call = (id: number) => post(endpoint, rpc(id, 'tools/call', { name, arguments: {} }), client);
  const answers = await Promise.all(CALLS.map(call));
  return answers.map((answer) => /"text":"(\d+)"/.exec(JSON.stringify(messagesOf(answer)))?.[1]);
}

test('a load balancer with cookies leads each session to its server', { timeout: 120_000 }, async () => {
  await using one = await SessionServer.start();
  await using other = await SessionServer.start();
  await using balancer = await StickyBalancer.start([one, other]);
  await using gateway = await openGateway({ remote: { url: balancer.url } });
  const clients = [await initialize(gateway.url), await initialize(gateway.url), await initialize(gateway.url)];
  for (const client of clients) {
    const got = await counts(gateway.url, client, 'remote__count');
    assert.deepEqual(new Set(got), new Set(CALLS.map(String)));
  }
  // The cookie of one connection is on no other one, or all of them would be at one server.
  for (const { sessions } of [one, other]) assert.ok(sessions.some(({ count }) => count > 0));
});

test('behind such a balancer, sessions go on after a restart', { timeout: 120_000 }, async () => {
  await using one = await SessionServer.start();
  await using other = await SessionServer.start();
  await using balancer = await StickyBalancer.start([one, other]);
  await using dir = await mkdtempDisposable(join(tmpdir(), 'linkspan-sticky-'));
  const file = { mcpServers: { remote: { url: balancer.url } } };
  const clients: string[] = [];
  const areStored = async () => {
    const records = await readFile(join(dir.path, 'state', 'sessions.jsonl'), 'utf8');
    return records.split('"attach"').length > clients.length;
  };
  {
    await using gateway = await startGateway(file, { dir: dir.path });
    const endpoint = gateway.endpoint('remote');
    for (const _ of CALLS) {
      const client = await initialize(endpoint);
      clients.push(client);
      await counts(endpoint, client);
    }
    await waitUntil(areStored);
  }
  await using gateway = await startGateway(file, { dir: dir.path });
  for (const client of clients) {
    const got = await counts(gateway.endpoint('remote'), client);
    assert.deepEqual(new Set(got), new Set(CALLS.map((n) => String(CALLS.length + n))));
  }
});
