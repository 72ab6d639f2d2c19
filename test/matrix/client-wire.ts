/** The transports of a client. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { Agent, request as send, type ClientRequest, type IncomingMessage } from 'node:http';
import { createInterface } from 'node:readline';
import { PATIENCE_MS } from '../support/patience.ts';
import { EventReader } from './events.ts';
import { idOf, parse, type Id, type Message } from './json.ts';

/**
 * @param on id of the request on whose stream it arrived; null for the GET stream; undefined if the transport has
 * one
 * stream for all messages.
 */
export type Received = (message: Message, on: Id | null | undefined) => void;

export interface Wire {
  /** @throws {Error} if the server refuses it without a message. */
  send(message: Message): Promise<void>;
  /** Breaks the connection of the response to this request. */
  drop(id: Id): void;
  close(): Promise<void>;
}

export interface HttpOptions {
  readonly url: string;
  readonly received: Received;
  headers(message: Message | undefined): Readonly<Record<string, string>>;
  /** Called with the headers of every response. */
  answered(headers: IncomingMessage['headers']): void;
  /** Called at an event without data. */
  primed(): void;
}

/** Streamable HTTP: a POST for each message, and a GET stream. */
export class HttpWire implements Wire {
  readonly #options: HttpOptions;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #open = new Map<Id | null, IncomingMessage>();
  /** Requests whose response has not begun. */
  readonly #sent = new Map<Id, ClientRequest>();
  readonly #lastEvents = new Map<Id | null, string>();

  constructor(options: HttpOptions) {
    this.#options = options;
  }

  async send(message: Message): Promise<void> {
    const body = JSON.stringify(message);
    const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
    const id = message['method'] === undefined ? undefined : idOf(message);
    const response = await this.#request('POST', { ...headers, ...this.#options.headers(message) }, body, id);
    const { statusCode = 0 } = response;
    if (id === undefined) {
      response.resume();
      if (statusCode !== 202) throw new Error(`a notification or answer was met with HTTP ${statusCode}`);
      return;
    }
    if (response.headers['content-type']?.includes('text/event-stream') === true) {
      this.#read(response, id);
      return;
    }
    let text = '';
    response.setEncoding('utf8');
    for await (const chunk of response) text += String(chunk);
    if (!response.headers['content-type']?.includes('application/json')) {
      throw new Error(`HTTP ${statusCode}: ${text.slice(0, 200)}`);
    }
    this.#options.received(parse(text), id);
  }

  /** @returns false if the server offers no GET stream. */
  async listen(): Promise<boolean> {
    const response = await this.#get({});
    if (response === undefined) return false;
    this.#read(response, null);
    return true;
  }

  /** Resumes the stream of a request. */
  async resume(id: Id): Promise<void> {
    const last = this.#lastEvents.get(id);
    if (last === undefined) throw new Error('the stream that broke had no event ids');
    const response = await this.#get({ 'last-event-id': last });
    if (response === undefined) throw new Error('the stream that broke cannot be resumed');
    this.#read(response, id);
  }

  drop(id: Id): void {
    this.#sent.get(id)?.destroy();
    this.#open.get(id)?.destroy();
  }

  /** Sends DELETE, if there is a session. */
  async end(): Promise<void> {
    const response = await this.#request('DELETE', this.#options.headers(undefined), '');
    response.resume();
  }

  close(): Promise<void> {
    for (const response of this.#open.values()) response.destroy();
    this.#agent.destroy();
    return Promise.resolve();
  }

  async #get(headers: Readonly<Record<string, string>>): Promise<IncomingMessage | undefined> {
    const all = { accept: 'text/event-stream', ...this.#options.headers(undefined), ...headers };
    const response = await this.#request('GET', all, '');
    if (response.statusCode === 200) return response;
    response.resume();
    return undefined;
  }

  async #request(
    method: string,
    headers: Readonly<Record<string, string>>,
    body: string,
    id?: Id,
  ): Promise<IncomingMessage> {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const outgoing = send(this.#options.url, { method, headers, agent: this.#agent }, resolve);
    outgoing.on('error', reject);
    outgoing.end(body);
    if (id !== undefined) this.#sent.set(id, outgoing);
    try {
      const response = await promise;
      this.#options.answered(response.headers);
      return response;
    } finally {
      if (id !== undefined) this.#sent.delete(id);
    }
  }

  #read(response: IncomingMessage, on: Id | null): void {
    this.#open.set(on, response);
    const reader = new EventReader(({ id, data }) => {
      if (id !== undefined) this.#lastEvents.set(on, id);
      if (data === '') this.#options.primed();
      else this.#options.received(parse(data), on);
    });
    response.setEncoding('utf8');
    response.on('data', (chunk) => reader.push(String(chunk)));
    // Node reports an aborted response as an error.
    response.on('error', () => undefined);
    response.on('close', () => {
      if (this.#open.get(on) === response) this.#open.delete(on);
    });
  }
}

/** HTTP+SSE of 2024-11-05: one event stream, and POSTs to the endpoint that it names. */
export class SseWire implements Wire {
  readonly #agent = new Agent({ keepAlive: true });
  readonly #stream: IncomingMessage;
  readonly #endpoint: URL;

  private constructor(stream: IncomingMessage, endpoint: URL) {
    this.#stream = stream;
    this.#endpoint = endpoint;
  }

  static async open(url: string, received: Received): Promise<SseWire> {
    const opened = Promise.withResolvers<IncomingMessage>();
    send(url, { headers: { accept: 'text/event-stream' }, agent: new Agent() }, opened.resolve)
      .on('error', opened.reject)
      .end();
    const stream = await opened.promise;
    if (stream.statusCode !== 200) throw new Error(`HTTP ${stream.statusCode} from ${url}`);
    const endpoint = Promise.withResolvers<string>();
    const reader = new EventReader(({ event, data }) => {
      if (event === 'endpoint') endpoint.resolve(data);
      else received(parse(data), undefined);
    });
    stream.setEncoding('utf8');
    stream.on('data', (chunk) => reader.push(String(chunk)));
    stream.on('error', () => undefined);
    stream.on('close', () => endpoint.reject(new Error('the stream ended at once')));
    return new SseWire(stream, new URL(await endpoint.promise, url));
  }

  async send(message: Message): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const headers = { 'content-type': 'application/json' };
    const outgoing = send(this.#endpoint, { method: 'POST', headers, agent: this.#agent }, resolve);
    outgoing.on('error', reject);
    outgoing.end(JSON.stringify(message));
    const response = await promise;
    response.resume();
    const { statusCode = 0 } = response;
    if (statusCode < 200 || statusCode > 299) throw new Error(`a message was met with HTTP ${statusCode}`);
  }

  drop(): void {
    this.#stream.destroy();
  }

  close(): Promise<void> {
    this.#stream.destroy();
    this.#agent.destroy();
    return Promise.resolve();
  }
}

/** A child process with one message per line. */
export class StdioWire implements Wire {
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown>;

  constructor(args: readonly string[], received: Received) {
    this.#child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#exited = once(this.#child, 'exit');
    if (this.#child.stdout !== null) {
      createInterface({ input: this.#child.stdout }).on('line', (line) => received(parse(line), undefined));
    }
    // The process may end first.
    this.#child.stdin?.on('error', () => undefined);
  }

  send(message: Message): Promise<void> {
    this.#child.stdin?.write(`${JSON.stringify(message)}\n`);
    return Promise.resolve();
  }

  drop(): void {
    this.#child.stdin?.end();
  }

  async close(): Promise<void> {
    this.#child.stdin?.end();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), PATIENCE_MS);
    await this.#exited;
    clearTimeout(timer);
  }
}
