import { styleText } from 'node:util';
import { type DestinationStream, type Logger as PinoLogger, pino } from 'pino';

import type { AccessLog, LogLevel } from '../config/values/config.ts';
import { loggedError } from './log-error.ts';
import { escapeUnseen, shownLines } from '../peer-text.ts';
import { LogTail } from './log/log-tail.ts';
import { redacted } from './redact.ts';
import { RequestLog } from './request-log.ts';
import { MESSAGE_CHARS, shownFields, shownValue } from './log/shown-fields.ts';
import { type LogDestination, stderrDestination } from './log/stderr-destination.ts';
import { withoutRepeats } from './log/without-repeats.ts';
import { TerminalLog } from './terminal-log.ts';

export type Logger = PinoLogger;

/** `json`: JSON lines for machines. `pretty`: lines for a person at a terminal. */
export type LogFormat = 'json' | 'pretty';

export interface LogOptions {
  /** Default: JSON. */
  readonly format?: LogFormat;
  /** The requests that get a line. Default: all. */
  readonly requests?: Exclude<AccessLog, 'auto'>;
}

/**
 * Creates a logger that writes to stderr; with a stdio client, stdout belongs to the protocol. Lines are written
 * asynchronously, with a bound on those that wait, and flushed when the process exits.
 *
 * Errors under `err` are logged with their causes. Unexpected errors have a stack; at level debug all errors have one. Equal failures of
 * one upstream are logged once and then as counts (`repeated`) at growing intervals. Fields that may hold secrets are redacted
 * ({@link redacted}), and texts of peers are cut ({@link shownFields}). The text of a message is not redacted. So put text of a peer into a
 * field of its own, or do not log it.
 */
export function createLogger(
  level: LogLevel,
  destination?: DestinationStream,
  { format = 'json', requests = 'all' }: LogOptions = {},
): Logger {
  const reportDropped = (dropped: number): void =>
    log.warn({ dropped }, 'lines of the log are lost: they were not read fast enough');
  const { shown, stderr }: Opened =
    destination === undefined ? openStderr(format, reportDropped) : { shown: destination };
  const tail = new LogTail();
  const to: DestinationStream = {
    write(text) {
      shown.write(text);
      tail.write(text);
    },
  };
  const children = new Set<WeakRef<PinoLogger>>();
  const log: PinoLogger = pino(
    {
      level,
      onChild: (child) => addChild(children, child),
      base: { name: 'linkspan', pid: process.pid },
      timestamp: isoTime,
      hooks: {
        logMethod([first, message], write) {
          if (typeof first === 'string') write.call(this, shownLines(first, MESSAGE_CHARS));
          else write.call(this, first, shownLines(message ?? '', MESSAGE_CHARS));
        },
      },
      formatters: { log: (fields) => shownFields(redacted(fields)) },
      serializers: { err: (error: unknown) => shownError(loggedError(error, log.isLevelEnabled('debug'))) },
    },
    // The terminal log counts repeats itself.
    format === 'json' ? withoutRepeats(to, () => !log.isLevelEnabled('debug')) : to,
  );
  destinations.set(log, { destination: to, stderr, requests, tail, children });
  return log;
}

/** Returns an error in the form of a log line without the arguments of programs and other secrets, and with its texts cut. */
function shownError(error: unknown): unknown {
  return typeof error === 'object' && error !== null
    ? shownFields(redacted({ ...error }, 1))
    : shownValue('message', error);
}

/** Remembers a child, because a change of the level does not reach it by itself. Forgets those that are gone. */
function addChild(children: Set<WeakRef<PinoLogger>>, child: PinoLogger): void {
  if (children.size >= SWEEP_CHILDREN && Math.log2(children.size) % 1 === 0) {
    for (const known of children) if (known.deref() === undefined) children.delete(known);
  }
  children.add(new WeakRef(child));
}

/** The number of children from which on those that are gone are removed, at each power of two. */
const SWEEP_CHILDREN = 256;

/** Sets the level of a logger that {@link createLogger} has made, and of its children. */
export function setLogLevel(log: Logger, level: LogLevel): void {
  log.level = level;
  for (const child of destinations.get(log)?.children ?? []) {
    const known = child.deref();
    if (known !== undefined) known.level = level;
  }
}

/** Returns the latest lines of a logger that {@link createLogger} has made; none for any other logger. */
export function logTailOf(log: Logger): LogTail {
  return destinations.get(log)?.tail ?? new LogTail();
}

/** Writes whole lines of another process to the destination of a logger that {@link createLogger} has made. */
export function writeLog(log: Logger, lines: string): void {
  destinations.get(log)?.destination.write(escapeUnseen(lines));
}

/** Returns the number of lines that a logger of {@link createLogger} could not write, because nobody reads them fast enough. */
export function droppedLinesOf(log: Logger): number {
  return destinations.get(log)?.stderr?.droppedLines ?? 0;
}

/** Returns the requests that get a line in a logger that {@link createLogger} has made. */
export function requestsOf(log: Logger): Exclude<AccessLog, 'auto'> {
  return destinations.get(log)?.requests ?? 'none';
}

interface LogTarget {
  readonly destination: DestinationStream;
  /** Undefined if the lines go elsewhere. */
  readonly stderr: LogDestination | undefined;
  readonly tail: LogTail;
  readonly children: ReadonlySet<WeakRef<PinoLogger>>;
  readonly requests: Exclude<AccessLog, 'auto'>;
}

const destinations = new WeakMap<Logger, LogTarget>();

/**
 * Returns the request log that writes to the destination of this logger, or undefined if the config disables it. It writes only
 * while the level of the logger is info or lower.
 */
export function requestLogBeside(log: Logger): RequestLog | undefined {
  const place = destinations.get(log);
  if (place === undefined || place.requests === 'none') return undefined;
  const isEnabled = () => log.isLevelEnabled('info');
  return new RequestLog(place.destination, isoTime, { errorsOnly: place.requests === 'errors', isEnabled });
}

const SECOND_MS = 1_000;
/** Length of the time up to the second and its point, as in `2026-07-28T12:00:00.000Z`. */
const TO_SECOND_CHARS = 20;

let timeMs = 0;
let timeText = '';
let secondMs = 0;
let secondText = '';

/**
 * Returns the time in pino's form. Caches the text of the second and of the millisecond, because formatting the time
 * costs as much as the rest of a line.
 */
function isoTime(): string {
  const now = Date.now();
  if (now === timeMs) return timeText;
  const ms = now % SECOND_MS;
  if (now - ms !== secondMs) {
    secondMs = now - ms;
    secondText = `,"time":"${new Date(now).toISOString().slice(0, TO_SECOND_CHARS)}`;
  }
  timeMs = now;
  timeText = `${secondText}${ms < 10 ? '00' : ms < 100 ? '0' : ''}${ms}Z"`;
  return timeText;
}

interface Opened {
  readonly shown: DestinationStream;
  readonly stderr?: LogDestination;
}

function openStderr(format: LogFormat, onRecovered: (dropped: number) => void): Opened {
  const stderr = stderrDestination(onRecovered);
  return { shown: format === 'json' ? stderr : terminal(stderr), stderr };
}

/** Returns the log for people on stderr. A terminal shows each line at once; a pipe or file gets them through the buffer. */
function terminal(stderr: LogDestination): DestinationStream {
  const stream = process.stderr;
  stream.on('error', () => undefined);
  return new TerminalLog({
    write: (text) => void (stream.isTTY ? stream : stderr).write(text),
    paint: (style, text) => styleText(style, text, { stream }),
    now: () => performance.now(),
  });
}
