import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { Check } from './check.ts';
import { type Ask, dialectOf, type Revision } from './dialect.ts';
import { HttpMessages } from './http-messages.ts';

const EVENT_STREAM = /\r\ncontent-type: *text\/event-stream/i;
/** The message of an error. */
const MESSAGE = /"message":"([^"]*)"/;
const SESSION = /\r\nmcp-session-id: *([^\r]+)/i;

export interface ConversationOptions {
  readonly url: URL;
  /** The endpoint of the requests in sessions, if it is that of another replica. */
  readonly askUrl: URL | undefined;
  /** The header of every request, if the endpoint needs credentials. */
  readonly authorization?: string | undefined;
  readonly revision: Revision;
  readonly ask: Ask;
  readonly toolPrefix: string;
  readonly check: Check;
  /** Distinguishes conversations, so that no two send the same id. */
  readonly index: number;
  readonly count: number;
  /** Number of sessions. They are used in turn. */
  readonly sessions: number;
  /** Called when a request is answered with an error. Without it, an error is a failure. */
  readonly onRefusal: ((conversation: Conversation, refusal: Refusal) => void) | undefined;
  readonly onAnswer: (conversation: Conversation, tookMs: number, asEvent: boolean) => void;
  readonly onFailure: (failure: unknown) => void;
}

/** An answer with an error. */
export interface Refusal {
  /** The HTTP status, and the message of the error. */
  readonly text: string;
  readonly tookMs: number;
}

interface Reply {
  readonly head: string;
  readonly body: Buffer;
}

/** Returns the JSON of the last event, which is the answer. */
function lastData(body: Buffer): Buffer {
  const at = body.lastIndexOf('\ndata:');
  if (at < 0 && !body.subarray(0, 5).equals(Buffer.from('data:'))) return body.subarray(0, 0);
  let start = at < 0 ? 5 : at + 6;
  if (body[start] === 0x20) start++;
  let end = body.indexOf(0x0a, start);
  if (end < 0) end = body.length;
  if (body[end - 1] === 0x0d) end--;
  return body.subarray(start, end);
}

function status(head: string): number {
  return Number(head.slice('HTTP/1.1 '.length, 'HTTP/1.1 200'.length));
}

function isRefusal(head: string, body: Buffer): boolean {
  return status(head) !== 200 || body.includes('"error":{');
}

/** One kept connection with one or more sessions, and at most one request in flight. */
export class Conversation {
  readonly #options: ConversationOptions;
  readonly #socket: Socket;
  /** The connection of the requests in sessions. */
  readonly #asking: Socket;
  readonly #sessions: string[] = [];
  /** The heads of the requests, one per session. */
  readonly #heads: string[] = [];
  #asked = 0;
  #nextId: number;
  #askedId = 0;
  #askedAtMs: number | undefined;
  #replied: ((reply: Reply) => void) | undefined;
  #isEnding = false;

  constructor(options: ConversationOptions) {
    this.#options = options;
    this.#nextId = 1 + options.index;
    this.#socket = this.#connect(options.url);
    this.#asking = options.askUrl === undefined ? this.#socket : this.#connect(options.askUrl);
  }

  #connect(url: URL): Socket {
    const { onFailure } = this.#options;
    const socket = connect({ host: url.hostname, port: Number(url.port), noDelay: true });
    const messages = new HttpMessages((head, body) => this.#receive(head, body));
    socket.on('data', (chunk: Buffer) => {
      try {
        messages.push(chunk);
      } catch (thrown) {
        onFailure(thrown);
      }
    });
    socket.on('error', (thrown) => onFailure(thrown));
    socket.on('close', () => {
      if (!this.#isEnding) onFailure(new Error('the connection was closed'));
    });
    return socket;
  }

  /** Returns how long the request in flight has waited; undefined if there is none. */
  waitingMs(nowMs: number): number | undefined {
    return this.#askedAtMs === undefined ? undefined : nowMs - this.#askedAtMs;
  }

  /** @throws {Error} if the handshake is refused. */
  async open(): Promise<void> {
    await once(this.#socket, 'connect');
    for (let session = 0; session < this.#options.sessions; session++) await this.#openSession();
  }

  async #openSession(): Promise<void> {
    const { revision, ask, toolPrefix } = this.#options;
    const dialect = dialectOf(revision);
    let session: string | undefined;
    for (const body of dialect.opening) {
      const head = this.#requestHead('POST', dialect.headers(session, undefined, toolPrefix));
      const reply = await this.#request(`${head}content-length: ${body.length}\r\n\r\n${body}`);
      const code = status(reply.head);
      const text = reply.body.toString();
      if (code < 200 || code > 299 || text.includes('"error"')) {
        throw new Error(`the handshake was refused with ${code}: ${text.slice(0, 500)}`);
      }
      session ??= SESSION.exec(reply.head)?.[1];
    }
    if (session !== undefined) this.#sessions.push(session);
    this.#heads.push(this.#requestHead('POST', dialect.headers(session, ask, toolPrefix), this.#options.askUrl));
  }

  /** Sends the next request. `onAnswer` is called later. */
  ask(): void {
    const { revision, ask, toolPrefix, count } = this.#options;
    this.#askedId = this.#nextId;
    this.#nextId += count;
    const body = dialectOf(revision).request(this.#askedId, ask, toolPrefix);
    this.#askedAtMs = performance.now();
    const head = this.#heads[this.#asked++ % this.#heads.length] ?? '';
    this.#asking.write(`${head}content-length: ${body.length}\r\n\r\n${body}`, 'latin1');
  }

  /** Ends the sessions, if there are any. */
  async close(): Promise<void> {
    for (const session of this.#sessions) {
      const headers = dialectOf(this.#options.revision).headers(session, undefined, '');
      await this.#request(`${this.#requestHead('DELETE', headers)}content-length: 0\r\n\r\n`);
    }
    this.#isEnding = true;
    this.#socket.destroy();
    this.#asking.destroy();
  }

  #requestHead(method: string, headers: Readonly<Record<string, string>>, url: URL = this.#options.url): string {
    const { authorization } = this.#options;
    const all = {
      host: url.host,
      ...(authorization === undefined ? {} : { authorization }),
      accept: 'application/json, text/event-stream',
      'content-type': 'application/json',
      ...headers,
    };
    const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
    return `${method} ${url.pathname} HTTP/1.1\r\n${lines.join('')}`;
  }

  async #request(text: string): Promise<Reply> {
    const { promise, resolve } = Promise.withResolvers<Reply>();
    this.#replied = resolve;
    this.#socket.write(text);
    return await promise;
  }

  #receive(head: string, body: Buffer): void {
    if (this.#replied !== undefined) {
      const replied = this.#replied;
      this.#replied = undefined;
      replied({ head, body });
      return;
    }
    if (this.#askedAtMs === undefined) throw new Error('an answer nobody asked for');
    const tookMs = performance.now() - this.#askedAtMs;
    this.#askedAtMs = undefined;
    const { onRefusal } = this.#options;
    if (onRefusal !== undefined && isRefusal(head, body)) {
      onRefusal(this, { text: `${status(head)} ${MESSAGE.exec(body.toString())?.[1] ?? ''}`, tookMs });
      return;
    }
    if (status(head) !== 200) throw new Error(`answered ${status(head)}: ${body.toString('utf8', 0, 500)}`);
    const asEvent = EVENT_STREAM.test(head);
    this.#options.check.answer(asEvent ? lastData(body) : body, this.#askedId);
    this.#options.onAnswer(this, tookMs, asEvent);
  }
}
