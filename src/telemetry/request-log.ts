import { detach, KeptMap } from '../json/kept-text.ts';
import type { DestinationStream } from 'pino';

/**
 * The fields of one request: who called which method of which upstream, and its outcome. Holds no content of messages.
 */
export interface RequestLine {
  readonly method: string;
  readonly tool: string | undefined;
  readonly upstream: string | undefined;
  readonly principal: string;
  readonly revision: string;
  /** Undefined for success. */
  readonly error: string | undefined;
  readonly ms: number;
  /** Undefined if requests are not traced. */
  readonly traceId?: string | undefined;
}

/** The number of lines that are buffered before a write. */
const BATCH = 256;
const FLUSH_MS = 100;

/** The largest number of texts that are cached as JSON. */
const MAX_QUOTED = 1_000;
/** The longest part of a text that is logged, because clients choose some of them. */
const MAX_TEXT_CHARS = 200;

/**
 * Writes one JSON line per request, in the form of the other log lines. Builds the text itself and writes in batches,
 * because there is a line for every request.
 */
export class RequestLog {
  readonly #destination: DestinationStream;
  readonly #time: () => string;
  readonly #errorsOnly: boolean;
  readonly #quoted = new KeptMap<string>();
  /** The last line, and its text without times; the next line often has the same text. */
  #last: RequestLine | undefined;
  #lastText = '';
  #lines = '';
  #count = 0;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param time returns `,"time":"…"` in pino's form.
   * @param errorsOnly whether to log failed requests only.
   */
  constructor(destination: DestinationStream, time: () => string, errorsOnly = false) {
    this.#destination = destination;
    this.#time = time;
    this.#errorsOnly = errorsOnly;
  }

  write(line: RequestLine): void {
    if (this.#errorsOnly && line.error === undefined) return;
    if (!hasSameFields(line, this.#last)) {
      this.#last = line;
      this.#lastText = this.#describe(line);
    }
    const ms = Math.round(line.ms * 1000) / 1000;
    const trace = line.traceId === undefined ? '' : `,"traceId":"${line.traceId}"`;
    this.#lines += `{"level":30${this.#time()}${this.#lastText}${ms}${trace},"msg":"request"}\n`;
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

  /** Returns the text between the time and the duration. */
  #describe({ method, tool, upstream, principal, revision, error }: RequestLine): string {
    let text = `,"name":"linkspan","pid":${process.pid},"method":${this.#quote(method)}`;
    if (tool !== undefined) text += `,"tool":${this.#quote(tool)}`;
    if (upstream !== undefined) text += `,"upstream":"${upstream}"`;
    text += `,"principal":${this.#quote(principal)},"revision":"${revision}"`;
    if (error !== undefined) text += `,"error":"${error}"`;
    return `${text},"ms":`;
  }

  #quote(text: string): string {
    const known = this.#quoted.get(text);
    if (known !== undefined) return known;
    const quoted = JSON.stringify(text.slice(0, MAX_TEXT_CHARS));
    if (this.#quoted.size < MAX_QUOTED) this.#quoted.set(detach(text), quoted);
    return quoted;
  }
}

function hasSameFields(line: RequestLine, last: RequestLine | undefined): boolean {
  return (
    line.method === last?.method &&
    line.tool === last.tool &&
    line.upstream === last.upstream &&
    line.principal === last.principal &&
    line.revision === last.revision &&
    line.error === last.error
  );
}
