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
  /** A request id as JSON text. */
  requestIdChars: KIB,
  /** Messages of one session that wait for a stream to the client. */
  sessionQueueMessages: 256,
  sessionQueueBytes: MIB,
  /** Notifications of one upstream connection, progress left out. */
  notificationsPerSecond: 2_000,
  /** A request body of which nothing came for so long is refused. */
  bodyStallMs: 10_000,
} as const;

export type LimitName = keyof typeof LIMITS;
