import { isatty } from 'node:tty';
import type { Logger } from '../telemetry/log.ts';

const STOP_SIGNALS = ['SIGINT', 'SIGTERM'] as const;
const STANDARD_STREAMS = [0, 1, 2];

/** The signals that this process receives. */
export interface Signals {
  /** Resolves with the first signal that asks us to stop: SIGINT, SIGTERM, or SIGHUP of a closed terminal. */
  readonly stop: Promise<string>;
  /** Resolves with the first SIGINT or SIGTERM after that one. */
  readonly force: Promise<string>;
  /** Sets the function that runs on SIGHUP as a request to read the config again. */
  onReload(reload: () => void): void;
  /** Sets the function that runs on SIGUSR2, as a request to replace the sealing key. */
  onRotateKeys(rotate: () => void): void;
}

/**
 * Starts to listen for signals.
 *
 * SIGHUP has two meanings. For a process that was started on a terminal it means that the terminal was closed; we stop, as on
 * SIGTERM. For a daemon, or while the terminal is open, it is a request to read the config again.
 */
export function listenForSignals(log: Logger): Signals {
  const terminals = STANDARD_STREAMS.filter((stream) => isatty(stream));
  const stop = Promise.withResolvers<string>();
  const force = Promise.withResolvers<string>();
  let isStopping = false;
  let reload = () => log.info('SIGHUP has no effect: only "run" reads its config again');
  let rotate = () => log.info('SIGUSR2 has no effect: only "run" has sealing keys that can be replaced');
  process.on('SIGUSR2', () => rotate());
  const onStopSignal = (signal: string): void => {
    if (isStopping) force.resolve(signal);
    isStopping = true;
    stop.resolve(signal);
  };
  for (const signal of STOP_SIGNALS) process.on(signal, onStopSignal);
  process.on('SIGHUP', (signal) => {
    // `isatty` returns false for a closed terminal.
    const isClosed = terminals.length > 0 && !terminals.some((stream) => isatty(stream));
    if (!isClosed) reload();
    // The kernel, the shell and the terminal may each send SIGHUP.
    else if (!isStopping) onStopSignal(signal);
  });
  return {
    stop: stop.promise,
    force: force.promise,
    onReload: (next) => {
      reload = next;
    },
    onRotateKeys: (next) => {
      rotate = next;
    },
  };
}
