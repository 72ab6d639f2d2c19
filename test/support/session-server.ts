import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { SetLevelRequestSchema, SubscribeRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { listenLocally } from './local-port.ts';

export const WATCHED = 'demo://watched';

/** One session of a {@link SessionServer}. */
export interface ServedSession {
  readonly id: string;
  readonly server: McpServer;
  /** Methods and statuses of its HTTP requests, such as `POST tools/call`. */
  readonly requests: string[];
  readonly subscribed: string[];
  readonly levels: string[];
  /** The number of calls of `count`. */
  count: number;
}

/**
 * A remote server of the TypeScript SDK 1.x with sessions, as its users write it. `count` counts the calls of its session, `add` adds a tool to
 * the session.
 */
export class SessionServer implements AsyncDisposable {
  /** All sessions, ended ones too, in order. */
  readonly sessions: ServedSession[] = [];
  readonly url: string;
  /** Status of all answers, instead of serving, or `cut` to close each connection; undefined to serve. */
  outage: number | 'cut' | undefined;
  /** True to refuse further sessions with 503. */
  isFull = false;
  readonly #transports: Map<string, StreamableHTTPServerTransport>;
  readonly #close: () => Promise<void>;

  private constructor(url: string, transports: Map<string, StreamableHTTPServerTransport>, close: () => Promise<void>) {
    this.url = url;
    this.#transports = transports;
    this.#close = close;
  }

  static async start(): Promise<SessionServer> {
    const transports = new Map<string, StreamableHTTPServerTransport>();
    const listener = createServer((request, response) => {
      served.#answer(request, response).catch(() => response.destroy());
    });
    const port = await listenLocally(listener);
    const served = new SessionServer(`http://127.0.0.1:${port}/mcp`, transports, async () => {
      listener.closeAllConnections();
      listener.close();
      await once(listener, 'close');
    });
    return served;
  }

  /** Forgets all sessions, as a restart does. */
  async forget(): Promise<void> {
    const transports = [...this.#transports.values()];
    this.#transports.clear();
    await Promise.all(transports.map((transport) => transport.close()));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const id = request.headers['mcp-session-id'];
    let text = '';
    for await (const chunk of request.setEncoding('utf8')) text += String(chunk);
    const body: unknown = text === '' ? undefined : JSON.parse(text);
    const session = this.sessions.find((each) => each.id === id);
    session?.requests.push(`${request.method ?? ''} ${methodOf(body)}`.trim());
    const transport = this.#transports.get(String(id));
    if (this.outage === 'cut') response.destroy();
    else if (this.outage !== undefined) response.writeHead(this.outage).end();
    else if (transport !== undefined) await transport.handleRequest(request, response, body);
    else if (id !== undefined) response.writeHead(404).end('Session not found');
    else if (this.isFull) response.writeHead(503).end();
    else if (methodOf(body) === 'initialize') await (await this.#open()).handleRequest(request, response, body);
    else response.writeHead(400).end();
  }

  async #open(): Promise<StreamableHTTPServerTransport> {
    const capabilities = { logging: {}, resources: { subscribe: true }, tools: { listChanged: true } };
    const server = new McpServer({ name: 'sessions', version: '1.0.0' }, { instructions: 'Count.', capabilities });
    const session: ServedSession = { id: randomUUID(), server, requests: [], subscribed: [], levels: [], count: 0 };
    const textResult = (text: string) => ({ content: [{ type: 'text' as const, text }] });
    server.registerTool('count', {}, () => textResult(String(++session.count)));
    server.registerTool('add', {}, () => {
      server.registerTool('added', {}, () => textResult('added'));
      return textResult('ok');
    });
    server.registerResource('watched', WATCHED, {}, ({ href }) => ({ contents: [{ uri: href, text: 'seen' }] }));
    server.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
      session.subscribed.push(params.uri);
      return {};
    });
    server.server.setRequestHandler(SetLevelRequestSchema, ({ params }) => {
      session.levels.push(params.level);
      return {};
    });
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => session.id,
      onsessioninitialized: (given) => void this.#transports.set(given, transport),
      onsessionclosed: (given) => void this.#transports.delete(given),
    });
    this.sessions.push(session);
    await server.connect(transport);
    return transport;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.forget();
    await this.#close();
  }
}

function methodOf(body: unknown): string {
  return typeof body === 'object' && body !== null && 'method' in body ? String(body.method) : '';
}
