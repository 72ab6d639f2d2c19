import { detach, KeptMap } from '../json/memo.ts';
import type { DestinationStream } from 'pino';

/** What is said of each request: who asked what of whom and how it ended, without anything that was said. */
export interface RequestLine {
  readonly method: string;
  readonly tool: string | undefined;
  readonly upstream: string | undefined;
  readonly principal: string;
  readonly revision: string;
  /** Undefined for success. */
  readonly error: string | undefined;
  readonly ms: number;
}

/** Lines are written this many at once at most. */
const BATCH = 256;
const FLUSH_MS = 100;

/** Texts that come again and again, as JSON. */
const MAX_QUOTED = 1_000;
/** Of a text that a client chose. */
const MAX_CHARS = 200;

/**
 * One line of JSON for each request, in the form of the other log lines. It is written for every request there is, so it is put
 * together by hand and many are written at once.
 */
export class RequestLog {
  readonly #destination: DestinationStream;
  readonly #time: () => string;
  readonly #errorsOnly: boolean;
  readonly #quoted = new KeptMap<string>();
  /** The line written last, and what it says but for times: the next one often says the same. */
  #last: RequestLine | undefined;
  #lastText = '';
  #lines = '';
  #count = 0;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param time `,"time":"…"` as pino has it.
   * @param errorsOnly whether requests that succeeded get no line.
   */
  constructor(destination: DestinationStream, time: () => string, errorsOnly = false) {
    this.#destination = destination;
    this.#time = time;
    this.#errorsOnly = errorsOnly;
  }

  write(line: RequestLine): void {
    if (this.#errorsOnly && line.error === undefined) return;
    if (!isAlike(line, this.#last)) {
      this.#last = line;
      this.#lastText = this.#describe(line);
    }
    const ms = Math.round(line.ms * 1000) / 1000;
    this.#lines += `{"level":30${this.#time()}${this.#lastText}${ms},"msg":"request"}\n`;
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

  /** What is between the time and the duration. */
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
    const quoted = JSON.stringify(text.slice(0, MAX_CHARS));
    if (this.#quoted.size < MAX_QUOTED) this.#quoted.set(detach(text), quoted);
    return quoted;
  }
}

function isAlike(line: RequestLine, last: RequestLine | undefined): boolean {
  return (
    line.method === last?.method &&
    line.tool === last.tool &&
    line.upstream === last.upstream &&
    line.principal === last.principal &&
    line.revision === last.revision &&
    line.error === last.error
  );
}
