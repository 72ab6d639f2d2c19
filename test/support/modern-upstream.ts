import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import { META } from '../../src/protocol/meta.ts';
import { MODERN } from '../../src/protocol/revisions.ts';

const UNTIL_MS = 5_000;

type Params = Readonly<Record<string, unknown>>;

/** One request as a scripted server of 2026-07-28 got it, and what it says to it. */
export class Served {
  readonly id: unknown;
  readonly method: string;
  readonly params: Params;
  readonly headers: IncomingHttpHeaders;
  isGone = false;
  readonly #response: ServerResponse;

  constructor(
    message: { readonly id: unknown; readonly method: string; readonly params?: Params },
    headers: IncomingHttpHeaders,
    response: ServerResponse,
  ) {
    this.id = message.id;
    this.method = message.method;
    this.params = message.params ?? {};
    this.headers = headers;
    this.#response = response;
  }

  /** Of its `_meta`. */
  meta(key: string): unknown {
    const { _meta } = this.params;
    return typeof _meta === 'object' && _meta !== null ? Object.getOwnPropertyDescriptor(_meta, key)?.value : undefined;
  }

  notify(method: string, params: object): void {
    this.#event({ jsonrpc: '2.0', method, params });
  }

  result(value: object): void {
    this.#end({ jsonrpc: '2.0', id: this.id, result: { resultType: 'complete', ...value } });
  }

  error(code: number, message: string, data?: unknown): void {
    this.#end({ jsonrpc: '2.0', id: this.id, error: { code, message, data } }, code === -32601 ? 404 : 400);
  }

  /** Ends the stream in the middle. */
  breakOff(): void {
    this.#open();
    setImmediate(() => this.#response.destroy());
  }

  #open(): void {
    if (!this.#response.headersSent)
      this.#response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
  }

  #event(message: object): void {
    this.#open();
    this.#response.write(`data: ${JSON.stringify(message)}\n\n`);
  }

  #end(message: object, status = 200): void {
    if (!this.#response.headersSent) {
      this.#response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(message));
      return;
    }
    this.#event(message);
    this.#response.end();
  }
}

export interface ModernScript {
  readonly capabilities?: object;
  readonly tools?: () => readonly object[];
  readonly prompts?: readonly object[];
  readonly resources?: readonly object[];
  /** What is agreed to of a `subscriptions/listen`; everything unless given. */
  readonly honoured?: (filter: Params) => object;
  /** Called with whatever is neither a list nor `server/discover` nor `subscriptions/listen`. */
  readonly request?: (served: Served) => void;
}

const CACHING = { ttlMs: 0, cacheScope: 'private' };

/** A server of 2026-07-28 over HTTP, in this process, that does what a test says. */
export class ModernUpstream implements AsyncDisposable {
  readonly url: string;
  /** Every request so far, in order of arrival. */
  readonly served: Served[] = [];
  readonly #server: ReturnType<typeof createServer>;
  readonly #script: ModernScript;
  #waiting: (() => void)[] = [];

  private constructor(server: ReturnType<typeof createServer>, url: string, script: ModernScript) {
    this.#server = server;
    this.url = url;
    this.#script = script;
  }

  static async start(script: ModernScript = {}): Promise<ModernUpstream> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    assert.ok(typeof address === 'object' && address !== null);
    const upstream = new ModernUpstream(server, `http://127.0.0.1:${address.port}/mcp`, script);
    server.on('request', (request, response) => void upstream.#hear(request, response));
    return upstream;
  }

  /** What a config says of it. */
  get config() {
    return { target: { kind: 'http', url: this.url, headers: {} }, era: 'modern' } as const;
  }

  requests(method: string): Served[] {
    return this.served.filter((one) => one.method === method);
  }

  /** Those that are still open. */
  get listens(): Served[] {
    return this.requests('subscriptions/listen').filter(({ isGone }) => !isGone);
  }

  /** Resolves when `found` yields something, looking again whenever a request comes or goes. Bounded in time. */
  async until<T>(found: () => T | undefined): Promise<T> {
    const late = AbortSignal.timeout(UNTIL_MS);
    late.addEventListener('abort', () => this.#tell(), { once: true });
    for (;;) {
      const value = found();
      if (value !== undefined) return value;
      assert.ok(!late.aborted, `not within ${UNTIL_MS} ms: ${found.toString()}`);
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
      });
    }
  }

  #tell(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  async #hear(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = '';
    request.setEncoding('utf8');
    for await (const chunk of request) text += String(chunk);
    const served = new Served(JSON.parse(text), request.headers, response);
    response.once('close', () => {
      served.isGone = true;
      this.#tell();
    });
    this.served.push(served);
    this.#serve(served);
    this.#tell();
  }

  #serve(served: Served): void {
    const { capabilities, tools, prompts = [], resources = [], honoured = (filter) => filter, request } = this.#script;
    switch (served.method) {
      case 'server/discover': {
        const all = { tools: { listChanged: true }, prompts: {}, resources: { subscribe: true }, logging: {} };
        served.result({ supportedVersions: [MODERN], capabilities: capabilities ?? all, ...CACHING });
        return;
      }
      case 'tools/list':
        served.result({ tools: tools?.() ?? [{ name: 't', inputSchema: { type: 'object' } }], ...CACHING });
        return;
      case 'prompts/list':
        served.result({ prompts, ...CACHING });
        return;
      case 'resources/list':
        served.result({ resources, ...CACHING });
        return;
      case 'resources/templates/list':
        served.result({ resourceTemplates: [], ...CACHING });
        return;
      case 'subscriptions/listen': {
        const { notifications } = served.params;
        const agreed = honoured(JSON.parse(JSON.stringify(notifications ?? {})));
        const _meta = { [META.subscriptionId]: served.id };
        served.notify('notifications/subscriptions/acknowledged', { notifications: agreed, _meta });
        return;
      }
      default:
        if (request === undefined) served.result({});
        else request(served);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

export function textOf(text: string): object {
  return { content: [{ type: 'text', text }] };
}
