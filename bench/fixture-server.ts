import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { listenOnLoopback } from './loopback.ts';
import { member, type Message } from './mcp-client.ts';

/** A request that the fixture answers. */
export interface Call {
  readonly id: unknown;
  readonly method: string;
  readonly params: unknown;
  readonly response: ServerResponse;
}

export interface FixtureOptions {
  readonly capabilities: object;
  /** Returns the result. Returns undefined if it wrote the response itself. */
  answer(call: Call): object | undefined;
  /** True if the server is of 2026-07-28 instead of 2025-11-25. */
  readonly isModern?: boolean;
  /** Called with the response to a GET, as an event stream. Without it, GET is refused. */
  onStream?(response: ServerResponse): void;
  /** Called with a response of the client to a request of this server. */
  onResponse?(message: Message): void;
}

const SERVER_INFO = { name: 'bench-fixture', version: '1.0.0' };
const EVENTS = { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' };

/** Returns one event. */
export function eventOf(message: object): string {
  return `event: message\ndata: ${JSON.stringify(message)}\n\n`;
}

/** Begins an event stream in answer to a request. */
export function beginEvents(response: ServerResponse): void {
  response.writeHead(200, EVENTS);
}

async function bodyOf(incoming: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(Buffer.from(chunk));
  return JSON.parse(Buffer.concat(chunks).toString());
}

/** An MCP server over Streamable HTTP in this process, for upstreams whose speed is not measured. */
export class FixtureServer implements AsyncDisposable {
  readonly url: string;
  readonly #server: Server;
  readonly #sockets: Set<Socket>;

  private constructor(server: Server, sockets: Set<Socket>, port: number) {
    this.#server = server;
    this.#sockets = sockets;
    this.url = `http://127.0.0.1:${port}/mcp`;
  }

  static async start(options: FixtureOptions): Promise<FixtureServer> {
    const sockets = new Set<Socket>();
    let sessions = 0;
    const server = createServer((incoming, response) => {
      if (incoming.method === 'GET' && options.onStream !== undefined) {
        beginEvents(response);
        response.flushHeaders();
        options.onStream(response);
      } else if (incoming.method === 'POST') {
        post(incoming, response, options, () => `fixture-${++sessions}`).catch(() => response.destroy());
      } else response.writeHead(incoming.method === 'DELETE' ? 200 : 405).end();
    });
    server.on('connection', (socket) => {
      sockets.add(socket);
      socket.once('close', () => sockets.delete(socket));
      // The gateway may be killed during a write.
      socket.on('error', () => socket.destroy());
    });
    server.keepAliveTimeout = 0;
    return new FixtureServer(server, sockets, await listenOnLoopback(server));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#server.close(() => resolve());
    for (const socket of this.#sockets) socket.destroy();
    await promise;
  }
}

function sendJson(response: ServerResponse, message: object, headers: Readonly<Record<string, string>> = {}): void {
  const body = JSON.stringify(message);
  response.writeHead(200, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    ...headers,
  });
  response.end(body);
}

async function post(
  incoming: IncomingMessage,
  response: ServerResponse,
  options: FixtureOptions,
  nextSession: () => string,
): Promise<void> {
  const message = await bodyOf(incoming);
  const [id, method, params] = [member(message, 'id'), member(message, 'method'), member(message, 'params')];
  if (id === undefined || typeof method !== 'string') {
    if (id !== undefined) options.onResponse?.({ id, result: member(message, 'result') });
    response.writeHead(202).end();
    return;
  }
  const { capabilities, isModern = false } = options;
  const opening = isModern ? 'server/discover' : 'initialize';
  if (method === 'ping') sendJson(response, { jsonrpc: '2.0', id, result: {} });
  else if (method === opening) {
    const result = isModern
      ? { supportedVersions: ['2026-07-28'], capabilities, ...MODERN }
      : { protocolVersion: '2025-11-25', capabilities, serverInfo: SERVER_INFO };
    sendJson(response, { jsonrpc: '2.0', id, result }, isModern ? {} : { 'mcp-session-id': nextSession() });
  } else if (method === 'server/discover' || method === 'initialize') {
    sendJson(response, { jsonrpc: '2.0', id, error: { code: -32601, message: `Method not found: ${method}` } });
  } else {
    const result = options.answer({ id, method, params, response });
    if (result !== undefined)
      sendJson(response, { jsonrpc: '2.0', id, result: isModern ? { ...MODERN, ...result } : result });
  }
}

const MODERN = {
  resultType: 'complete',
  ttlMs: 300_000,
  cacheScope: 'public',
  _meta: { 'io.modelcontextprotocol/serverInfo': SERVER_INFO },
};

/** Returns a tool that takes an object. */
export function toolNamed(name: string): object {
  return { name, description: `The tool ${name} of a bench.`, inputSchema: { type: 'object' } };
}

/** Returns the result of a tool that answers with this text. */
export function textResult(text: string): object {
  return { content: [{ type: 'text', text }] };
}
