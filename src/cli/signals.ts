import { isatty } from 'node:tty';
import type { Logger } from '../telemetry/log.ts';

const ENDING = ['SIGINT', 'SIGTERM'] as const;
const STANDARD_STREAMS = [0, 1, 2];

/** The signals that this process is sent. */
export interface Signals {
  /** Resolves with the first signal that asks us to stop: SIGINT, SIGTERM, or SIGHUP of a terminal that is gone. */
  readonly stop: Promise<string>;
  /** Resolves with the first SIGINT or SIGTERM after that one. */
  readonly force: Promise<string>;
}

/**
 * Listens for signals from here on.
 *
 * SIGHUP has two meanings. To a process that was started on a terminal it says that the terminal is gone, so it stops, as on
 * SIGTERM. To a daemon, or while the terminal is there, it asks to read the config again.
 */
export function listenForSignals(log: Logger): Signals {
  const terminals = STANDARD_STREAMS.filter((stream) => isatty(stream));
  const stop = Promise.withResolvers<string>();
  const force = Promise.withResolvers<string>();
  let isStopping = false;
  const ask = (signal: string): void => {
    if (isStopping) force.resolve(signal);
    isStopping = true;
    stop.resolve(signal);
  };
  for (const signal of ENDING) process.on(signal, ask);
  process.on('SIGHUP', (signal) => {
    // A terminal that hung up answers no question about itself any more.
    const isGone = terminals.length > 0 && !terminals.some((stream) => isatty(stream));
    if (!isGone) log.info({ signal }, 'the config is not read again on a signal yet: restart to use a changed one');
    // The kernel, the shell and the terminal may each send one.
    else if (!isStopping) ask(signal);
  });
  return { stop: stop.promise, force: force.promise };
}
