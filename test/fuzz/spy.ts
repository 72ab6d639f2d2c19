import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { listenLocally } from '../support/local-port.ts';

/** A message that reached an upstream. */
export interface Spied {
  readonly upstream: string;
  readonly body: string;
}

type Members = Readonly<Record<string, unknown>>;

/** Tools of a spy. The access policy of the gateway denies `hidden`, and `echo` with `deny: true`. */
const TOOLS = ['echo', 'hidden'].map((name) => ({ name, inputSchema: { type: 'object' } }));
const RESOURCES = ['file:///pub/a', 'file:///secret/a'].map((uri) => ({ uri, name: uri }));
const TEMPLATES = [{ uriTemplate: 'file:///{+path}', name: 'any' }];

/** An upstream over HTTP that answers everything and records what it gets, byte for byte. */
export class Spy implements AsyncDisposable {
  readonly id: string;
  readonly url: string;
  readonly #isModern: boolean;
  readonly #close: () => Promise<void>;
  #seen: Spied[] = [];

  private constructor(id: string, isModern: boolean, port: number, close: () => Promise<void>) {
    this.id = id;
    this.#isModern = isModern;
    this.url = `http://127.0.0.1:${port}/mcp`;
    this.#close = close;
  }

  static async start(id: string, era: 'legacy' | 'modern'): Promise<Spy> {
    let spy: Spy | undefined;
    const server = createServer((request, response) => {
      spy?.answer(request, response).catch(() => response.destroy());
    });
    const port = await listenLocally(server);
    spy = new Spy(id, era === 'modern', port, async () => {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    });
    return spy;
  }

  /** Returns the messages since the last call. */
  take(): readonly Spied[] {
    const seen = this.#seen;
    this.#seen = [];
    return seen;
  }

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) if (chunk instanceof Buffer) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString('utf8');
    if (request.method !== 'POST') return void response.writeHead(405).end();
    this.#seen.push({ upstream: this.id, body });
    const message = membersOf(parsed(body));
    if (message['id'] === undefined) return void response.writeHead(202).end();
    const { method, params, id } = message;
    const result = this.#resultOf(String(method), membersOf(params));
    const error = { code: -32601, message: 'Method not found' };
    const answer = { jsonrpc: '2.0', id, ...(result === undefined ? { error } : { result }) };
    const status = result === undefined && this.#isModern ? 404 : 200;
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
  }

  #resultOf(method: string, params: Members): Members | undefined {
    const whole = this.#isModern ? { resultType: 'complete' } : {};
    const caching = this.#isModern ? { ttlMs: 600_000, cacheScope: 'private' } : {};
    const capabilities = { tools: {}, resources: {}, prompts: {}, completions: {} };
    const serverInfo = { name: 'spy', version: '1' };
    switch (method) {
      case 'server/discover': {
        if (!this.#isModern) return undefined;
        const _meta = { 'io.modelcontextprotocol/serverInfo': serverInfo };
        return { ...whole, ...caching, supportedVersions: ['2026-07-28'], capabilities, _meta };
      }
      case 'initialize':
        return this.#isModern ? undefined : { protocolVersion: '2025-11-25', capabilities, serverInfo };
      case 'tools/list':
        return { ...whole, ...caching, tools: TOOLS };
      case 'resources/list':
        return { ...whole, ...caching, resources: RESOURCES };
      case 'resources/templates/list':
        return { ...whole, ...caching, resourceTemplates: TEMPLATES };
      case 'prompts/list':
        return { ...whole, ...caching, prompts: [{ name: 'greet' }] };
      case 'tools/call':
        return { ...whole, content: [{ type: 'text', text: JSON.stringify(params['arguments'] ?? null) }] };
      case 'resources/read':
        return { ...whole, contents: [{ uri: params['uri'], text: 'read' }] };
      case 'prompts/get':
        return { ...whole, messages: [] };
      case 'completion/complete':
        return { ...whole, completion: { values: [] } };
      case 'ping':
        return {};
      default:
        return undefined;
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#close();
  }
}

/** Returns the value of a JSON text; undefined if it is none. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (thrown) {
    if (thrown instanceof SyntaxError) return undefined;
    throw thrown;
  }
}

/** Returns the members of an object; none of anything else. */
export function membersOf(value: unknown): Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {};
}
