/** Signals that ask `run` for something. Until somebody listens, they would end the process. */
const HELD = ['SIGHUP', 'SIGUSR2'] as const;

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
