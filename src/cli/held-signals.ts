/**
 * Signals that come before somebody listens. A reload or a rotation of keys would end the process. The first process of a container would
 * miss a request to stop; any other ends.
 */
const HELD: readonly NodeJS.Signals[] =
  process.pid === 1 ? ['SIGHUP', 'SIGUSR2', 'SIGINT', 'SIGTERM'] : ['SIGHUP', 'SIGUSR2'];

const held = new Set<NodeJS.Signals>();
const hold = (signal: NodeJS.Signals) => void held.add(signal);

/** Holds the signals that come until {@link passOnHeldSignals}. */
export function holdSignals(): void {
  for (const signal of HELD) process.on(signal, hold);
}

/** Hands the signals that have come to those who listen by now. */
export function passOnHeldSignals(): void {
  for (const signal of HELD) process.off(signal, hold);
  for (const signal of held) process.emit(signal, signal);
  held.clear();
}
