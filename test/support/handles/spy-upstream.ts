import type { ServerResponse } from 'node:http';
import { event, json, type Received, serve, stream, type Upstream } from '../../fixtures/servers/http-harness.ts';
import { waitUntil } from '../wait-until.ts';
import { type Members, membersOf } from '../members.ts';

/** Methods that the gateway sends by itself. All others are caused by clients. */
const OWN = /^(?:initialize|server\/discover|ping|notifications\/initialized|logging\/setLevel|.*\/list)$/;
const TOOLS = ['echo', 'hold', 'page', 'job'];
const TIMES = { createdAt: '2026-01-01T00:00:00Z', lastUpdatedAt: '2026-01-01T00:00:00Z' };

interface ServedSession {
  readonly id: string;
  standing: ServerResponse | undefined;
  readonly subscribed: Set<string>;
}

/** One call of the tool `hold`, which the test answers. */
export class HeldCall {
  readonly nonce: string;
  readonly #id: unknown;
  readonly #token: unknown;
  readonly #response: ServerResponse;
  #progress = 0;

  constructor(nonce: string, id: unknown, token: unknown, response: ServerResponse) {
    this.nonce = nonce;
    this.#id = id;
    this.#token = token;
    this.#response = response;
    stream(response);
  }

  /** True if the gateway has closed the stream of the call. */
  get isClosed(): boolean {
    return this.#response.closed;
  }

  progress(): void {
    this.#send({
      method: 'notifications/progress',
      params: { progressToken: this.#token, progress: ++this.#progress, message: this.nonce },
    });
  }

  /** Sends a question on the stream of the call, with this id at the upstream. */
  ask(id: string, method: string, params: Members): void {
    this.#send({ id, method, params });
  }

  finish(): void {
    this.#send({ id: this.#id, result: textOf({ nonce: this.nonce }) });
    this.#response.end();
  }

  #send(message: Members): void {
    this.#response.write(event(JSON.stringify({ jsonrpc: '2.0', ...message })));
  }
}

function textOf(value: Members): Members {
  return { content: [{ type: 'text', text: JSON.stringify(value) }] };
}

/**
 * A server of 2025-11-25 over Streamable HTTP with sessions, which records everything that it gets. `echo` answers at once, `hold` waits for the
 * test, `page` sends its caller to a page first, and `job` is a task.
 */
export class SpyUpstream implements AsyncDisposable {
  readonly #server: Upstream;
  readonly #sessions: Map<string, ServedSession>;
  readonly #held = new Map<string, HeldCall>();
  /** The sessions that were sent to a page, by the nonce of the call. */
  readonly #paged = new Map<string, ServedSession>();
  #runs = 0;

  private constructor(server: Upstream, sessions: Map<string, ServedSession>) {
    this.#server = server;
    this.#sessions = sessions;
  }

  static async start(): Promise<SpyUpstream> {
    const sessions = new Map<string, ServedSession>();
    const spy: SpyUpstream = new SpyUpstream(
      await serve((request, response) => spy.#answer(request, response)),
      sessions,
    );
    return spy;
  }

  get url(): string {
    return this.#server.url;
  }

  /** The bodies of the messages that clients have caused. */
  get caused(): readonly string[] {
    return this.#server.received.items
      .filter(({ method, rpc }) => method === 'POST' && !OWN.test(rpc ?? ''))
      .map(({ body }) => body);
  }

  /** Resolves when clients have caused a message like this. */
  async until(holds: (body: string) => boolean): Promise<void> {
    await waitUntil(() => this.caused.some(holds));
  }

  /** Resolves with the call of this nonce when it has arrived. */
  async held(nonce: string): Promise<HeldCall> {
    await waitUntil(() => this.#held.has(nonce));
    const call = this.#held.get(nonce);
    if (call === undefined) throw new Error(`no call ${nonce}`);
    return call;
  }

  /** Tells the subscribers of a resource that it has changed. */
  update(uri: string): void {
    for (const { subscribed, standing } of this.#sessions.values()) {
      if (!subscribed.has(uri)) continue;
      if (standing === undefined) throw new Error(`nobody listens for ${uri}`);
      standing.write(
        event(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri } })),
      );
    }
  }

  /** Tells the session of a call that its user has finished with the page. */
  completePage(nonce: string): void {
    const params = { elicitationId: `page ${nonce}` };
    const text = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/elicitation/complete', params });
    this.#paged.get(nonce)?.standing?.write(event(text));
  }

  #answer(request: Received, response: ServerResponse): void {
    const session = this.#sessions.get(String(request.headers['mcp-session-id']));
    if (request.rpc === 'initialize') return this.#initialize(request, response);
    if (session === undefined) return void response.writeHead(404).end();
    if (request.method === 'GET') {
      stream(response);
      session.standing = response;
      return;
    }
    if (request.method === 'DELETE') return void response.writeHead(200).end();
    if (request.rpc === undefined || request.id === undefined) return void response.writeHead(202).end();
    this.#serve(session, request, response);
  }

  #initialize({ id }: Received, response: ServerResponse): void {
    const session = { id: `s${this.#sessions.size + 1}`, standing: undefined, subscribed: new Set<string>() };
    this.#sessions.set(session.id, session);
    const capabilities = {
      tools: {},
      resources: { subscribe: true },
      tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } },
    };
    const result = { protocolVersion: '2025-11-25', capabilities, serverInfo: { name: 'spy', version: '1' } };
    json(response, JSON.stringify({ jsonrpc: '2.0', id, result }), { 'mcp-session-id': session.id });
  }

  #serve(session: ServedSession, { rpc, id, body }: Received, response: ServerResponse): void {
    const params = membersOf(membersOf(JSON.parse(body))['params']);
    const result = (value: Members) => json(response, JSON.stringify({ jsonrpc: '2.0', id, result: value }));
    switch (rpc ?? '') {
      case 'tools/list':
        return result({
          tools: TOOLS.map((name) => ({
            name,
            inputSchema: { type: 'object' },
            ...(name === 'job' ? { execution: { taskSupport: 'required' } } : {}),
          })),
        });
      case 'resources/list':
        return result({ resources: [] });
      case 'resources/templates/list':
        return result({ resourceTemplates: [{ uriTemplate: 'test://watched/{name}', name: 'watched' }] });
      case 'resources/subscribe':
        session.subscribed.add(String(params['uri']));
        return result({});
      case 'resources/unsubscribe':
        session.subscribed.delete(String(params['uri']));
        return result({});
      case 'tools/call':
        return this.#call(session, id, params, response, result);
      case 'tasks/get':
      case 'tasks/cancel':
        return result(taskOf(String(params['taskId'])));
      case 'tasks/result':
        return result(textOf({ task: params['taskId'] }));
      default:
        return result({});
    }
  }

  #call(
    session: ServedSession,
    id: unknown,
    params: Members,
    response: ServerResponse,
    result: (value: Members) => void,
  ): void {
    const nonce = String(membersOf(params['arguments'])['nonce']);
    switch (params['name']) {
      case 'hold':
        this.#held.set(nonce, new HeldCall(nonce, id, membersOf(params['_meta'])['progressToken'], response));
        return;
      case 'job':
        return result({ task: taskOf(`inner ${nonce}`) });
      case 'page': {
        if (this.#paged.has(nonce)) return result(textOf({ nonce }));
        this.#paged.set(nonce, session);
        const page = {
          mode: 'url',
          elicitationId: `page ${nonce}`,
          url: 'https://pages.example.com/a',
          message: nonce,
        };
        const error = { code: -32042, message: 'Visit the page', data: { elicitations: [page] } };
        return json(response, JSON.stringify({ jsonrpc: '2.0', id, error }));
      }
      default:
        return result(textOf({ nonce, run: ++this.#runs }));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server[Symbol.asyncDispose]();
  }
}

function taskOf(taskId: string): Members {
  return { taskId, status: 'working', ...TIMES, ttl: 600_000, pollInterval: 60_000 };
}
