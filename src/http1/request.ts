import { WireError } from './error.ts';

/** Request headers: name, value, name, value. */
export type HeaderList = readonly string[];

type Method = 'GET' | 'POST' | 'DELETE';

const TARGET = /^[\x21-\x7e]+$/;
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** The part of a request that stays the same from one to the next. Its text is made once. */
export class RequestHead {
  readonly method: Method;
  readonly path: string;
  readonly headers: HeaderList;
  readonly #authority: string;
  #text: string | undefined;

  /** @param authority `host:port`, for the header of that name where `headers` has none. */
  constructor(method: Method, authority: string, path: string, headers: HeaderList) {
    this.method = method;
    this.path = path;
    this.headers = headers;
    this.#authority = authority;
  }

  /**
   * Everything before `content-length` and the empty line, in latin1.
   *
   * @throws {WireError} `unsendable`, naming no value: it may be a secret.
   */
  get text(): string {
    this.#text ??= this.#build();
    return this.#text;
  }

  #build(): string {
    if (!TARGET.test(this.path)) throw new WireError('unsendable', 'the request target has characters no URL has');
    let lines = '';
    let named = false;
    for (let at = 0; at < this.headers.length; at += 2) {
      const name = this.headers[at] ?? '';
      const value = this.headers[at + 1] ?? '';
      if (!NAME.test(name)) throw new WireError('unsendable', `${JSON.stringify(name)} is no header name`);
      if (!VALUE.test(value)) throw new WireError('unsendable', `header ${name} has a character headers cannot carry`);
      named ||= name.toLowerCase() === 'host';
      lines += `${name}: ${value}\r\n`;
    }
    const host = named ? '' : `host: ${this.#authority}\r\n`;
    return `${this.method} ${this.path} HTTP/1.1\r\n${host}connection: keep-alive\r\n${lines}`;
  }
}

/** A whole request, to be written at once: a string is latin1. @throws {WireError} `unsendable` */
export function requestBytes(head: RequestHead, body: string | undefined): string | Buffer {
  if (body === undefined) return `${head.text}\r\n`;
  // Mostly all of it is ASCII, as many bytes as characters. To count them makes one piece of it, which is written then.
  const likely = `${head.text}content-length: ${body.length}\r\n\r\n${body}`;
  if (Buffer.byteLength(likely) === likely.length) return likely;
  const bytes = Buffer.byteLength(body);
  // It was the head that is more, and latin1 can say that.
  if (bytes === body.length) return likely;
  const text = `${head.text}content-length: ${bytes}\r\n\r\n`;
  const whole = Buffer.allocUnsafe(text.length + bytes);
  whole.write(text, 'latin1');
  whole.write(body, text.length, 'utf8');
  return whole;
}
