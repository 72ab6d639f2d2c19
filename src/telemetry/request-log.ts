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
const BATCH = 64;
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
  readonly #quoted = new Map<string, string>();
  #lines = '';
  #count = 0;
  #timer: NodeJS.Timeout | undefined;

  /** @param time `,"time":"…"` as pino has it. */
  constructor(destination: DestinationStream, time: () => string) {
    this.#destination = destination;
    this.#time = time;
  }

  write({ method, tool, upstream, principal, revision, error, ms }: RequestLine): void {
    let line = `{"level":30${this.#time()},"name":"linkspan","pid":${process.pid},"method":${this.#quote(method)}`;
    if (tool !== undefined) line += `,"tool":${this.#quote(tool)}`;
    if (upstream !== undefined) line += `,"upstream":"${upstream}"`;
    line += `,"principal":${this.#quote(principal)},"revision":"${revision}"`;
    if (error !== undefined) line += `,"error":"${error}"`;
    this.#lines += `${line},"ms":${Math.round(ms * 1000) / 1000},"msg":"request"}\n`;
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

  #quote(text: string): string {
    const known = this.#quoted.get(text);
    if (known !== undefined) return known;
    const quoted = JSON.stringify(text.slice(0, MAX_CHARS));
    if (this.#quoted.size < MAX_QUOTED) this.#quoted.set(text, quoted);
    return quoted;
  }
}
