import type { PipeCalls, PipeMethod } from './pipe-calls.ts';

/** The methods of one store, by their names. The arguments of each are a list. */
type StoreMethods = Readonly<Record<string, PipeMethod<readonly unknown[], unknown>>>;

type StoreOf<Methods> = {
  readonly [Name in keyof Methods]: Methods[Name] extends PipeMethod<
    infer Args extends readonly unknown[],
    infer Result
  >
    ? (...args: Args) => Promise<Result>
    : never;
};

type AnyStore = Readonly<Record<string, (...args: readonly unknown[]) => Promise<unknown>>>;

/** Returns a store that asks the other side of a pipe. */
export function remoteStore<Methods extends StoreMethods>(calls: PipeCalls, methods: Methods): StoreOf<Methods>;
export function remoteStore(calls: PipeCalls, methods: StoreMethods): AnyStore {
  const ask =
    (method: StoreMethods[string]) =>
    (...args: readonly unknown[]) =>
      calls.call(method, args);
  return Object.fromEntries(Object.entries(methods).map(([name, method]) => [name, ask(method)]));
}

/** Answers the calls of these methods from a store. A method that is served again later replaces the one of the store. */
export function serveStore<Methods extends StoreMethods>(
  calls: PipeCalls,
  methods: Methods,
  store: StoreOf<Methods>,
): void;
export function serveStore(calls: PipeCalls, methods: StoreMethods, store: AnyStore): void {
  for (const [name, method] of Object.entries(methods)) {
    calls.serve(method, async (args) => await store[name]?.(...args));
  }
}
