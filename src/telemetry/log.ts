import fs from 'node:fs';
import { isatty } from 'node:tty';
import { styleText } from 'node:util';
import { pino } from 'pino';
import type { DestinationStream, Logger as PinoLogger } from 'pino';

import type { AccessLog, LogLevel } from '../config/config.ts';
import { loggedError } from './log-error.ts';
import { RepeatedEvents } from './repeated-events.ts';
import { LogTail } from './log-tail.ts';
import { redacted } from './redact.ts';
import { RequestLog } from './request-log.ts';
import { TerminalLog } from './terminal-log.ts';

export type Logger = PinoLogger;

/** `json`: JSON lines for machines. `pretty`: lines for a person at a terminal. */
export const LOG_FORMATS = ['json', 'pretty'] as const;
export type LogFormat = (typeof LOG_FORMATS)[number];

export interface LogOptions {
  /** Default: JSON. */
  readonly format?: LogFormat;
  /** The requests that get a line. Default: all. */
  readonly requests?: Exclude<AccessLog, 'auto'>;
}

const STDERR = 2;

/** The number of bytes that are buffered before a write. */
const BATCH_BYTES = 8_192;
const FLUSH_MS = 100;

/**
 * Creates a logger that writes to stderr; with a stdio client, stdout belongs to the protocol. JSON lines are written
 * asynchronously, and flushed when the process exits.
 *
 * Errors under `err` are logged with their causes. Unexpected errors have a stack; at level debug all errors have one.
 * Equal failures of one upstream are logged once and then as counts (`repeated`) at growing intervals. Fields that may hold secrets are
 * redacted ({@link redacted}). The text of a message is not redacted, so put text of a peer into a field of its own, or do not
 * log it.
 */
export function createLogger(
  level: LogLevel,
  destination?: DestinationStream,
  { format = 'json', requests = 'all' }: LogOptions = {},
): Logger {
  const shown = destination ?? (format === 'json' ? batched() : terminal());
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
      formatters: { log: (fields) => redacted(fields) },
      serializers: { err: (error: unknown) => withoutSecrets(loggedError(error, log.isLevelEnabled('debug'))) },
    },
    // The terminal log counts repeats itself.
    format === 'json' ? withoutRepeats(to, () => !log.isLevelEnabled('debug')) : to,
  );
  destinations.set(log, { destination: to, requests, tail, children });
  return log;
}

/** Returns an error in the form of a log line without the arguments of programs and other secrets. */
function withoutSecrets(error: unknown): unknown {
  return typeof error === 'object' && error !== null ? redacted({ ...error }, 1) : error;
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

/** Returns the latest lines of a logger that {@link createLogger} has made; undefined for any other logger. */
export function logTailOf(log: Logger): LogTail | undefined {
  return destinations.get(log)?.tail;
}

/** Writes whole JSON lines of another process to the destination of a logger that {@link createLogger} has made. */
export function writeLog(log: Logger, lines: string): void {
  destinations.get(log)?.destination.write(lines);
}

/** Returns the requests that get a line in a logger that {@link createLogger} has made. */
export function requestsOf(log: Logger): Exclude<AccessLog, 'auto'> {
  return destinations.get(log)?.requests ?? 'none';
}

interface LogTarget {
  readonly destination: DestinationStream;
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

/**
 * Drops repeated lines about an upstream, while that is enabled. A line that is due again carries the number of dropped lines as
 * `repeated`; the line that an upstream serves again, the number of failures that no line has reported as `failures`.
 */
function withoutRepeats(destination: DestinationStream, isEnabled: () => boolean): DestinationStream {
  const repeats = new RepeatedEvents();
  return {
    write(line) {
      const failure = isEnabled() && line.includes('"upstream":') ? failureOf(line) : undefined;
      const due = failure === undefined ? 0 : repeats.due(failure.key, failure.reason, Date.now());
      if (due === undefined) return;
      const failures = failure?.isRecovery === true ? unreported(repeats, failure.upstream) : 0;
      destination.write(withCounts(line, due, failures));
    },
  };
}

/** Returns the number of failures of an upstream that no line has reported, now that it serves again. */
function unreported(repeats: RepeatedEvents, upstream: string): number {
  return FAILURES.reduce((sum, phase) => sum + repeats.takeUnreported(keyOf(upstream, STATE, phase)), 0);
}

const STATE = 'upstream state';
const FAILURES = ['failed', 'needs-authorization', 'degraded'];

function keyOf(upstream: string, message: string, phase: string): string {
  return `${upstream} ${message} ${phase}`;
}

/** Adds the counts above 0 to a line. */
function withCounts(line: string, repeated: number, failures: number): string {
  const counts = `${repeated > 0 ? `,"repeated":${repeated}` : ''}${failures > 0 ? `,"failures":${failures}` : ''}`;
  return counts === '' ? line : `${line.slice(0, line.lastIndexOf('}'))}${counts}}\n`;
}

/** The failure or state of an upstream that a line reports. */
interface Failure {
  readonly upstream: string;
  readonly key: string;
  readonly reason: string;
  /** True if the upstream serves again. */
  readonly isRecovery: boolean;
}

/** Returns the failure or state of an upstream that a line reports, or undefined for other lines. */
function failureOf(line: string): Failure | undefined {
  const fields: unknown = JSON.parse(line);
  if (typeof fields !== 'object' || fields === null || !('upstream' in fields)) return undefined;
  const phase = 'phase' in fields ? String(fields.phase) : undefined;
  const reason = 'reason' in fields ? fields.reason : 'err' in fields ? messageOf(fields.err) : undefined;
  if (phase === undefined && reason === undefined) return undefined;
  const message = 'msg' in fields ? String(fields.msg) : '';
  const upstream = String(fields.upstream);
  return {
    upstream,
    key: keyOf(upstream, message, phase ?? ''),
    reason: typeof reason === 'string' ? reason : '',
    isRecovery: message === STATE && phase === 'ready',
  };
}

function messageOf(error: unknown): unknown {
  return typeof error === 'object' && error !== null && 'message' in error ? error.message : undefined;
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

/** Creates a destination that writes many lines at once under load, and every line within 100 ms or at exit. */
function batched(): DestinationStream {
  const destination = pino.destination({ dest: STDERR, sync: false, minLength: BATCH_BYTES });
  const isTerminal = isatty(STDERR);
  let isGone = false;
  // The terminal or the reader of the pipe is gone. There is nowhere to report it, and no reason to exit.
  destination.on('error', () => {
    isGone = true;
  });
  const flushSync = destination.flushSync.bind(destination);
  // pino flushes while the process exits, and sonic-boom 4 retries for ever to write to a terminal that hung up (EIO) or a pipe without a reader (EPIPE).
  const flushWhileRead = (): void => {
    if (!isGone && isatty(STDERR) === isTerminal) withoutEndlessWrites(flushSync);
  };
  destination.flushSync = flushWhileRead;
  setInterval(() => destination.flush(), FLUSH_MS).unref();
  return destination;
}

/** Runs a function in which bytes for a reader that has gone count as written. */
function withoutEndlessWrites(flush: () => void): void {
  const { writeSync } = fs;
  const write = (fd: number, text: string): number => {
    try {
      return writeSync(fd, text);
    } catch (thrown) {
      if (thrown instanceof Error && 'code' in thrown && thrown.code === 'EAGAIN') throw thrown;
      return Buffer.byteLength(text);
    }
  };
  Object.assign(fs, { writeSync: write });
  try {
    flush();
  } finally {
    Object.assign(fs, { writeSync });
  }
}

function terminal(): DestinationStream {
  const { stderr } = process;
  stderr.on('error', () => undefined);
  return new TerminalLog({
    write: (text) => void stderr.write(text),
    paint: (style, text) => styleText(style, text, { stream: stderr }),
    columns: stderr.isTTY ? stderr.columns : undefined,
    now: () => performance.now(),
  });
}
