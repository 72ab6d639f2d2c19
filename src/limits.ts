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
  /** Resources that one session is subscribed to. */
  subscriptionsPerSession: 1_000,
  subscriptionUriBytes: 4 * KIB,
  /** Log levels and subscriptions that outlive a restart. */
  sessionRecordBytesPerPrincipal: 8 * MIB,
  sessionRecordBytes: 64 * MIB,
  /** Principals that have sessions, or ended some whose ids have not expired. */
  sessionPrincipals: 65_536,
  /** Runs of consecutive sessions that have ended. */
  endedRangesPerPrincipal: 4_096,
  endedRanges: 262_144,
  /** One file of last good lists. */
  storedOfferBytes: 32 * MIB,
  /** Files for clients with certain capabilities. */
  storedOffersPerUpstream: 32,

  /** `maxTokens` of one `sampling/createMessage`: the client's user pays for them. */
  samplingTokens: 32_768,

  /** Results of `resources/read` that upstreams of 2026-07-28 allow to be kept. */
  readCacheBytes: 32 * MIB,
  readCacheUpstreamBytes: 8 * MIB,
  readCacheEntryBytes: 64 * KIB,

  /** Output of an `npx` that is asked what it runs: a command and its environment. */
  npxOutputChars: MIB,

  /** Processes whose memory one `/status` reads. */
  statusProcesses: 1_024,
  /** Texts of pages of lists that are longer than a page. */
  listPagesBytes: 64 * MIB,

  /** All lists that one upstream sends in one listing. */
  listingBytes: 16 * MIB,
  listingItems: 50_000,
  listingPages: 1_000,
  /** One tool, prompt, resource or template in the list of an upstream. */
  listItemBytes: 256 * KIB,
  /** Resource templates of one upstream. */
  templatesPerUpstream: 1_000,
  /** A URI that is matched with templates, and a template that URIs are matched with. */
  templateUriBytes: 2 * KIB,
  /** Steps of about 50 ns, for the templates of one upstream, to find where one URI belongs. */
  templateMatchSteps: 20_000,
  /** How often a session may open event streams by GET. A client or proxy that loops does so many times a second. */
  streamOpensPerMinute: 120,
  /** A request id as JSON text. */
  requestIdChars: KIB,
  /** Messages of one session that wait for a stream to the client. */
  sessionQueueMessages: 256,
  sessionQueueBytes: MIB,
  /** Notifications of one upstream connection, progress left out. */
  notificationsPerSecond: 2_000,
  /** A request body of which nothing came for so long is refused. */
  bodyStallMs: 10_000,
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
