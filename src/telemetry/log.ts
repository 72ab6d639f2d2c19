import { isatty } from 'node:tty';
import { styleText } from 'node:util';
import { pino } from 'pino';
import type { DestinationStream, Logger as PinoLogger } from 'pino';

import type { AccessLog, LogLevel } from '../config/config.ts';
import { loggedError } from './log-error.ts';
import { Repeats } from './repeats.ts';
import { RequestLog } from './request-log.ts';
import { TerminalLog } from './terminal-log.ts';

export type Logger = PinoLogger;

/** JSON lines for machines, or lines for a person at a terminal. */
export const LOG_FORMATS = ['json', 'pretty'] as const;
export type LogFormat = (typeof LOG_FORMATS)[number];

export interface LogOptions {
  /** Default: JSON. */
  readonly format?: LogFormat;
  /** Which requests get a line. Default: all. */
  readonly requests?: Exclude<AccessLog, 'auto'>;
}

const STDERR = 2;

/** Most of what is written at once at the most. */
const BATCH_BYTES = 8_192;
const FLUSH_MS = 100;

/** What must not be logged wherever it turns up: header and environment values whole, for their names tell enough. */
const SECRETS = ['authorization', 'cookie', 'token', 'apiKey', 'password', 'secret', 'headers.*', 'env.*'];

/**
 * Returns a logger that writes to stderr, since stdout belongs to the protocol where a client speaks over stdio. JSON lines are
 * written asynchronously, and flushed when the process exits.
 *
 * Under `err` an error is logged with its causes; one that is not expected, and at debug every one, has its stack. Equal
 * failures of one upstream are one line at first and counts (`repeated`) at widening intervals. {@link SECRETS} are replaced at
 * the top level and one below; nothing redacts the text of a message, so put what a peer said into a field of its own, or
 * nowhere.
 */
export function createLogger(
  level: LogLevel,
  destination?: DestinationStream,
  { format = 'json', requests = 'all' }: LogOptions = {},
): Logger {
  const to = destination ?? (format === 'json' ? batched() : terminal());
  const withStacks = level === 'debug' || level === 'trace';
  const log = pino(
    {
      level,
      base: { name: 'linkspan', pid: process.pid },
      timestamp: isoTime,
      serializers: { err: (error: unknown) => loggedError(error, withStacks) },
      redact: { paths: SECRETS.flatMap((path) => [path, `*.${path}`]), censor: '[redacted]' },
    },
    // A terminal shows counts in its own way.
    format === 'json' && !withStacks ? withoutRepeats(to) : to,
  );
  destinations.set(log, { destination: to, requests });
  return log;
}

interface RequestLogPlace {
  readonly destination: DestinationStream;
  readonly requests: Exclude<AccessLog, 'auto'>;
}

const destinations = new WeakMap<Logger, RequestLogPlace>();

/** Where requests are logged, beside the other lines; undefined where the level or the config leaves them out. */
export function requestLogBeside(log: Logger): RequestLog | undefined {
  const place = destinations.get(log);
  if (place === undefined || place.requests === 'none' || !log.isLevelEnabled('info')) return undefined;
  return new RequestLog(place.destination, isoTime, place.requests === 'errors');
}

/** Leaves out lines about an upstream that only repeat; those that are due carry the count as `repeated`. */
function withoutRepeats(destination: DestinationStream): DestinationStream {
  const repeats = new Repeats();
  return {
    write(line) {
      const failure = line.includes('"upstream":') ? failureIn(line) : undefined;
      const due = failure === undefined ? 0 : repeats.due(failure.key, failure.reason, Date.now());
      if (due === 0) destination.write(line);
      else if (due !== undefined) destination.write(`${line.slice(0, line.lastIndexOf('}'))},"repeated":${due}}\n`);
    },
  };
}

/** Which failure or state of an upstream a line tells of; undefined for other lines. */
function failureIn(line: string): { readonly key: string; readonly reason: string } | undefined {
  const fields: unknown = JSON.parse(line);
  if (typeof fields !== 'object' || fields === null || !('upstream' in fields)) return undefined;
  const phase = 'phase' in fields ? String(fields.phase) : undefined;
  const reason = 'reason' in fields ? fields.reason : 'err' in fields ? messageOf(fields.err) : undefined;
  if (phase === undefined && reason === undefined) return undefined;
  const message = 'msg' in fields ? String(fields.msg) : '';
  return {
    key: `${String(fields.upstream)} ${message} ${phase ?? ''}`,
    reason: typeof reason === 'string' ? reason : '',
  };
}

function messageOf(error: unknown): unknown {
  return typeof error === 'object' && error !== null && 'message' in error ? error.message : undefined;
}

const SECOND_MS = 1_000;
/** As in `2026-07-28T12:00:00.000Z`. */
const TO_SECOND_CHARS = 20;

let timeMs = 0;
let timeText = '';
let secondMs = 0;
let secondText = '';

/** Under load many lines share a second, and some a millisecond: spelling it out costs as much as the rest of a line. */
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

/** One write for many lines under load, and none later than a moment; the rest is written when the process exits. */
function batched(): DestinationStream {
  const destination = pino.destination({ dest: STDERR, sync: false, minLength: BATCH_BYTES });
  const isTerminal = isatty(STDERR);
  let isGone = false;
  // With the terminal or the reader of the pipe gone there is nowhere to tell of it, and no reason to end.
  destination.on('error', () => {
    isGone = true;
  });
  const flushSync = destination.flushSync.bind(destination);
  // pino flushes while the process exits, and sonic-boom 4 tries for ever to write to a terminal that hung up (EIO).
  destination.flushSync = () => {
    if (!isGone && isatty(STDERR) === isTerminal) flushSync();
  };
  setInterval(() => destination.flush(), FLUSH_MS).unref();
  return destination;
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
