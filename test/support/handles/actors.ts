import {
  type Events,
  type Got,
  getEvents,
  initialize,
  messagesOf,
  post,
  postForEvents,
  rpc,
  send,
} from '../../downstream/client.ts';
import { modernEvents, modernHeaders, modernPost, modernText } from '../modern-wire.ts';

type Members = Readonly<Record<string, unknown>>;

/** One answer as its client sees it, without the parts that differ in each: ids and nonces. */
export interface Seen {
  readonly status: number;
  readonly challenge: string | undefined;
  readonly text: string;
}

/** Capabilities of all clients of this trial. */
const LEGACY_CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {} };
const MODERN_CAPABILITIES = {
  elicitation: { form: {}, url: {} },
  extensions: { 'io.modelcontextprotocol/tasks': {} },
};

/** One principal: credentials, and two sessions with them. It sends each request to the next of several URLs. */
export class Actor {
  readonly name: string;
  /** Text that all values of this actor begin with, and no others. */
  readonly mark: string;
  /** The session with an open GET stream. */
  session = '';
  /** A session without a GET stream. */
  bare = '';
  #inbox: Events | undefined;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #origins: readonly string[];
  readonly #seen: (text: string) => void;
  #turn = 0;
  #pinned: string | undefined;
  #lastNonce = 0;
  #lastId = 1_000;

  /** @param seen runs with every text that the actor gets. */
  constructor(
    name: string,
    headers: Readonly<Record<string, string>>,
    origins: readonly string[],
    seen: (text: string) => void,
  ) {
    this.name = name;
    this.mark = `<${name}>`;
    this.#headers = headers;
    this.#origins = origins;
    this.#seen = seen;
  }

  /** The messages on the GET stream of the session. */
  get inbox(): Events {
    if (this.#inbox === undefined) throw new Error(`${this.name} has no session`);
    return this.#inbox;
  }

  async open(): Promise<void> {
    this.session = await initialize(this.url(), '2025-11-25', this.#headers, LEGACY_CAPABILITIES);
    this.bare = await initialize(this.url(), '2025-11-25', this.#headers, LEGACY_CAPABILITIES);
    for (const session of [this.session, this.bare]) {
      await post(
        this.url(),
        JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }),
        session,
        this.#headers,
      );
    }
    this.#inbox = await this.listen(this.session);
  }

  close(): void {
    this.#inbox?.close();
  }

  nonce(): string {
    return `${this.mark}${++this.#lastNonce}`;
  }

  id(): number {
    return ++this.#lastId;
  }

  /** Sends all requests to one of the URLs from now on; to all in turn if it is undefined. */
  pin(origin: string | undefined): void {
    this.#pinned = origin;
  }

  /** Returns the URL for the next request. @param path of the endpoint. */
  url(path = '/mcp'): string {
    const origin = this.#pinned ?? this.#origins[this.#turn++ % this.#origins.length];
    return `${origin ?? ''}${path}`;
  }

  /** Sends a request of a session. */
  async ask(method: string, params: object, session = this.session, id = this.id()): Promise<Got> {
    return this.#keep(await post(this.url(), rpc(id, method, params), session, this.#headers));
  }

  /** Sends a message of a session that has no answer: a notification, or the answer to a question. */
  async sendMessage(message: Members, session = this.session): Promise<Got> {
    return this.#keep(await post(this.url(), JSON.stringify({ jsonrpc: '2.0', ...message }), session, this.#headers));
  }

  /** Sends a request of a session, and reads the answer event by event. */
  async stream(method: string, params: object, session = this.session, id = this.id()): Promise<Events> {
    return await postForEvents(this.url(), rpc(id, method, params), session, this.#headers);
  }

  async listen(session: string, lastEventId?: string): Promise<Events> {
    const resumed = lastEventId === undefined ? {} : { 'last-event-id': lastEventId };
    return await getEvents(this.url(), session, { ...this.#headers, ...resumed });
  }

  async modern(method: string, params: Members, meta: Members = {}, id = this.id()): Promise<Got> {
    const options = { id, capabilities: MODERN_CAPABILITIES, meta, headers: this.#headers };
    return this.#keep(await modernPost(this.url(), method, params, options));
  }

  async modernStream(method: string, params: Members, meta: Members = {}, id = this.id()): Promise<Events> {
    const options = { id, capabilities: MODERN_CAPABILITIES, meta, headers: this.#headers };
    return await modernEvents(this.url(), method, params, options);
  }

  /** Sends a notification of 2026-07-28. */
  async modernTell(method: string, params: Members): Promise<Got> {
    const { id: _, ...message } = JSON.parse(modernText(method, params, { capabilities: MODERN_CAPABILITIES }));
    const headers = modernHeaders(method, params, { headers: this.#headers });
    return this.#keep(await post(this.url(), JSON.stringify(message), undefined, headers));
  }

  /** Sends any request with the credentials of this actor. */
  async send(
    path: string,
    method: string,
    headers: Readonly<Record<string, string>> = {},
    body?: string,
  ): Promise<Got> {
    const all = { accept: 'application/json, text/event-stream', ...this.#headers, ...headers };
    return this.#keep(await send(this.url(path), { method, headers: all, ...(body === undefined ? {} : { body }) }));
  }

  async sse(): Promise<Events> {
    return await getEvents(this.url('/sse'), undefined, this.#headers);
  }

  #keep(got: Got): Got {
    this.#seen(got.text);
    return got;
  }
}

/** Returns what an answer tells, with these texts replaced, which differ from use to use. Its form may differ: JSON or events. */
export function seenOf(got: Got, ...own: readonly string[]): Seen {
  const { status, headers, text } = got;
  const isStream = headers['content-type']?.startsWith('text/event-stream') === true;
  const read = isStream
    ? messagesOf(got)
        .map((message) => JSON.stringify(message))
        .join('\n')
    : text;
  const plain = own.filter((each) => each !== '').reduce((left, each) => left.replaceAll(each, '…'), read);
  return {
    status,
    challenge: headers['www-authenticate'],
    text: plain
      .replaceAll(/"id":\d+/g, '"id":…')
      .replaceAll(/<[a-z]+>\d+/g, '…')
      .replaceAll(/run\\":\d+/g, 'run …'),
  };
}
