const KIB = 1_024;
const MIB = 1_024 * KIB;

/**
 * Fixed bounds on resources that a client or an upstream can consume. Bounds that an operator can set are in `config/`.
 *
 * `docs/limits.md` explains each row: its scope, what happens beyond it, and the test that shows it. A test keeps the
 * page and this table in step. Each name ends in its unit (`Bytes`, `Chars`, `Ms`) or in the thing counted.
 */
export const LIMITS = {
  /** Messages of one event stream that wait for a client that does not read. */
  streamQueueMessages: 256,
  streamQueueBytes: MIB,
  /** Subscriptions of one session. */
  subscriptionsPerSession: 1_000,
  subscriptionUriBytes: 4 * KIB,
  /** Resources that one upstream connection is subscribed to, for the subscription streams of sibling groups. */
  siblingSubscriptions: 1_000,
  /** Log levels and subscriptions that outlive a restart. */
  sessionRecordBytesPerPrincipal: 8 * MIB,
  sessionRecordBytes: 64 * MIB,
  /** Principals with sessions, or with ended sessions whose ids have not expired. */
  sessionPrincipals: 65_536,
  /** Ranges of consecutive ended sessions. */
  endedRangesPerPrincipal: 4_096,
  endedRanges: 262_144,
  /** One file with the last good lists of an upstream. */
  storedOfferBytes: 32 * MIB,
  /** Such files of one upstream; one for each set of client capabilities. */
  storedOffersPerUpstream: 32,

  /** `maxTokens` of one `sampling/createMessage`, for which the client's user pays. */
  samplingTokens: 32_768,

  /** Cached results of `resources/read`, which upstreams of 2026-07-28 allow. */
  readCacheBytes: 32 * MIB,
  readCacheUpstreamBytes: 8 * MIB,
  readCacheEntryBytes: 64 * KIB,

  /** One line of the stderr of an upstream. */
  stderrLineBytes: KIB,
  /** Lines of the stderr of one upstream process that are logged. */
  stderrLinesPerSecond: 100,

  /** Output of `npx` when the gateway asks which command it would run: a command and its environment. */
  npxOutputChars: MIB,

  /** Processes whose memory one request to `/status` reads. */
  statusProcesses: 1_024,
  /** Cached pages of lists that do not fit on one page. */
  listPagesBytes: 64 * MIB,

  /** All lists that one upstream sends in one listing. */
  listingBytes: 16 * MIB,
  listingItems: 50_000,
  listingPages: 1_000,
  /** Connections of single clients that are listed again at the same time. */
  privateListings: 32,
  privateListingsPerUpstream: 8,
  /** One tool, prompt, resource or template in the list of an upstream. */
  listItemBytes: 256 * KIB,
  /** Resource templates of one upstream. */
  templatesPerUpstream: 1_000,
  /** One URI that is matched against templates, and one template. */
  templateUriBytes: 2 * KIB,
  /** Steps of about 50 ns to match one URI against the templates of one upstream. */
  templateMatchSteps: 20_000,
  /** Event streams that a session may open by GET per minute. A client or proxy in a loop opens many per second. */
  streamOpensPerMinute: 120,
  /** A request id as JSON text. */
  requestIdChars: KIB,
  /** Messages of one session that wait for a stream to the client. */
  sessionQueueMessages: 256,
  sessionQueueBytes: MIB,
  /** Notifications of one upstream connection, except progress. */
  notificationsPerSecond: 2_000,
  /** A request body is refused if no byte arrives for this long. */
  bodyStallMs: 10_000,
  /** Interim (1xx) responses before one response of an upstream. */
  interimResponses: 16,
  /** Nesting of objects and arrays in each member of a message. */
  jsonDepth: 64,
  /** Members of one object, at any depth. */
  clientObjectMembers: 10_000,
  upstreamObjectMembers: 100_000,
  /** Values (objects, arrays, strings, numbers and literals) of one message, at all depths. */
  clientMessageValues: 100_000,
  upstreamMessageValues: 1_000_000,

  /** One `traceparent` or `tracestate` of a client, of which spans keep parts. */
  traceContextChars: 512,
  /** Ended spans that wait for their export, with those that are being exported. */
  traceSpans: 2_048,

  /** Body of one request to the admin API. */
  adminBodyBytes: MIB,
  /** Operators that follow the log at the same time. */
  logFollowers: 16,
  /** Lines of the log that wait for one operator that does not read. */
  logFollowerBytes: MIB,
  /** Kinds of clients that the admin API lists. */
  seenClients: 1_000,
} as const;

export type LimitName = keyof typeof LIMITS;
