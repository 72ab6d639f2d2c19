import { connect, type Socket } from 'node:net';
import { HttpMessages } from '../http-messages.ts';

const SESSION = /\r\nmcp-session-id: *([^\r]+)/i;

export interface StreamOptions {
  readonly url: URL;
  readonly authorization: string;
}

/** An event stream as its client sees it. */
export interface StreamWatch {
  /** Called with the body of the response as it comes. */
  onData(chunk: Buffer): void;
  /** Called if the stream ends before {@link HeldStream.destroy}. */
  onEnd(reason: string): void;
}

/** One connection that makes some requests and then holds the response to the last one, an event stream. */
export class HeldStream {
  readonly #options: StreamOptions;
  readonly #watch: StreamWatch;
  readonly #socket: Socket;
  readonly #messages: HttpMessages;
  readonly #opened = Promise.withResolvers<void>();
  #replied: ((head: string, body: Buffer) => void) | undefined;
  /** The beginning of the stream until its head is complete; undefined before the stream, and after its head. */
  #head: string | undefined;
  #isOpen = false;
  #isEnding = false;

  constructor(options: StreamOptions, watch: StreamWatch) {
    this.#options = options;
    this.#watch = watch;
    const { url } = options;
    this.#messages = new HttpMessages((head, body) => this.#replied?.(head, body));
    this.#socket = connect({ host: url.hostname, port: Number(url.port), noDelay: true });
    this.#socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    this.#socket.on('error', (thrown) => this.#end(String(thrown)));
    this.#socket.on('close', () => this.#end('closed'));
    this.#opened.promise.catch(() => undefined);
  }

  get socket(): Socket {
    return this.#socket;
  }

  /** Makes one request and returns its session. @throws {Error} if it is refused. */
  async request(body: string, session?: string): Promise<string | undefined> {
    const { promise, resolve } = Promise.withResolvers<readonly [string, Buffer]>();
    this.#replied = (head, answer) => resolve([head, answer]);
    this.#socket.write(`${this.#headOf('POST', session)}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
    const [head, answer] = await Promise.race([promise, this.#opened.promise.then((): never => this.#early())]);
    if (!/^HTTP\/1\.1 20[02]/.test(head))
      throw new Error(`refused: ${head.slice(0, 30)} ${answer.toString().slice(0, 300)}`);
    return SESSION.exec(head)?.[1];
  }

  #early(): never {
    throw new Error('a stream instead of an answer');
  }

  /** Opens the stream by a GET. @throws {Error} if it is refused. */
  get(session: string): Promise<void> {
    return this.#hold(`${this.#headOf('GET', session)}\r\n`);
  }

  /** Opens the stream by a POST. @throws {Error} if it is refused. */
  post(body: string, headers: Readonly<Record<string, string>>, session?: string): Promise<void> {
    const length = `content-length: ${Buffer.byteLength(body)}\r\n`;
    return this.#hold(`${this.#headOf('POST', session, headers)}${length}\r\n${body}`);
  }

  async #hold(text: string): Promise<void> {
    this.#head = '';
    this.#socket.write(text);
    await this.#opened.promise;
  }

  #headOf(method: string, session: string | undefined, more: Readonly<Record<string, string>> = {}): string {
    const { url, authorization } = this.#options;
    const headers = {
      host: url.host,
      authorization,
      accept: method === 'GET' ? 'text/event-stream' : 'application/json, text/event-stream',
      'content-type': 'application/json',
      ...(session === undefined ? {} : { 'mcp-session-id': session, 'mcp-protocol-version': '2025-11-25' }),
      ...more,
    };
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    return `${method} ${url.pathname} HTTP/1.1\r\n${lines.join('')}`;
  }

  #receive(chunk: Buffer): void {
    if (this.#isOpen) {
      this.#watch.onData(chunk);
      return;
    }
    if (this.#head === undefined) {
      this.#messages.push(chunk);
      return;
    }
    this.#head += chunk.toString('latin1');
    const end = this.#head.indexOf('\r\n\r\n');
    if (end < 0) return;
    if (this.#head.startsWith('HTTP/1.1 200')) {
      this.#isOpen = true;
      this.#opened.resolve();
      this.#watch.onData(Buffer.from(this.#head.slice(end + 4), 'latin1'));
    } else this.#end(`refused: ${this.#head.slice(0, 400)}`);
    this.#head = '';
  }

  #end(reason: string): void {
    if (this.#isEnding) return;
    const wasOpen = this.#isOpen;
    this.destroy();
    this.#opened.reject(new Error(reason));
    if (wasOpen) this.#watch.onEnd(reason);
  }

  /** Closes the connection. */
  destroy(): void {
    this.#isEnding = true;
    this.#socket.destroy();
  }
}
