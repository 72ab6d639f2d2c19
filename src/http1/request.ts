import { WireError } from './error.ts';

/** Request headers as a flat list: name, value, name, value. */
export type HeaderList = readonly string[];

type Method = 'GET' | 'POST' | 'DELETE';

const TARGET = /^[\x21-\x7e]+$/;
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** The part of a request that many requests share. Its text is built once. */
export class RequestHead {
  readonly method: Method;
  readonly path: string;
  readonly headers: HeaderList;
  readonly #authority: string;
  #text: string | undefined;

  /** @param authority `host:port`, the value of the `Host` header if `headers` has none. */
  constructor(method: Method, authority: string, path: string, headers: HeaderList) {
    this.method = method;
    this.path = path;
    this.headers = headers;
    this.#authority = authority;
  }

  /**
   * The request line and the headers in latin1, without `content-length` and the empty line.
   *
   * @throws {WireError} `unsendable`. The message contains no header value, because it may be a secret.
   */
  get text(): string {
    this.#text ??= this.#build();
    return this.#text;
  }

  /** Returns a head with further headers at its end. @param without names, in lower case, that they take the place of. */
  with(headers: HeaderList, without: ReadonlySet<string>): RequestHead {
    // A name is at an even index, and its value behind it.
    const kept = this.headers.filter((_, at) => !without.has(this.headers[at - (at % 2)]?.toLowerCase() ?? ''));
    return new RequestHead(this.method, this.#authority, this.path, [...kept, ...headers]);
  }

  #build(): string {
    if (!TARGET.test(this.path)) throw new WireError('unsendable', 'the request target has characters no URL has');
    const lines: string[] = [];
    let hasHost = false;
    for (let at = 0; at < this.headers.length; at += 2) {
      const name = this.headers[at] ?? '';
      const value = this.headers[at + 1] ?? '';
      if (!NAME.test(name)) throw new WireError('unsendable', `${JSON.stringify(name)} is no header name`);
      if (!VALUE.test(value)) throw new WireError('unsendable', `header ${name} has a character headers cannot carry`);
      hasHost ||= name.toLowerCase() === 'host';
      lines.push(name, ': ', value, '\r\n');
    }
    const host = hasHost ? '' : `host: ${this.#authority}\r\n`;
    // Joined, which makes one flat string. A text that grows by `+=` stays a tree, and every request would walk it again.
    return [this.method, ' ', this.path, ' HTTP/1.1\r\n', host, 'connection: keep-alive\r\n', ...lines].join('');
  }
}

/** Returns the bytes of a whole request; a string is to be written as latin1. @throws {WireError} `unsendable` */
export function requestBytes(head: RequestHead, body: string | undefined): string | Buffer {
  if (body === undefined) return `${head.text}\r\n`;
  // Most requests are ASCII: as many bytes as characters. Counting also flattens the string, which the write needs anyway.
  const ifAscii = `${head.text}content-length: ${body.length}\r\n\r\n${body}`;
  if (Buffer.byteLength(ifAscii) === ifAscii.length) return ifAscii;
  const bytes = Buffer.byteLength(body);
  // Only the head has other characters, and latin1 can encode those.
  if (bytes === body.length) return ifAscii;
  const text = `${head.text}content-length: ${bytes}\r\n\r\n`;
  const request = Buffer.allocUnsafe(text.length + bytes);
  request.write(text, 'latin1');
  request.write(body, text.length, 'utf8');
  return request;
}
