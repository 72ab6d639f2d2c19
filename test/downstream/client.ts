import { once } from 'node:events';
import { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { createParser } from 'eventsource-parser';
import { PATIENCE_MS } from '../support/patience.ts';

export const BOTH = 'application/json, text/event-stream';

type Headers = Readonly<Record<string, string | undefined>>;

interface Sent {
  readonly method?: string;
  /** Undefined removes a default header. */
  readonly headers?: Headers;
  readonly body?: string | Buffer;
}

function open(url: string, { method = 'GET', headers = {}, body }: Sent): ClientRequest {
  const given = Object.entries(headers).filter((entry): entry is [string, string] => entry[1] !== undefined);
  const request = httpRequest(url, { method, headers: Object.fromEntries(given), agent: false });
  request.end(body);
  return request;
}

/** Resolves with the response to a request that was sent. */
export async function responseTo(request: ClientRequest): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  request.once('response', resolve);
  request.once('error', reject);
  return await promise;
}

export interface Got {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export async function send(url: string, sent: Sent): Promise<Got> {
  const response = await responseTo(open(url, sent));
  response.setEncoding('utf8');
  let text = '';
  for await (const chunk of response) text += String(chunk);
  return { status: response.statusCode ?? 0, headers: response.headers, text };
}

function postHeaders(sessionId: string | undefined, headers: Headers): Headers {
  return { 'content-type': 'application/json', accept: BOTH, 'mcp-session-id': sessionId, ...headers };
}

export function rpc(id: number | string, method: string, params?: object): string {
  return JSON.stringify({ jsonrpc: '2.0', id, method, ...(params === undefined ? {} : { params }) });
}

export async function post(url: string, body: string, sessionId?: string, headers: Headers = {}): Promise<Got> {
  return await send(url, { method: 'POST', body, headers: postHeaders(sessionId, headers) });
}

/** Initializes a session and returns its id. */
export async function initialize(
  url: string,
  protocolVersion = '2025-11-25',
  headers: Headers = {},
  capabilities: object = {},
): Promise<string> {
  const params = { protocolVersion, capabilities, clientInfo: { name: 'test', version: '1' } };
  const got = await post(url, rpc(0, 'initialize', params), undefined, headers);
  const id = got.headers['mcp-session-id'];
  if (got.status !== 200 || typeof id !== 'string') throw new Error(`initialize: ${got.status} ${got.text}`);
  return id;
}

interface ReceivedMessage {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: unknown;
  readonly result?: unknown;
  readonly error?: unknown;
}

/** Returns the messages of a complete answer, JSON or events. */
export function messagesOf({ headers, text }: Got): ReceivedMessage[] {
  if (!String(headers['content-type']).startsWith('text/event-stream')) return [JSON.parse(text)].flat();
  const messages: ReceivedMessage[] = [];
  const parser = createParser({ onEvent: ({ data }) => data !== '' && messages.push(JSON.parse(data)) });
  parser.feed(text);
  return messages;
}

export interface Event {
  readonly id: string | undefined;
  readonly event: string | undefined;
  readonly data: string;
}

/** A response that is read while it arrives. */
export class Events {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** All events so far, including those without data. */
  readonly seen: Event[] = [];
  retryMs: number | undefined;
  comments = 0;
  bytes = 0;
  isEnded = false;
  readonly #response: IncomingMessage;
  #changed = Promise.withResolvers<void>();

  constructor(response: IncomingMessage) {
    this.#response = response;
    this.status = response.statusCode ?? 0;
    this.headers = response.headers;
    const parser = createParser({
      onEvent: ({ id, event, data }) => this.seen.push({ id, event, data }),
      onRetry: (retryMs) => (this.retryMs = retryMs),
      onComment: () => (this.comments += 1),
    });
    response.setEncoding('utf8');
    response.on('data', (chunk: string) => {
      this.bytes += chunk.length;
      parser.feed(chunk);
      this.#wake();
    });
    const ended = (): void => {
      this.isEnded = true;
      this.#wake();
    };
    response.on('end', ended);
    response.on('close', ended);
    response.on('error', ended);
  }

  /** The events that are messages. */
  get messages(): { id?: unknown; method?: string; params?: unknown; result?: unknown; error?: unknown }[] {
    return this.seen.filter(({ data }) => data !== '').map(({ data }) => JSON.parse(data));
  }

  get lastId(): string {
    return this.seen.findLast(({ id }) => id !== undefined)?.id ?? '';
  }

  /** The numbers of the progress notifications. */
  get numbers(): unknown[] {
    return this.messages.flatMap(({ params }) =>
      typeof params === 'object' && params !== null && 'progress' in params ? [params.progress] : [],
    );
  }

  /** Resolves at the next event or the end of the stream. @throws {Error} with the events so far, if there is none. */
  async #change(): Promise<void> {
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(
      () => late.reject(new Error(`no event within ${PATIENCE_MS} ms; received: ${JSON.stringify(this.seen)}`)),
      PATIENCE_MS,
    );
    try {
      await Promise.race([this.#changed.promise, late.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Waits until a condition on the events holds. @throws {Error} if the stream ends or stays silent before that. */
  async until(holds: (events: this) => boolean): Promise<this> {
    while (!holds(this)) {
      if (this.isEnded) throw new Error(`the stream ended after ${JSON.stringify(this.seen)}`);
      await this.#change();
    }
    return this;
  }

  async ended(): Promise<this> {
    while (!this.isEnded) await this.#change();
    return this;
  }

  pause(): void {
    this.#response.pause();
  }

  resume(): void {
    this.#response.resume();
  }

  /** Closes the connection. */
  close(): void {
    this.#response.destroy();
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers<void>();
  }
}

async function events(request: ClientRequest): Promise<Events> {
  return new Events(await responseTo(request));
}

export async function postForEvents(
  url: string,
  body: string,
  sessionId?: string,
  headers: Headers = {},
): Promise<Events> {
  return await events(open(url, { method: 'POST', body, headers: postHeaders(sessionId, headers) }));
}

export async function getEvents(url: string, sessionId: string | undefined, headers: Headers = {}): Promise<Events> {
  return await events(open(url, { headers: { accept: 'text/event-stream', 'mcp-session-id': sessionId, ...headers } }));
}

/** Sends raw bytes and reads until the other side closes, or until `enough` has arrived. */
export async function raw(port: number, bytes: string, enough = /\r\n\r\n/): Promise<string> {
  const socket: Socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  socket.write(bytes);
  let text = '';
  socket.setEncoding('utf8');
  for await (const chunk of socket) {
    text += String(chunk);
    if (enough.test(text)) break;
  }
  socket.destroy();
  return text;
}
