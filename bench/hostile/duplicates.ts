import { randomUUID } from 'node:crypto';
import { createServer, type ServerResponse } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { eventOf, beginEvents, FixtureServer, textResult, toolNamed } from '../fixture-server.ts';
import { listenOnLoopback } from '../loopback.ts';
import { type McpClient, member, type Reply } from '../mcp-client.ts';
import type { Figures } from '../sheet.ts';
import type { Bench, Point, Series } from '../suite.ts';
import { type Arena, underAttack } from './arena.ts';
import { bodyWithKeys } from './bodies.ts';
import { echoAnswer } from './echo.ts';

const TRIALS = 8;
/** Long enough to read the head and most of the body. */
const READ_MS = 30;
const KEYS = 330_000;
/** A short timeout for calls whose answer is lost to another call. */
const CALL = { call: '2s' };

/** Returns the id that another session will use next if it can be guessed; else the given id. */
function guessedId(lastIds: ReadonlyMap<string, unknown>, session: string, id: unknown): unknown {
  const [other] = [...lastIds].flatMap(([key, last]) => (key !== session && typeof last === 'number' ? [last] : []));
  return other === undefined ? id : other + 1;
}

/** Starts a server that answers twice on the same socket, the second time with the id of the attacked request. */
function startHttp(afterMs: number): Promise<FixtureServer> {
  const lastIds = new Map<string, unknown>();
  return FixtureServer.start({
    capabilities: { tools: {} },
    answer: ({ id, method, params, response }) => {
      if (method === 'tools/list') return { tools: [toolNamed('echo')] };
      const session = String(response.req.headers['mcp-session-id']);
      lastIds.set(session, id);
      const result = textResult(String(member(member(params, 'arguments'), 'nonce')));
      const again = JSON.stringify({ jsonrpc: '2.0', id: guessedId(lastIds, session, id), result });
      const raw = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${again.length}\r\n\r\n${again}`;
      const { socket } = response;
      const text = JSON.stringify({ jsonrpc: '2.0', id, result });
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length }).end(text);
      setTimeout(() => socket?.write(raw), afterMs);
      return undefined;
    },
  });
}

/** Starts a server of HTTP+SSE (2024-11-05) that sends each response twice. */
async function startSse(afterMs: number): Promise<AsyncDisposable & { readonly url: string }> {
  const streams = new Map<string, ServerResponse>();
  const server = createServer((incoming, response) => {
    const { pathname, searchParams } = new URL(incoming.url ?? '/', 'http://localhost');
    if (incoming.method === 'GET' && pathname === '/sse') {
      const id = randomUUID();
      streams.set(id, response);
      beginEvents(response);
      response.write(`event: endpoint\ndata: /messages?id=${id}\n\n`);
      return;
    }
    if (incoming.method !== 'POST' || pathname !== '/messages') {
      response.writeHead(405).end();
      return;
    }
    let body = '';
    incoming.setEncoding('utf8').on('data', (text: string) => (body += text));
    incoming.on('end', () => {
      response.writeHead(202).end();
      const answer = echoAnswer(JSON.parse(body));
      const stream = streams.get(searchParams.get('id') ?? '');
      if (answer === undefined || stream === undefined) return;
      stream.write(eventOf(answer));
      setTimeout(() => stream.write(eventOf(answer)), afterMs);
    });
  });
  const port = await listenOnLoopback(server);
  return {
    url: `http://127.0.0.1:${port}/sse`,
    [Symbol.asyncDispose]: async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      server.close(() => resolve());
      server.closeAllConnections();
      await promise;
    },
  };
}

function nonceIn({ messages }: Reply): unknown {
  const content = member(messages.at(-1)?.result, 'content');
  return Array.isArray(content) ? member(content[0], 'text') : undefined;
}

function echo(client: McpClient, nonce: string): Promise<Reply> {
  return client.request('tools/call', { name: 'hostile__echo', arguments: { nonce } });
}

/**
 * Repeats: one user sends a call. While the gateway is busy with a large body, the request of another user and the
 * second
 * copy of the first user's answer arrive.
 */
async function mixUp(arena: Arena): Promise<Figures> {
  const [first, second, busy] = [await arena.open(), await arena.open(), await arena.open()];
  const large = bodyWithKeys(KEYS);
  let wrong = 0;
  let missing = 0;
  for (let trial = 0; trial < TRIALS; trial++) {
    const blocking = busy.begin(large.length);
    const answered = busy.reply(blocking);
    blocking.write(large.subarray(0, -1));
    await delay(READ_MS);
    const [mine, theirs] = [randomUUID(), randomUUID()];
    if (nonceIn(await echo(first, mine)) !== mine) wrong++;
    blocking.end(large.subarray(-1));
    await delay(1);
    const nonce = nonceIn(await echo(second, theirs));
    if (nonce === undefined) missing++;
    else if (nonce !== theirs) wrong++;
    await answered;
    await delay(READ_MS);
  }
  return { calls: TRIALS * 2, 'to the wrong party': wrong, unanswered: missing };
}

const HTTP_DELAYS_MS = [5, 25];
const OTHER_DELAY_MS = 5;
const STDIO_SCRIPT = fileURLToPath(new URL('upstream-twice.ts', import.meta.url));

function httpPoint(afterMs: number): Point {
  return {
    label: `http, again after ${afterMs} ms`,
    measure: async (bench: Bench) => {
      await using upstream = await startHttp(afterMs);
      return await underAttack(bench, { servers: { hostile: { url: upstream.url, timeouts: CALL } }, attack: mixUp });
    },
  };
}

const OTHER_POINTS: readonly Point[] = [
  {
    label: 'sse, shared',
    measure: async (bench) => {
      await using upstream = await startSse(OTHER_DELAY_MS);
      const hostile = { type: 'sse', url: upstream.url, isolation: 'shared', timeouts: CALL };
      return await underAttack(bench, { servers: { hostile }, attack: mixUp });
    },
  },
  {
    label: 'stdio, shared',
    measure: (bench) => {
      const hostile = {
        command: process.execPath,
        args: [STDIO_SCRIPT, String(OTHER_DELAY_MS)],
        isolation: 'shared',
        timeouts: CALL,
      };
      return underAttack(bench, { servers: { hostile }, attack: mixUp });
    },
  },
];

const POINTS = [...HTTP_DELAYS_MS.map(httpPoint), ...OTHER_POINTS];

export const DUPLICATES: Series = {
  id: 'N-20',
  title: 'an upstream sends each response twice',
  points: POINTS,
  bounds: POINTS.map(({ label }) => ({ point: label, column: 'to the wrong party', atMost: 0 })),
};
