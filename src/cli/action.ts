/**
 * Returns the action of a command: a function of its arguments and options that resolves with the exit code. It is loaded when it runs, so that
 * other commands start quickly.
 */
export type ActionOf = <Args extends unknown[]>(
  load: () => Promise<(...args: Args) => number | Promise<number>>,
) => (...args: Args) => Promise<void>;
