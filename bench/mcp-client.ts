import { Agent, type ClientRequest, type IncomingMessage, request } from 'node:http';

const ANSWER_MS = 120_000;

/** The parts of a JSON-RPC message that the benches read. */
export interface Message {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: unknown;
  readonly result?: unknown;
  readonly error?: unknown;
}

/** The response to one POST. */
export interface Reply {
  readonly status: number;
  readonly session: string | undefined;
  readonly text: string;
  /** Messages in the order of arrival. Empty if the body is not readable. */
  readonly messages: readonly Message[];
}

export interface ClientOptions {
  readonly url: string;
  readonly agent: Agent;
  readonly headers?: Readonly<Record<string, string>>;
  readonly capabilities?: object;
  /** Answers a request of the server. Its result is sent back. */
  readonly onRequest?: (message: Message) => object;
}

/** Returns the messages of a body, which is JSON or an event stream. Unreadable parts are left out. */
export function messagesOf(text: string, contentType: string): readonly Message[] {
  const parts = contentType.startsWith('text/event-stream')
    ? [...text.matchAll(/^data: ?(.+)$/gm)].map(([, data = '']) => data)
    : [text];
  return parts.flatMap((part) => {
    try {
      const parsed: unknown = JSON.parse(part);
      return typeof parsed === 'object' && parsed !== null ? [parsed] : [];
    } catch {
      return [];
    }
  });
}

/** Returns an agent that keeps its connections. */
export function keptConnections(maxSockets: number): Agent {
  return new Agent({ keepAlive: true, maxSockets });
}

/** One session of a 2025-11-25 client. */
export class McpClient {
  readonly #options: ClientOptions;
  #session: string | undefined;
  #lastId = 0;

  private constructor(options: ClientOptions) {
    this.#options = options;
  }

  /** Opens a session. @throws {Error} if it is refused. */
  static async open(options: ClientOptions): Promise<McpClient> {
    const client = new McpClient(options);
    const { capabilities = {} } = options;
    const clientInfo = { name: 'bench-client', version: '1.0.0' };
    const reply = await client.request('initialize', { protocolVersion: '2025-11-25', capabilities, clientInfo });
    if (reply.status !== 200 || resultOf(reply) === undefined)
      throw new Error(`initialize was refused with ${reply.status}: ${reply.text.slice(0, 300)}`);
    client.#session = reply.session;
    await client.post(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }));
    return client;
  }

  /** Sends a request. Resolves when its response has ended. */
  async request(method: string, params: object = {}): Promise<Reply> {
    return await this.post(JSON.stringify({ jsonrpc: '2.0', id: ++this.#lastId, method, params }));
  }

  /** Posts a body. @throws {Error} if the connection fails, or the answer does not end in time. */
  async post(body: string | Buffer): Promise<Reply> {
    const outgoing = this.begin(body.length);
    outgoing.end(body);
    return await this.reply(outgoing);
  }

  /** Begins a POST whose body the caller writes. @param length of the body, in bytes. */
  begin(length?: number): ClientRequest {
    const outgoing = request(this.#options.url, {
      method: 'POST',
      agent: this.#options.agent,
      headers: {
        ...this.#headers(),
        'content-type': 'application/json',
        ...(length === undefined ? {} : { 'content-length': length }),
      },
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    outgoing.setNoDelay(true);
    // `reply` reports the error to its caller.
    outgoing.on('error', () => undefined);
    return outgoing;
  }

  /** Reads the response to a POST, and answers the server's requests in it. */
  async reply(outgoing: ClientRequest): Promise<Reply> {
    const response = await responseOf(outgoing);
    const contentType = response.headers['content-type'] ?? '';
    const session = response.headers['mcp-session-id'];
    let text = '';
    let seen = 0;
    response.setEncoding('utf8');
    for await (const chunk of response) {
      text += String(chunk);
      if (this.#options.onRequest === undefined || !contentType.startsWith('text/event-stream')) continue;
      const whole = text.lastIndexOf('\n\n');
      if (whole < seen) continue;
      this.#answerRequests(messagesOf(text.slice(seen, whole), contentType));
      seen = whole;
    }
    return {
      status: response.statusCode ?? 0,
      session: typeof session === 'string' ? session : undefined,
      text,
      messages: messagesOf(text, contentType),
    };
  }

  /** Opens the GET stream of the session without reading it. */
  async openStream(): Promise<IncomingMessage> {
    const outgoing = request(this.#options.url, {
      agent: this.#options.agent,
      headers: { ...this.#headers(), accept: 'text/event-stream' },
    });
    outgoing.on('error', () => undefined);
    outgoing.end();
    const response = await responseOf(outgoing);
    response.on('error', () => undefined);
    return response.pause();
  }

  /** Ends the session. */
  async close(): Promise<void> {
    const { url, agent } = this.#options;
    const outgoing = request(url, { method: 'DELETE', agent, headers: this.#headers() });
    outgoing.end();
    (await responseOf(outgoing)).resume();
  }

  #answerRequests(messages: readonly Message[]): void {
    for (const message of messages) {
      if (message.method === undefined || message.id === undefined) continue;
      const result = this.#options.onRequest?.(message) ?? {};
      void this.post(JSON.stringify({ jsonrpc: '2.0', id: message.id, result })).catch(() => undefined);
    }
  }

  #headers(): Record<string, string> {
    return {
      accept: 'application/json, text/event-stream',
      ...this.#options.headers,
      ...(this.#session === undefined ? {} : { 'mcp-session-id': this.#session, 'mcp-protocol-version': '2025-11-25' }),
    };
  }
}

async function responseOf(outgoing: ClientRequest): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  outgoing.once('response', resolve);
  outgoing.once('error', reject);
  return await promise;
}

/** Returns the result in the last message of a reply; undefined if there is none. */
export function resultOf({ messages }: Reply): unknown {
  return messages.at(-1)?.result;
}

/** Returns a member of an object; undefined if the value is no object. */
export function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}
