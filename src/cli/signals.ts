import { isatty } from 'node:tty';
import type { Logger } from '../telemetry/log.ts';

const STOP_SIGNALS = ['SIGINT', 'SIGTERM'] as const;
const STANDARD_STREAMS = [0, 1, 2];
/**
 * The shortest time from the first signal to one that ends the process at once. Supervisors, npm and `timeout` send a signal to
 * the process as well as to its group, so that it arrives twice.
 */
export const SECOND_SIGNAL_MS = 500;

/** The signals that this process receives. */
export interface Signals {
  /** Resolves with the first signal that asks us to stop: SIGINT, SIGTERM, or SIGHUP of a closed terminal. */
  readonly stop: Promise<string>;
  /** Resolves with the first SIGINT or SIGTERM that comes {@link SECOND_SIGNAL_MS} or more after that one. */
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
  let stoppingSince: number | undefined;
  let reload = () =>
    log.info('SIGHUP has no effect: only "run" reads its config again; restart this command for a changed one');
  let rotate = () => log.info('SIGUSR2 has no effect: only "run" has sealing keys that can be replaced');
  process.on('SIGUSR2', () => rotate());
  const onStopSignal = (signal: string): void => {
    const now = performance.now();
    stoppingSince ??= now;
    if (now - stoppingSince >= SECOND_SIGNAL_MS) force.resolve(signal);
    stop.resolve(signal);
  };
  for (const signal of STOP_SIGNALS) process.on(signal, onStopSignal);
  process.on('SIGHUP', (signal) => {
    // `isatty` returns false for a closed terminal.
    const isClosed = terminals.length > 0 && !terminals.some((stream) => isatty(stream));
    if (!isClosed) reload();
    // The kernel, the shell and the terminal may each send SIGHUP.
    else if (stoppingSince === undefined) onStopSignal(signal);
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
