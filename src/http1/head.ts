import type { ResponseHeaders } from './wire.ts';
import { WireError } from './error.ts';

/** The head of a response, with the framing of the body that follows it. */
export interface ResponseHead {
  readonly status: number;
  readonly headers: ResponseHeaders;
  /** The end of the body: after this number of bytes, with the last chunk, or when the connection closes. */
  readonly framing: number | 'chunked' | 'close';
  /** The time that the server keeps the connection open for another request; `Infinity` if it names no time. */
  readonly keepMs: number;
}

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?\r\n/;
const LENGTH = /^\d{1,15}$/;
const KEEP_TIMEOUT = /(?:^|[,;\s])timeout=(\d{1,6})(?![^,;\s])/i;

const [TAB, LF, CR, SPACE, COLON] = [0x09, 0x0a, 0x0d, 0x20, 0x3a];

/** By character code: 2 if it is allowed in a header value, 3 if it is allowed in a name as well. */
const KINDS = new Uint8Array(256);
for (let code = SPACE; code < 256; code++) if (code !== 0x7f) KINDS[code] = 2;
KINDS[TAB] = 2;
for (const char of "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
  KINDS[char.charCodeAt(0)] = 3;
}

/** Returns the error for an ambiguous or invalid head. Leniency would permit response splitting. */
function broken(problem: string): WireError {
  return new WireError('not-http', problem);
}

function isSpaceOrTab(code: number): boolean {
  return code === SPACE || code === TAB;
}

function readHeaders(text: string, from: number): Record<string, string | string[] | undefined> {
  const headers: Record<string, string | string[] | undefined> = Object.create(null);
  let at = from;
  while (text.charCodeAt(at) !== CR) {
    let colon = at;
    while (KINDS[text.charCodeAt(colon)] === 3) colon++;
    if (colon === at || text.charCodeAt(colon) !== COLON) throw broken('a response header has no proper name');
    let start = colon + 1;
    while (isSpaceOrTab(text.charCodeAt(start))) start++;
    let stop = start;
    while ((KINDS[text.charCodeAt(stop)] ?? 0) > 1) stop++;
    if (text.charCodeAt(stop) !== CR || text.charCodeAt(stop + 1) !== LF) {
      throw broken('a response header has a stray control character');
    }
    let end = stop;
    while (end > start && isSpaceOrTab(text.charCodeAt(end - 1))) end--;
    const name = text.slice(at, colon).toLowerCase();
    const value = text.slice(start, end);
    const previous = headers[name];
    if (previous === undefined) headers[name] = value;
    else if (typeof previous === 'string') headers[name] = [previous, value];
    else previous.push(value);
    at = stop + 2;
  }
  if (at !== text.length - 2) throw broken('a response head has a stray control character');
  return headers;
}

function readFraming(status: number, headers: ResponseHeaders, isHttp10: boolean): ResponseHead['framing'] {
  const coding = headers['transfer-encoding'];
  const length = headers['content-length'];
  if (coding !== undefined) {
    if (length !== undefined) throw broken('a response has both a length and a transfer coding');
    if (isHttp10 || typeof coding !== 'string' || coding.toLowerCase() !== 'chunked') {
      throw broken('a response has a transfer coding other than chunked');
    }
  }
  if (length !== undefined && (typeof length !== 'string' || !LENGTH.test(length))) {
    throw broken('a response has no proper content length');
  }
  if (status < 200 || status === 204 || status === 304) return 0;
  if (coding !== undefined) return 'chunked';
  return length === undefined ? 'close' : Number(length);
}

function readKeepMs(headers: ResponseHeaders, isHttp10: boolean): number {
  const connection = headers['connection'];
  if (connection === undefined && headers['keep-alive'] === undefined) return isHttp10 ? 0 : Infinity;
  const options = String(connection ?? '')
    .toLowerCase()
    .split(',')
    .map((option) => option.trim());
  if (options.includes('close') || (isHttp10 && !options.includes('keep-alive'))) return 0;
  const seconds = KEEP_TIMEOUT.exec(String(headers['keep-alive'] ?? ''))?.[1];
  return seconds === undefined ? Infinity : Number(seconds) * 1_000;
}

/**
 * Parses one response head.
 *
 * @param text the head in latin1, with the empty line at its end.
 * @throws {WireError} `not-http`
 * @see https://www.rfc-editor.org/rfc/rfc9112#section-4
 */
export function readHead(text: string): ResponseHead {
  const line = STATUS_LINE.exec(text);
  if (line === null) throw broken('the answer is no HTTP/1.1 response');
  const status = Number(line[2]);
  // We never ask for another protocol.
  if (status === 101) throw broken('the answer switches protocols unasked');
  const isHttp10 = line[1] === '0';
  const headers = readHeaders(text, line[0].length);
  const framing = readFraming(status, headers, isHttp10);
  return { status, headers, framing, keepMs: framing === 'close' ? 0 : readKeepMs(headers, isHttp10) };
}
