const KIB = 1_024;
const MIB = 1_024 * KIB;

/**
 * Fixed bounds on what a client or an upstream can make grow. Bounds that an operator may set are in `config/`.
 *
 * `docs/limits.md` explains each row, with its scope, what happens beyond it, and the test that shows it; a test keeps the
 * page and this table in step. The name ends in its unit: `Bytes`, `Chars`, `Ms`, or the thing counted.
 */
export const LIMITS = {
  /** Messages of one event stream that wait for a client that does not read. */
  streamQueueMessages: 256,
  streamQueueBytes: MIB,
  /** 1xx heads before one response of an upstream. */
  interimResponses: 16,
  /** Levels of objects and arrays in each member of a message. */
  jsonDepth: 64,
  /** Members of one object, at any depth. */
  clientObjectMembers: 10_000,
  upstreamObjectMembers: 100_000,
  /** Objects, arrays, strings, numbers and literals of one message, at all depths. */
  clientMessageValues: 100_000,
  upstreamMessageValues: 1_000_000,
} as const;

export type LimitName = keyof typeof LIMITS;
