import type { ResponseHeaders } from './wire.ts';
import { WireError } from './error.ts';

/** The head of a response, and what it says of the bytes after it. */
export interface ResponseHead {
  readonly status: number;
  readonly headers: ResponseHeaders;
  /** How the body ends: after so many bytes, with its last chunk, or with the connection. */
  readonly framing: number | 'chunked' | 'close';
  /** How long the server keeps the connection open for another request, in milliseconds; endless where it does not say. */
  readonly keepMs: number;
}

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?\r\n/;
const LENGTH = /^\d{1,15}$/;
const KEEP_TIMEOUT = /(?:^|[,;\s])timeout=(\d{1,6})(?![^,;\s])/i;

const [TAB, LF, CR, SPACE, COLON] = [0x09, 0x0a, 0x0d, 0x20, 0x3a];

/** By character code: 2 where it may stand in a value, 3 where also in a name. */
const KINDS = new Uint8Array(256);
for (let code = SPACE; code < 256; code++) if (code !== 0x7f) KINDS[code] = 2;
KINDS[TAB] = 2;
for (const char of "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
  KINDS[char.charCodeAt(0)] = 3;
}

/** What reads as one thing here and as another elsewhere is how one response passes for two. */
function broken(what: string): WireError {
  return new WireError('not-http', what);
}

function isBlank(code: number): boolean {
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
    while (isBlank(text.charCodeAt(start))) start++;
    let stop = start;
    while ((KINDS[text.charCodeAt(stop)] ?? 0) > 1) stop++;
    if (text.charCodeAt(stop) !== CR || text.charCodeAt(stop + 1) !== LF) {
      throw broken('a response header has a stray control character');
    }
    let end = stop;
    while (end > start && isBlank(text.charCodeAt(end - 1))) end--;
    const name = text.slice(at, colon).toLowerCase();
    const value = text.slice(start, end);
    const before = headers[name];
    if (before === undefined) headers[name] = value;
    else if (typeof before === 'string') headers[name] = [before, value];
    else before.push(value);
    at = stop + 2;
  }
  if (at !== text.length - 2) throw broken('a response head has a stray control character');
  return headers;
}

function readFraming(status: number, headers: ResponseHeaders, isOld: boolean): ResponseHead['framing'] {
  const coding = headers['transfer-encoding'];
  const length = headers['content-length'];
  if (coding !== undefined) {
    if (length !== undefined) throw broken('a response has both a length and a transfer coding');
    if (isOld || typeof coding !== 'string' || coding.toLowerCase() !== 'chunked') {
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

function readKeepMs(headers: ResponseHeaders, isOld: boolean): number {
  const connection = headers['connection'];
  if (connection === undefined && headers['keep-alive'] === undefined) return isOld ? 0 : Infinity;
  const options = String(connection ?? '')
    .toLowerCase()
    .split(',')
    .map((option) => option.trim());
  if (options.includes('close') || (isOld && !options.includes('keep-alive'))) return 0;
  const seconds = KEEP_TIMEOUT.exec(String(headers['keep-alive'] ?? ''))?.[1];
  return seconds === undefined ? Infinity : Number(seconds) * 1_000;
}

/**
 * Reads one response head.
 *
 * @param text in latin1, with the empty line at its end.
 * @throws {WireError} `not-http`
 */
export function readHead(text: string): ResponseHead {
  const line = STATUS_LINE.exec(text);
  if (line === null) throw broken('the answer is no HTTP/1.1 response');
  const status = Number(line[2]);
  // We never ask for another protocol.
  if (status === 101) throw broken('the answer switches protocols unasked');
  const isOld = line[1] === '0';
  const headers = readHeaders(text, line[0].length);
  const framing = readFraming(status, headers, isOld);
  return { status, headers, framing, keepMs: framing === 'close' ? 0 : readKeepMs(headers, isOld) };
}
