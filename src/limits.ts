const KIB = 1_024;
const MIB = 1_024 * KIB;

/**
 * Fixed bounds on resources that a client or an upstream can consume. Bounds that an operator can set are in `config/`.
 *
 * `docs/limits.md` explains each row: its scope, what happens beyond it, and the test that shows it. A test keeps the
 * page and this table in step. Each name ends in its unit (`Bytes`, `Chars`, `Ms`) or in the thing counted.
 */
export const LIMITS = {
  /** A config file in YAML or TOML, and in JSON: Claude Code keeps all its state in the file with its servers. */
  configFileBytes: MIB,
  configJsonFileBytes: 32 * MIB,
  /** The file of a `${file:…}`, that of an `envFile`, the lock file, and all files of one config. */
  configValueBytes: 64 * KIB,
  configEnvFileBytes: MIB,
  configLockBytes: 64 * MIB,
  configTotalBytes: 128 * MIB,
  streamQueueMessages: 256,
  streamQueueBytes: MIB,
  subscriptionsPerSession: 1_000,
  subscriptionUriBytes: 4 * KIB,
  /** URIs, and task ids, in one `subscriptions/listen`. */
  listenEntries: 1_000,
  /** Resources that `subscriptions/listen` streams are subscribed to, as an estimate: of one principal, and of all. */
  listenUriBytesPerPrincipal: 8 * MIB,
  listenUriBytes: 64 * MIB,
  /** Resources that one upstream connection is subscribed to, for the subscription streams of sibling groups. */
  siblingSubscriptions: 1_000,
  /** Log levels and subscriptions that outlive a restart. */
  sessionRecordBytesPerPrincipal: 8 * MIB,
  sessionRecordBytes: 64 * MIB,
  /** The text by which a session is continued at one upstream after a restart. */
  attachmentBytes: 16 * KIB,
  sessionPrincipals: 65_536,
  principalWeights: 65_536,
  endedRangesPerPrincipal: 4_096,
  endedRanges: 262_144,
  /** Ends of sessions that wait for a Redis that cannot be reached. */
  unwrittenEnds: 10_000,
  /** Requests of other replicas whose ids are remembered, of about 100 bytes each. */
  recentCalls: 100_000,
  replicaAnswerBytes: 16 * MIB,
  /** Calls of one worker that wait for the parent, and of the parent that wait for it. */
  pipeCalls: 4_096,
  /** Answers of parked calls that have ended, for repeated retries: of one principal, and of all. */
  endedCallBytesPerPrincipal: 16 * MIB,
  endedCallBytes: 64 * MIB,
  /** The end of one parked call, for retries at other replicas. */
  outcomeBytes: MIB,
  outcomesBytes: 64 * MIB,
  idempotencyKeyChars: 255,
  keyedCallsPerPrincipal: 10_000,
  keyedCalls: 100_000,
  /** Outcomes of such calls: of one, of those of a principal, and of all. */
  keyedOutcomeBytes: MIB,
  keyedOutcomesBytesPerPrincipal: 16 * MIB,
  keyedOutcomesBytes: 64 * MIB,
  /** Ends of such calls that wait for a Redis that cannot be reached, and their outcomes. */
  unwrittenKeyedCalls: 10_000,
  unwrittenOutcomesBytes: 16 * MIB,
  /** Events in Redis, for clients that resume a stream at another replica: one event, those of one principal, and all. */
  storedEventBytes: MIB,
  storedEventBytesPerPrincipal: 32 * MIB,
  storedEventsBytes: 256 * MIB,
  unstoredEventBytes: 16 * MIB,
  /** One file with the last good lists of an upstream. */
  storedOfferBytes: 32 * MIB,
  /** Such files of one upstream; one for each set of client capabilities. */
  storedOffersPerUpstream: 32,

  /** `maxTokens` of one `sampling/createMessage`, for which the client's user pays. */
  samplingTokens: 32_768,
  /** Pairs of an upstream and a person whose `samplingBudget` is counted. */
  samplingBudgets: 10_000,

  /** Questions that wait for answers of clients, with up to two bytes a character: to one principal, of one upstream, and of all. */
  openQuestionBytesPerPrincipal: 16 * MIB,
  openQuestionBytesPerUpstream: 32 * MIB,
  openQuestionBytes: 128 * MIB,
  /** Such questions to one session, and during one call of a client of 2026-07-28; also those in one answer. */
  questionsPerSession: 64,
  questionsPerCall: 64,
  /** Answers of an upstream of 2026-07-28 to one call that ask a client with a session. */
  inputRounds: 8,
  /** Tasks that clients run for one connection, as answers to its questions. */
  clientTasksPerConnection: 256,
  /** URL elicitations that one upstream has reported as complete, for calls that have not begun to wait for them. */
  completedElicitationsPerUpstream: 1_000,
  /** Sessions that were released as unused, whose state a connection for many clients may still keep. */
  unusedSessionsPerConnection: 1_000,

  /** Cached results of `resources/read`, which upstreams of 2026-07-28 allow. */
  readCacheBytes: 32 * MIB,
  readCacheUpstreamBytes: 8 * MIB,
  readCacheEntryBytes: 64 * KIB,

  stderrLineBytes: KIB,
  stderrLinesPerSecond: 100,
  /** Lines of the stderr of one program that are read. */
  stderrLinesReadPerSecond: 20_000,

  /** Output of `npx` when the gateway asks which command it would run: a command and its environment. */
  npxOutputChars: MIB,

  statusProcesses: 1_024,
  /** Lists that do not fit on one page: their items, for cursors, and their pages. */
  pagedListsBytes: 192 * MIB,
  /** Lists of one upstream for clients of certain capabilities or principals, without those that clients have now. */
  offersPerUpstream: 16,
  /** Listings of upstreams that wait for their turn: for one principal, and for all. */
  waitingListingsPerPrincipal: 512,
  waitingListings: 8_192,
  knownSessionIds: 10_000,

  listingBytes: 16 * MIB,
  listingItems: 50_000,
  listingPages: 1_000,
  /** Endpoints of gateways that the lists of one upstream have come through. */
  listEndpoints: 64,
  privateListings: 32,
  privateListingsPerUpstream: 8,
  /** Lists that single connections have for themselves, with what is made of them, as an estimate: of one upstream, and of all. */
  privateListBytesPerUpstream: 128 * MIB,
  privateListBytes: 256 * MIB,
  listItemBytes: 256 * KIB,
  /** Differences between the lists of one upstream and those that its clients get, in one era. */
  listProblems: 10_000,
  instructionsChars: 256 * KIB,
  /** The capabilities of one upstream, and what it says about itself. */
  helloChars: 64 * KIB,
  templatesPerUpstream: 1_000,
  /** One URI that is matched against templates, and one template. */
  templateUriBytes: 2 * KIB,
  templateExpressions: 32,
  /** Steps of about 50 ns to match one URI against the templates of one upstream. */
  templateMatchSteps: 20_000,
  /** Characters of the URIs and templates of one upstream that the lock withholds. Each takes about 0.15 µs. */
  withheldUriChars: 512 * KIB,
  /** Event streams that a session may open by GET per minute. A client or proxy in a loop opens many per second. */
  streamOpensPerMinute: 120,
  /** The forwarded capabilities of one client, which its session id contains. */
  clientCapabilityChars: 2_000,
  clientLineBytes: 16 * MIB,
  batchMessages: 20,
  upstreamBatchMessages: 1_000,
  requestIdChars: KIB,
  sessionQueueMessages: 256,
  sessionQueueBytes: MIB,
  /** Messages of one upstream connection, except answers and progress of requests in flight. */
  notificationsPerSecond: 2_000,
  /** Notifications and answers that one upstream has not accepted, over HTTP. */
  undeliveredMessages: 1_000,
  undeliveredBytes: 16 * MIB,
  /** A request body is refused if no byte arrives for this long. */
  bodyStallMs: 10_000,
  stdinQueueBytes: MIB,
  /** Output of a process within 10 s that is no message, on the stream for messages. */
  nonProtocolLines: 100,
  nonProtocolBytes: MIB,
  earlyMessages: 256,
  earlyMessageBytes: MIB,
  /** Each gateway in a row makes a longer one of it. */
  upstreamTaskIdChars: 4 * KIB,
  tasksPerConnection: 256,
  /** Tasks that are listed and announced to a client: a principal at an endpoint. */
  knownTasksPerClient: 256,
  knownTasksBytes: 64 * MIB,
  /** A text that the gateway has sealed and a client sends back. */
  handleChars: 128 * KIB,
  /** Calls of one connection that created a task, and whose progress is still passed on. */
  answeredCallsWithProgress: 256,
  /** Calls of one connection that ended without an answer, and that the upstream may still run. */
  abandonedCalls: 256,
  resumeAttempts: 5,
  upstreamEventIdChars: 4 * KIB,
  upstreamSessionIdChars: 4 * KIB,
  /** The cookies of one connection to an upstream, with their paths. Many servers refuse heads of more than 8 KiB. */
  upstreamCookieBytes: 4 * KIB,
  responseHeadBytes: 64 * KIB,
  /** The line before a chunk, with its extensions, and the trailers of one response. */
  chunkLineBytes: 4 * KIB,
  trailerBytes: 64 * KIB,
  interimResponses: 16,
  /** Nesting of objects and arrays in each member of a message. */
  jsonDepth: 64,
  clientObjectMembers: 10_000,
  upstreamObjectMembers: 100_000,
  /** One name of a member of arguments that an access rule or a decision point reads. */
  memberNameChars: KIB,
  /** Values (objects, arrays, strings, numbers and literals) of one message, at all depths. */
  clientMessageValues: 100_000,
  upstreamMessageValues: 1_000_000,

  /** One `traceparent` or `tracestate` of a client, of which spans keep parts. */
  traceContextChars: 512,
  /** Ended spans that wait for their export, with those that are being exported. */
  traceSpans: 2_048,

  /** Tokens of clients that were verified in the last minute, and that an issuer has called inactive. */
  verifiedTokens: 10_000,
  inactiveTokens: 10_000,
  tokenScopes: 1_000,
  issuerResponseBytes: 256 * KIB,
  /** Questions to a decision point at the same time, and one of them. */
  externalQuestions: 64,
  externalQuestionBytes: 64 * KIB,
  /** Sets of scopes that an authorization server has refused lately, for one principal at one upstream. */
  refusedScopeSets: 16,
  credentialAudiences: 10_000,
  /** The credentials of an upstream, with the tokens that they were got for. */
  credentialChars: 64 * MIB,
  /** Principals that are remembered for upstreams whose credentials depend on them. */
  callers: 10_000,
  tokensPerCaller: 32,
  callerTokenChars: 32 * MIB,

  /** Counters of `gateway.rates`: one for each rate and principal. */
  rateCounters: 100_000,
  repeatedCalls: 20_000,
  auditedRefusalsPerSecond: 50,
  adminBodyBytes: MIB,
  logBufferBytes: 4 * MIB,
  /** Refused requests of one principal, or without one, that get a line in the log. */
  refusalLinesPerSecond: 10,
  logFollowers: 16,
  logFollowerBytes: MIB,
  /** Sets of access rules that principals share, and as many with scopes that they lack. */
  sharedRights: 1_024,
  seenClients: 1_000,
} as const;

export type LimitName = keyof typeof LIMITS;
