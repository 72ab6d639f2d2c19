import { detach, KeptMap } from '../json/kept-text.ts';
import type { DestinationStream } from 'pino';

/** The kinds of messages of clients, which are the texts of their lines. */
export type LoggedKind = 'request' | 'notification' | 'response';

/** The name and version by which a client describes itself. */
export interface LoggedClient {
  readonly name: string;
  readonly version: string;
}

/**
 * The fields of one message of a client: the sender, the method, the upstream and the outcome. Holds no content of messages, and
 * no credential: a session is named by its digest. Members that a message does not have are undefined.
 */
export interface RequestLine {
  readonly kind: LoggedKind;
  readonly method: string | undefined;
  /** The id of the request as JSON text. */
  readonly id: string | undefined;
  /** The published name of the called tool. */
  readonly tool: string | undefined;
  /** The upstream's own name for it. */
  readonly upstreamTool: string | undefined;
  readonly upstream: string | undefined;
  /** The digest of the session, or of the group of a modern client. */
  readonly session: string | undefined;
  readonly client: LoggedClient | undefined;
  readonly principal: string;
  /** The id of the endpoint; empty for the merged one. */
  readonly view: string;
  readonly era: string | undefined;
  readonly revision: string | undefined;
  /** Undefined for success. */
  readonly error: string | undefined;
  /** The code of a JSON-RPC error. */
  readonly code: number | undefined;
  /** Size of `params` in UTF-8. */
  readonly bytesIn: number;
  /** Size of `result` in UTF-8. */
  readonly bytesOut: number | undefined;
  /** The time until the answer. */
  readonly ms: number | undefined;
  /** Undefined if the message is not traced. */
  readonly traceId: string | undefined;
}

/** The number of lines that are buffered before a write. */
const BATCH = 256;
const FLUSH_MS = 100;

/** The largest number of texts that are cached as JSON. */
const MAX_QUOTED = 1_000;
/** The longest part of a text that is logged, because clients choose some of them. */
const MAX_TEXT_CHARS = 200;

/** A request id that needs no quoting. */
const NUMBER = /^-?\d{1,20}$/;

/** Characters that JSON allows in texts and that can change a terminal or hide text. */
const UNSAFE = /[\u007F-\u009F\u2028\u2029\p{Bidi_Control}]/gu;

/** Selects the lines of a {@link RequestLog}. */
export interface RequestLogOptions {
  /** Writes lines of failed requests only. */
  readonly errorsOnly?: boolean;
  /** Returns whether lines are written at this moment. Default: always. */
  readonly isEnabled?: () => boolean;
}

/**
 * Writes one JSON line per message of a client, in the form of the other log lines. Builds the text itself and writes in batches,
 * because there is a line for every request.
 */
export class RequestLog {
  readonly #destination: DestinationStream;
  readonly #time: () => string;
  readonly #errorsOnly: boolean;
  readonly #isEnabled: () => boolean;
  readonly #quoted = new KeptMap<string>();
  /** The last line, and its text without the fields that differ in each line; the next line often has the same text. */
  #last: RequestLine | undefined;
  #lastText = '';
  #lines = '';
  #count = 0;
  #timer: NodeJS.Timeout | undefined;

  /** @param time returns `,"time":"…"` in pino's form. */
  constructor(destination: DestinationStream, time: () => string, options: RequestLogOptions = {}) {
    this.#destination = destination;
    this.#time = time;
    this.#errorsOnly = options.errorsOnly ?? false;
    this.#isEnabled = options.isEnabled ?? (() => true);
  }

  /** Returns whether a message with this outcome gets a line. The level of the log may change at any time. */
  wants(error: string | undefined): boolean {
    return (error !== undefined || !this.#errorsOnly) && this.#isEnabled();
  }

  /** Writes a line if {@link wants} is true for it. */
  write(line: RequestLine): void {
    if (!this.wants(line.error)) return;
    if (!hasSameFields(line, this.#last)) {
      this.#last = line;
      this.#lastText = this.#describe(line);
    }
    this.#lines += `{"level":30${this.#time()}${this.#lastText}${varyingFields(line)},"msg":"${line.kind}"}\n`;
    if (++this.#count >= BATCH) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), FLUSH_MS).unref();
  }

  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#count === 0) return;
    this.#destination.write(this.#lines);
    this.#lines = '';
    this.#count = 0;
  }

  /** Returns the text of the fields between the time and those of {@link varyingFields}. */
  #describe(line: RequestLine): string {
    const { method, tool, upstreamTool, upstream, client, principal, view, era, revision, error, code, kind } = line;
    let text = `,"name":"linkspan","pid":${process.pid}`;
    if (method !== undefined) text += `,"method":${this.#quote(method)}`;
    if (tool !== undefined) text += `,"tool":${this.#quote(tool)}`;
    if (upstream !== undefined) text += `,"upstream":"${upstream}"`;
    if (upstreamTool !== undefined) text += `,"upstreamTool":${this.#quote(upstreamTool)}`;
    if (client !== undefined) {
      text += `,"client":${this.#quote(client.name)},"clientVersion":${this.#quote(client.version)}`;
    }
    text += `,"principal":${this.#quote(principal)}`;
    if (view !== '') text += `,"endpoint":${this.#quote(view)}`;
    if (era !== undefined) text += `,"era":"${era}"`;
    if (revision !== undefined) text += `,"revision":"${revision}"`;
    if (kind === 'request') text += `,"status":"${error === undefined ? 'ok' : 'error'}"`;
    if (error !== undefined) text += `,"error":"${error}"`;
    return code === undefined ? text : `${text},"code":${code}`;
  }

  #quote(text: string): string {
    const known = this.#quoted.get(text);
    if (known !== undefined) return known;
    const quoted = shortJson(text);
    if (this.#quoted.size < MAX_QUOTED) this.#quoted.set(detach(text), quoted);
    return quoted;
  }
}

/** Returns whether two lines differ in the fields of {@link varyingFields} only. Without a loop, because it runs for every request. */
function hasSameFields(line: RequestLine, last: RequestLine | undefined): boolean {
  return (
    last !== undefined &&
    line.method === last.method &&
    line.tool === last.tool &&
    line.upstreamTool === last.upstreamTool &&
    line.upstream === last.upstream &&
    line.client === last.client &&
    line.principal === last.principal &&
    line.view === last.view &&
    line.revision === last.revision &&
    line.error === last.error &&
    line.code === last.code &&
    line.kind === last.kind
  );
}

/** Returns the text of the fields that differ in each line. */
function varyingFields({ session, id, traceId, bytesIn, bytesOut, ms }: RequestLine): string {
  let text = session === undefined ? '' : `,"session":"${session}"`;
  if (id !== undefined) text += `,"requestId":${idText(id)}`;
  if (traceId !== undefined) text += `,"traceId":"${traceId}"`;
  text += `,"bytesIn":${bytesIn}`;
  if (bytesOut !== undefined) text += `,"bytesOut":${bytesOut}`;
  return ms === undefined ? text : `${text},"ms":${msText(ms)}`;
}

/** Returns a time with three decimals. Two integers take far fewer instructions than the shortest text of a fraction. */
function msText(ms: number): string {
  const us = Math.round(ms * 1000);
  const decimals = us % 1000;
  return `${(us - decimals) / 1000}${decimals < 10 ? '.00' : decimals < 100 ? '.0' : '.'}${decimals}`;
}

/** Returns a request id as JSON, shortened and without unsafe characters. @param id JSON text. */
function idText(id: string): string {
  if (NUMBER.test(id)) return id;
  const value: unknown = JSON.parse(id);
  return shortJson(typeof value === 'string' ? value : id);
}

/** Returns the first characters of a text as JSON, with unsafe characters as escapes. */
function shortJson(text: string): string {
  return JSON.stringify(text.slice(0, MAX_TEXT_CHARS)).replace(
    UNSAFE,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
