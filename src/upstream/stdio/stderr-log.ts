import type { Logger } from 'pino';
import { LIMITS, type LimitName } from '../../limits.ts';
import { LineSplitter } from '../../protocol/framing/lines.ts';
import type { Severity } from '../../protocol/severity.ts';
import { printedLine, RecentLines } from './recent-lines.ts';

const TAIL_CHARS = 2_048;
const SECOND_MS = 1_000;
/** The part of a line that is searched for its severity. */
const HEAD_CHARS = 200;

/** The words by which programs name the severity of a line. */
const SEVERITIES: ReadonlyMap<string, Severity> = new Map([
  ['trace', 'debug'],
  ['debug', 'debug'],
  ['info', 'info'],
  ['notice', 'notice'],
  ['warn', 'warning'],
  ['warning', 'warning'],
  ['err', 'error'],
  ['error', 'error'],
  ['traceback', 'error'],
  ['fatal', 'critical'],
  ['panic', 'critical'],
  ['critical', 'critical'],
]);
const WORDS = [...SEVERITIES.keys()].join('|');

/** The forms in which programs write it: `level=warn`, `"level":"warn"`; `error: …`, `[Error] …`; and ` WARNING ` in the line. */
const FORMS: readonly RegExp[] = [
  new RegExp(`"?\\b(?:level|severity|levelname)"?\\s*[=:]\\s*"?(${WORDS})\\b`, 'i'),
  new RegExp(`^\\W*(${WORDS})\\b(?=\\W*[:\\]|(])`, 'i'),
  new RegExp(`\\b(${WORDS.toUpperCase()})\\b`),
];

/** Returns the severity that a program gives to a line of its stderr; undefined if it names none. */
export function severityOf(line: string): Severity | undefined {
  const head = line.slice(0, HEAD_CHARS);
  for (const form of FORMS) {
    const word = form.exec(head)?.[1];
    if (word !== undefined) return SEVERITIES.get(word.toLowerCase());
  }
  return undefined;
}

/** The first line of an error with its stack: `TypeError: …`, `Error [ERR_X]: …`, `a.b.SomeException: …`. */
const THROWN = /^\W*(?:[\w$]+[.:]+)*[\w$]*(?:Error|Exception|Panic)(?: \[\w+\])?:/;

/** The cause of an error, in a line of its own: uv and Rust programs print the name of the missing package there. */
const CAUSE = /^\s*(?:cause|caused by): ./i;

/** Returns whether a line of stderr looks like the message of an error. */
function isErrorLine(line: string): boolean {
  if (THROWN.test(line) || CAUSE.test(line)) return true;
  // The error follows the stack.
  if (line.startsWith('Traceback')) return false;
  const severity = severityOf(line);
  return severity === 'error' || severity === 'critical';
}

/** The parts that a {@link StderrLog} is constructed from. */
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
  readonly #lines = new LineSplitter(LIMITS.stderrLineBytes, (line, isCut) => this.#add(line, isCut));
  #secondMs = 0;
  /** Lines of the current second, and those of them that are not logged. */
  #count = 0;
  #dropped = 0;

  constructor(parts: StderrLogParts) {
    this.#parts = parts;
    this.#now = parts.now ?? (() => performance.now());
  }

  push(chunk: Buffer): void {
    this.#lines.push(chunk);
  }

  /** Ends the last line. */
  end(): void {
    this.#lines.end();
    this.#reportDropped();
  }

  /** The latest line; undefined before the first. */
  get last(): string | undefined {
    return this.#recent.last;
  }

  /** The latest line that names an error, or else the latest line; undefined before the first. */
  get likelyCause(): string | undefined {
    return this.#recent.findLast(isErrorLine) ?? this.#recent.last;
  }

  /** The latest lines. */
  toString(): string {
    return this.#recent.toString();
  }

  #add(text: string, isCut: boolean): void {
    const { log, secrets, onLimit } = this.#parts;
    if (isCut) onLimit?.('stderrLineBytes');
    const shown = secrets.reduce((line, secret) => line.replaceAll(secret, '[redacted]'), text);
    const line = printedLine(isCut ? `${shown}…` : shown, LIMITS.stderrLineBytes + 1);
    this.#recent.add(line);
    if (log.isLevelEnabled('debug') && this.#isAllowed()) {
      log.debug({ line, severity: severityOf(line) }, 'upstream stderr');
    }
  }

  /** Returns whether a line may be logged in this second. */
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
