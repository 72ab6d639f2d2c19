import { isCode } from '../../thrown.ts';
import fs from 'node:fs';
import { isatty } from 'node:tty';
import { type DestinationStream, pino } from 'pino';
import { LIMITS } from '../../limits.ts';

const STDERR = 2;

/** The number of bytes that are buffered before a write. */
const BATCH_BYTES = 8_192;
const FLUSH_MS = 100;
/** The first pause before a full pipe is tried again. It doubles up to `FLUSH_MS` while the pipe stays full. */
const RETRY_MS = 5;
/** The time that a process that ends waits for a reader that takes nothing. */
const LAST_WAIT_MS = 1_000;

export interface LogDestination extends DestinationStream {
  /** The number of lines that were dropped, because the buffer was full. */
  readonly droppedLines: number;
}

/**
 * Creates a destination that writes many lines at once under load, and every line within 100 ms or at exit. Lines that nobody reads
 * wait in a buffer with a bound; further ones are dropped. No write blocks, neither the event loop nor the end of the process.
 *
 * @param onRecovered runs when the buffer is empty again after lines were dropped, with their number.
 */
export function stderrDestination(onRecovered: (dropped: number) => void): LogDestination {
  // Opened by Node, a pipe or socket is not blocking: a full one fails with EAGAIN.
  const isTerminal = isatty(process.stderr.fd);
  let isLast = false;
  const destination = pino.destination({
    dest: STDERR,
    sync: false,
    minLength: BATCH_BYTES,
    maxLength: LIMITS.logBufferBytes,
    // Otherwise a full pipe is tried again every 100 ms, which is slow for a reader that keeps up.
    retryEAGAIN: () => isLast,
  });
  // The listener of pino ends all writes after an EPIPE. The reader of a named pipe may be started again.
  destination.removeAllListeners('error');
  let isGone = false;
  let retryMs = RETRY_MS;
  let droppedLines = 0;
  let unreported = 0;
  destination.on('drop', (lines) => {
    const count = countLines(lines);
    droppedLines += count;
    unreported += count;
  });
  let flushing: NodeJS.Timeout | undefined;
  const flushSoon = (): void => {
    flushing ??= setTimeout(() => {
      flushing = undefined;
      destination.flush();
    }, FLUSH_MS).unref();
  };
  destination.on('write', (bytes) => {
    retryMs = RETRY_MS;
    if (bytes === 0) return;
    isGone = false;
    // A flush during a write does nothing, and lines may have come meanwhile.
    flushSoon();
  });
  destination.on('drain', () => {
    if (unreported === 0) return;
    const dropped = unreported;
    unreported = 0;
    onRecovered(dropped);
  });
  destination.on('error', (error) => {
    if (isCode(error, 'EAGAIN')) {
      setTimeout(() => destination.flush(), retryMs).unref();
      retryMs = Math.min(2 * retryMs, FLUSH_MS);
    } else {
      // The terminal or the reader of the pipe is gone, or a disk is full. There is nowhere to report it, and no reason to exit.
      isGone = true;
      flushSoon();
    }
  });
  const flushSync = destination.flushSync.bind(destination);
  // pino flushes while the process exits, and sonic-boom 4 retries for ever to write to a terminal that hung up (EIO) or a pipe without a reader (EPIPE).
  const flushWhileRead = (): void => {
    if (isGone || isatty(STDERR) !== isTerminal) return;
    isLast = true;
    withoutEndlessWrites(flushSync);
    isLast = false;
  };
  destination.flushSync = flushWhileRead;
  return {
    write(lines) {
      destination.write(lines);
      flushSoon();
    },
    get droppedLines() {
      return droppedLines;
    },
  };
}

function countLines(text: string): number {
  let count = 0;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) count++;
  return count;
}

/** Runs a function in which bytes for a reader that has gone, or that takes nothing for a while, count as written. */
function withoutEndlessWrites(flush: () => void): void {
  const { writeSync } = fs;
  let progressMs = performance.now();
  const write = (fd: number, text: string): number => {
    try {
      const bytes = writeSync(fd, text);
      progressMs = performance.now();
      return bytes;
    } catch (thrown) {
      if (isCode(thrown, 'EAGAIN') && performance.now() - progressMs < LAST_WAIT_MS) throw thrown;
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
