import type { DestinationStream } from 'pino';
import { detach, KeptMap } from '../json/kept-text.ts';
import { SHOWN_CHARS, shownText } from '../peer-text.ts';

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
  /** The reason for which the gateway has refused the message. */
  readonly reason: string | undefined;
  /** The reason for which the access policy or a decision point has denied the request. */
  readonly denied: string | undefined;
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

/** The length of buffered lines from which on they are written. */
const BATCH_CHARS = 65_536;

/** The largest number of texts that are cached as JSON. */
const MAX_QUOTED = 1_000;

/** The longest line. If it would be longer, only the first characters of each text are in it. */
const MAX_LINE_BYTES = 1_024;
const SHORT_CHARS = 16;
/** The largest number of bytes of one UTF-16 code unit in UTF-8. */
const MAX_UTF8_BYTES = 3;

/** A request id that needs no quoting. */
const NUMBER = /^-?\d{1,20}$/;

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
  #lastBytes = 0;
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
      this.#lastText = this.#describe(line, this.#quote);
      this.#lastBytes = Buffer.byteLength(this.#lastText);
    }
    let text = lineText(this.#time(), this.#lastText, varyingFields(line, SHOWN_CHARS), line);
    const mostBytes = this.#lastBytes + MAX_UTF8_BYTES * (text.length - this.#lastText.length);
    if (mostBytes > MAX_LINE_BYTES && Buffer.byteLength(text) > MAX_LINE_BYTES) {
      const described = this.#describe(line, (one) => JSON.stringify(shownText(one, SHORT_CHARS)));
      text = lineText(this.#time(), described, varyingFields(line, SHORT_CHARS), line);
    }
    this.#lines += text;
    if (++this.#count >= BATCH || this.#lines.length >= BATCH_CHARS) this.flush();
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

  /** Returns the text of the fields between the time and those of {@link varyingFields}. @param quote writes a text as JSON. */
  #describe(line: RequestLine, quote: (text: string) => string): string {
    const { method, tool, upstreamTool, upstream, client, principal, view, era, revision, error, code, kind } = line;
    const { reason, denied } = line;
    let text = `,"name":"linkspan","pid":${process.pid}`;
    if (method !== undefined) text += `,"method":${quote(method)}`;
    if (tool !== undefined) text += `,"tool":${quote(tool)}`;
    if (upstream !== undefined) text += `,"upstream":"${upstream}"`;
    if (upstreamTool !== undefined) text += `,"upstreamTool":${quote(upstreamTool)}`;
    if (client !== undefined) {
      text += `,"client":${quote(client.name)},"clientVersion":${quote(client.version)}`;
    }
    text += `,"principal":${quote(principal)}`;
    if (view !== '') text += `,"endpoint":${quote(view)}`;
    if (era !== undefined) text += `,"era":"${era}"`;
    if (revision !== undefined) text += `,"revision":"${revision}"`;
    if (kind === 'request') text += `,"status":"${error === undefined ? 'ok' : 'error'}"`;
    if (error !== undefined) text += `,"error":"${error}"`;
    if (reason !== undefined) text += `,"reason":${quote(reason)}`;
    if (denied !== undefined) text += `,"denied":${quote(denied)}`;
    return code === undefined ? text : `${text},"code":${code}`;
  }

  readonly #quote = (text: string): string => {
    const known = this.#quoted.get(text);
    if (known !== undefined) return known;
    const quoted = JSON.stringify(shownText(text));
    if (text.length <= SHOWN_CHARS && this.#quoted.size < MAX_QUOTED) this.#quoted.set(detach(text), quoted);
    return quoted;
  };
}

function lineText(time: string, described: string, varying: string, { kind }: RequestLine): string {
  return `{"level":30${time}${described}${varying},"msg":"${kind}"}\n`;
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
    line.reason === last.reason &&
    line.denied === last.denied &&
    line.code === last.code &&
    line.kind === last.kind
  );
}

/** Returns the text of the fields that differ in each line. @param maxChars of the id. */
function varyingFields({ session, id, traceId, bytesIn, bytesOut, ms }: RequestLine, maxChars: number): string {
  let text = session === undefined ? '' : `,"session":"${session}"`;
  if (id !== undefined) text += `,"requestId":${idText(id, maxChars)}`;
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

/** Returns a request id as JSON, cut and with unseen characters as escapes. @param id JSON text. */
function idText(id: string, maxChars: number): string {
  if (NUMBER.test(id)) return id;
  const value: unknown = JSON.parse(id);
  return JSON.stringify(shownText(typeof value === 'string' ? value : id, maxChars));
}
