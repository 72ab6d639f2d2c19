import { createParser } from 'eventsource-parser';
import { type Dispatcher, Pool } from 'undici';

export type RpcId = number | string;

/** One received JSON-RPC message. */
export interface Rpc {
  readonly id?: RpcId;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: unknown;
  readonly error?: { readonly code: number; readonly message: string };
}

/** Called for each message to a client, in the order of arrival. `text` is the message as it was sent. */
export type OnMessage = (message: Rpc, text: string) => void;

export interface ClientOptions {
  readonly revision: string;
  readonly capabilities?: object;
  readonly onMessage?: OnMessage;
  /** The id of an endpoint; by default the merged one. */
  readonly endpoint?: string;
  /** Headers of every request, such as credentials. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Returns a pool of sockets to a gateway. */
export function socketsTo(url: string): Pool {
  return new Pool(url, { pipelining: 1, headersTimeout: 0, bodyTimeout: 0 });
}

const BOTH = 'application/json, text/event-stream';

function parse(text: string): Rpc {
  const message: Rpc = JSON.parse(text);
  return message;
}

/**
 * A client that is light enough to run hundreds of them in one process. It judges no message.
 * `2024-11-05` uses HTTP+SSE, all other revisions Streamable HTTP.
 */
export class SwarmClient {
  readonly #pool: Pool;
  readonly #revision: string;
  readonly #path: string;
  readonly #onMessage: OnMessage;
  readonly #awaited = new Map<RpcId, PromiseWithResolvers<Rpc>>();
  /** Aborted to destroy all sockets that are in use. */
  readonly #gone = new AbortController();
  /** In 2024-11-05: the path for POSTs. */
  readonly #posts = Promise.withResolvers<string>();
  #headers: Record<string, string> = { 'content-type': 'application/json', accept: BOTH };
  #listening: AbortController | undefined;

  private constructor(pool: Pool, { revision, endpoint, headers = {}, onMessage = () => {} }: ClientOptions) {
    this.#pool = pool;
    this.#headers = { ...this.#headers, ...headers };
    this.#revision = revision;
    this.#path = `${revision === '2024-11-05' ? '/sse' : '/mcp'}${endpoint === undefined ? '' : `/${endpoint}`}`;
    this.#onMessage = onMessage;
    this.#posts.promise.catch(() => {});
  }

  /** Initializes a session. */
  static async open(pool: Pool, options: ClientOptions): Promise<SwarmClient> {
    const client = new SwarmClient(pool, options);
    if (client.#isOld) await client.listen();
    const { revision: protocolVersion, capabilities = {} } = options;
    const clientInfo = { name: 'swarm', version: '1' };
    const { error } = await client.request('init', 'initialize', { protocolVersion, capabilities, clientInfo });
    if (error !== undefined) throw new Error(`initialize was refused: ${error.message}`);
    await client.notify('notifications/initialized');
    return client;
  }

  get #isOld(): boolean {
    return this.#revision === '2024-11-05';
  }

  /** Resolves with the first answer. @throws {Error} if the request or its response breaks before that. */
  async request(id: RpcId, method: string, params?: object): Promise<Rpc> {
    const awaited = Promise.withResolvers<Rpc>();
    this.#awaited.set(id, awaited);
    const failed = (thrown: unknown) => awaited.reject(thrown);
    const sent = this.#post({ jsonrpc: '2.0', id, method, params }).then(() => {
      if (!this.#isOld) failed(new Error(`the answer to ${id} (${method}) ended without one`));
    }, failed);
    const answer = await awaited.promise;
    // The caller may rely on having received everything that was sent with the answer.
    await sent;
    return answer;
  }

  notify(method: string, params?: object): Promise<void> {
    return this.#post({ jsonrpc: '2.0', method, params });
  }

  answer(id: RpcId, result: object): Promise<void> {
    return this.#post({ jsonrpc: '2.0', id, result });
  }

  /** Opens the GET stream of the session. It stays open until `unlisten`, `vanish`, or the gateway closes it. */
  async listen(): Promise<void> {
    const listening = new AbortController();
    this.#listening = listening;
    const response = await this.#pool.request({
      method: 'GET',
      path: this.#path,
      headers: { ...this.#headers, accept: 'text/event-stream' },
      signal: AbortSignal.any([listening.signal, this.#gone.signal]),
    });
    this.#read(response).catch((thrown: unknown) => {
      this.#posts.reject(thrown);
      if (!this.#isOld) return;
      for (const { reject } of this.#awaited.values()) reject(thrown);
    });
  }

  /** Destroys the socket of the GET stream. */
  unlisten(): void {
    this.#listening?.abort();
  }

  /** Ends the session as a client should: with DELETE. */
  async end(): Promise<void> {
    if (this.#isOld) {
      this.unlisten();
      return;
    }
    const { statusCode, body } = await this.#pool.request({
      method: 'DELETE',
      path: this.#path,
      headers: this.#headers,
    });
    await body.dump();
    if (statusCode >= 300) throw new Error(`DELETE was answered ${statusCode}`);
    this.unlisten();
  }

  /** Destroys every socket in use, without ending the session. */
  vanish(): void {
    this.#gone.abort();
  }

  async #post(message: object): Promise<void> {
    const response = await this.#pool.request({
      method: 'POST',
      path: this.#isOld ? await this.#posts.promise : this.#path,
      headers: this.#headers,
      body: JSON.stringify(message),
      signal: this.#gone.signal,
    });
    const sessionId = response.headers['mcp-session-id'];
    if (typeof sessionId === 'string') {
      const version = this.#revision >= '2025-06-18' ? { 'mcp-protocol-version': this.#revision } : {};
      this.#headers = { ...this.#headers, ...version, 'mcp-session-id': sessionId };
    }
    await this.#read(response);
  }

  async #read({ statusCode, headers, body }: Dispatcher.ResponseData): Promise<void> {
    const type = String(headers['content-type']);
    if (statusCode === 200 && type.startsWith('text/event-stream')) {
      const parser = createParser({
        onEvent: ({ event, data }) => {
          if (event === 'endpoint') this.#posts.resolve(data);
          else if (data !== '') this.#receive(data);
        },
      });
      body.setEncoding('utf8');
      for await (const chunk of body) parser.feed(String(chunk));
      return;
    }
    const text = await body.text();
    if (statusCode === 200) this.#receive(text);
    else if (statusCode !== 202) throw new Error(`answered ${statusCode}: ${text}`);
  }

  #receive(text: string): void {
    const message = parse(text);
    this.#onMessage(message, text);
    if (message.method === undefined && message.id !== undefined) this.#awaited.get(message.id)?.resolve(message);
  }
}
