import { pino, stdSerializers } from 'pino';
import type { DestinationStream, Logger as PinoLogger } from 'pino';

import type { LogLevel } from '../config/config.ts';
import { RequestLog } from './request-log.ts';

export type Logger = PinoLogger;

/** Most of what is written at once at the most. */
const BATCH_BYTES = 8_192;
const FLUSH_MS = 100;

/** What must not be logged wherever it turns up: header and environment values whole, for their names tell enough. */
const SECRETS = ['authorization', 'cookie', 'token', 'apiKey', 'password', 'secret', 'headers.*', 'env.*'];

/**
 * JSON lines on stderr, since stdout belongs to the protocol where a client speaks over stdio. Written asynchronously, and
 * flushed when the process exits.
 *
 * Under `err` an error is logged with its causes, each with its stack. {@link SECRETS} are replaced at the top level and one
 * below; nothing redacts the text of a message, so put what a peer said into a field of its own, or nowhere.
 */
export function createLogger(level: LogLevel, destination: DestinationStream = batched()): Logger {
  const log = pino(
    {
      level,
      base: { name: 'linkspan', pid: process.pid },
      timestamp: isoTime,
      serializers: { err: stdSerializers.errWithCause },
      redact: { paths: SECRETS.flatMap((path) => [path, `*.${path}`]), censor: '[redacted]' },
    },
    destination,
  );
  destinations.set(log, destination);
  return log;
}

const destinations = new WeakMap<Logger, DestinationStream>();

/** Where requests are logged, beside the other lines; undefined where the level leaves them out. */
export function requestLogBeside(log: Logger): RequestLog | undefined {
  const destination = destinations.get(log);
  return destination === undefined || !log.isLevelEnabled('info') ? undefined : new RequestLog(destination, isoTime);
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
  const destination = pino.destination({ dest: 2, sync: false, minLength: BATCH_BYTES });
  setInterval(() => destination.flush(), FLUSH_MS).unref();
  return destination;
}
