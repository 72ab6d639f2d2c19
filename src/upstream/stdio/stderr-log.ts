import type { ChildProcess } from 'node:child_process';
import type { Logger } from 'pino';
import { LIMITS, type LimitName } from '../../limits.ts';
import { LineSplitter } from '../../protocol/framing/lines.ts';
import { TokenBucket } from '../rpc/token-bucket.ts';
import { severityOf } from './line-severity.ts';
import { printedLine, RecentLines } from './recent-lines.ts';
import { tellingLine } from './telling-line.ts';

const TAIL_CHARS = 2_048;
const SECOND_MS = 1_000;
export interface StderrLogParts {
  /** Names the upstream in each line. */
  readonly log: Logger;
  /** Values of the config that a line must not show. */
  readonly secrets: readonly string[];
  readonly onLimit?: ((limit: LimitName) => void) | undefined;
  /** Returns the time in ms; monotonic. */
  readonly now?: () => number;
}

/** The stderr of one upstream process: its lines in the log at level debug, and the latest ones for the report of its end. */
export class StderrLog {
  readonly #parts: StderrLogParts;
  readonly #now: () => number;
  readonly #recent = new RecentLines(TAIL_CHARS);
  readonly #lines = new LineSplitter(
    LIMITS.stderrLineBytes,
    (line, isCut) => this.#add(line, isCut),
    () => this.#countRead(),
  );
  readonly #readRate = new TokenBucket(LIMITS.stderrLinesReadPerSecond);
  /** The time until more may be read, after the lines of the last chunk (ms). */
  #waitMs = 0;
  #secondMs = 0;
  /** Lines of the current second, and those of them that are not logged. */
  #count = 0;
  #dropped = 0;

  constructor(parts: StderrLogParts) {
    this.#parts = parts;
    this.#now = parts.now ?? (() => performance.now());
  }

  /** Reads the stderr of a program, and pauses if there are too many lines. Then the program waits until it can print. */
  read(child: ChildProcess): void {
    const { stderr } = child;
    let hasExited = false;
    stderr?.on('data', (chunk: Buffer) => {
      this.push(chunk);
      if (this.#waitMs === 0 || hasExited) return;
      stderr.pause();
      this.#parts.onLimit?.('stderrLinesReadPerSecond');
      setTimeout(() => stderr.resume(), this.#waitMs).unref();
    });
    stderr?.on('end', () => this.end());
    child.once('exit', () => {
      // The rest is short, and may say why.
      hasExited = true;
      stderr?.resume();
    });
  }

  push(chunk: Buffer): void {
    this.#waitMs = 0;
    this.#lines.push(chunk);
  }

  end(): void {
    this.#lines.end();
    this.#reportDropped();
  }

  get last(): string | undefined {
    return this.#recent.last;
  }

  /** The line of the latest ones that most likely says why the process ended; undefined if there is none. */
  get likelyCause(): string | undefined {
    return tellingLine(this.#recent.lines);
  }

  /** Returns a line of the program without secrets of the config. */
  redacted(text: string): string {
    return this.#parts.secrets.reduce((line, secret) => line.replaceAll(secret, '[redacted]'), text);
  }

  toString(): string {
    return this.#recent.toString();
  }

  #countRead(): void {
    this.#waitMs = this.#readRate.take(this.#now());
  }

  #add(text: string, isCut: boolean): void {
    this.#countRead();
    const { log, onLimit } = this.#parts;
    if (isCut) onLimit?.('stderrLineBytes');
    const shown = this.redacted(text);
    const line = printedLine(isCut ? `${shown}…` : shown, LIMITS.stderrLineBytes + 1);
    this.#recent.add(line);
    if (log.isLevelEnabled('debug') && this.#isAllowed()) {
      log.debug({ line, severity: severityOf(line) }, 'upstream stderr');
    }
  }

  #isAllowed(): boolean {
    const nowMs = this.#now();
    if (nowMs - this.#secondMs >= SECOND_MS) {
      this.#reportDropped();
      this.#secondMs = nowMs;
      this.#count = 0;
    }
    this.#count++;
    if (this.#count <= LIMITS.stderrLinesPerSecond) return true;
    if (this.#dropped === 0) this.#parts.onLimit?.('stderrLinesPerSecond');
    this.#dropped++;
    return false;
  }

  #reportDropped(): void {
    if (this.#dropped > 0) this.#parts.log.debug({ lines: this.#dropped }, 'lines of upstream stderr are not logged');
    this.#dropped = 0;
  }
}
