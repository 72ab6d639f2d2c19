import { z } from 'zod';

/** States of an upstream, the one that is most useful to clients first. */
export const UPSTREAM_STATES = [
  'ready',
  'degraded',
  'starting',
  'configured',
  'needs-authorization',
  'failed',
  'stopped',
] as const;

/**
 * The answers of the admin API. Every answer is made by its schema, which removes members that it does not declare. The OpenAPI document is
 * made from the same schemas.
 */

/** Names of the schemas in the OpenAPI document. */
export const components = z.registry<{ id: string }>();

/** Returns the schema of a map that has a name in the OpenAPI document. */
function named<Shape extends z.core.$ZodShape>(id: string, shape: Shape) {
  return z.object(shape).register(components, { id });
}

const json = z.json().register(components, { id: 'Json' });
const count = () => z.int().min(0);
const time = () => z.iso.datetime();
const words = (what: string) => z.string().describe(what);

const unanswered = z
  .array(
    named('SilentReplica', {
      replica: words('Its address for other replicas: `host:port`.'),
      why: words('Why it has not answered.'),
    }),
  )
  .optional()
  .describe('The replicas whose part is missing here; absent if all have answered.');
const replica = words('The replica that it is at: `host:port`; absent if there is only one.').optional();
const unconfirmed = z
  .array(z.string())
  .optional()
  .describe('The replicas that have not confirmed it; absent if all have. `message` names them too.');

const era = z.object({
  speaks: z.enum(['yes', 'no', 'unknown']).describe('`unknown` until the first client of that era has connected.'),
  how: words('The evidence for `speaks`.').optional(),
  revision: words('The revision that was last negotiated in this era.').optional(),
  servedIn: z
    .enum(['legacy', 'modern'])
    .optional()
    .describe('The era in which it serves clients of this era; the other one if it does not support this one.'),
  tools: count(),
  prompts: count(),
  resources: count(),
  listProblems: z.array(z.string()).describe('Items and members of its lists that clients do not get, and why.'),
});

export const upstreamAnswer = named('Upstream', {
  id: z.string(),
  title: words('The key in the config file.'),
  transport: z.enum(['stdio', 'http', 'sse']),
  state: z
    .enum(UPSTREAM_STATES)
    .describe(
      '`configured`: not started yet. `ready`: its last start has succeeded; it stays so without connections, since the next request opens one. `stopped`: with the gateway.',
    ),
  since: time().describe(
    'Since when it is in this state. `starting`, `failed` and `needs-authorization` are one here, as attempts follow each other.',
  ),
  reason: words('Why it is in this state; absent if the state needs no reason.').optional(),
  retryInSeconds: count()
    .optional()
    .describe(
      'The time for which no connection is opened after a failure; absent if the next attempt may come at once.',
    ),
  nextStep: words('What an operator can do about the state; absent if there is nothing to do.').optional(),
  isDisabled: z.boolean().describe('Whether an operator has taken it out of service.'),
  isRequired: z.boolean().describe('Whether the gateway is ready only while it is up.'),
  connections: count().describe('Open connections; for stdio, one process tree each.'),
  requestsInFlight: count(),
  processes: count().optional().describe('stdio: its processes, including their descendants.'),
  memoryBytes: count().optional(),
  memoryNote: words('How the memory was measured, or why it is not known.').optional(),
  advice: words('The setting that would need fewer processes.').optional(),
  eras: z.object({ legacy: era, modern: era }),
  isListed: z
    .boolean()
    .describe('Whether the gateway has lists of it. If not, the numbers of its items are 0 and mean nothing.'),
  isForCallers: z
    .boolean()
    .describe('Whether its lists depend on the caller, so that the gateway has none for all clients.'),
  tools: count().describe('Items at `/mcp/<id>` for clients of the legacy era.'),
  filteredTools: count().describe('Tools removed by `includeTools` and `excludeTools`.'),
  prompts: count(),
  resources: count(),
  listProblems: z
    .array(z.string())
    .describe(
      'Items and members of items that clients do not get at some endpoint, and filters that match nothing: the first 50 in words.',
    ),
  emptyAt: z
    .array(z.string())
    .describe('Endpoints where clients get nothing of it although it lists something: `/mcp`, `/mcp/<id>`.'),
  lock: z
    .object({
      onChange: z
        .enum(['warn', 'quarantine', 'refuse'])
        .describe('The reaction to a definition that differs from the lock.'),
      differences: count().describe('Definitions that differ from the lock.'),
      withheld: count().describe('Items that clients do not get for that reason.'),
      details: z.array(z.string()).describe('The first 50 differences in words.'),
    })
    .optional()
    .describe('The definitions of the upstream, compared with the lock; absent if nothing of it is pinned.'),
  replicas: z
    .array(
      z.object({
        replica: z.string(),
        state: z.enum(UPSTREAM_STATES),
        reason: z.string().optional(),
        isDisabled: z.boolean(),
      }),
    )
    .optional()
    .describe('Its state at each replica, if that differs. Otherwise it is the same at all of them.'),
});

export const upstreamsAnswer = named('Upstreams', { upstreams: z.array(upstreamAnswer), unanswered });

const configState = named('ConfigState', {
  file: words('Absolute path of the config file.'),
  hash: words('The first 12 hex digits of the SHA-256 of the running config; equal in replicas with equal configs.'),
  loadedAt: time().describe('When the running config was loaded.'),
  lastGoodAt: time()
    .optional()
    .describe(
      'Present if the file was broken at the start with --last-good: the upstreams are those of the file that was saved at this time.',
    ),
  rejected: z
    .object({ at: time(), reason: z.string() })
    .optional()
    .describe('The last attempt to load the file, if it was rejected: the running config stays.'),
  atRestart: z.array(z.string()).describe('Changed settings that take effect at the next start, one line each.'),
  warnings: z.array(z.string()),
});

export const statusAnswer = named('Status', {
  version: z.string(),
  node: z.string(),
  pid: z.int(),
  startedAt: time(),
  config: configState,
  stateDir: z.string(),
  endpoint: words('URL of the merged endpoint.'),
  isReady: z.boolean(),
  reasons: z.array(z.string()).describe('All reasons why it is not ready, or serves less than it should.'),
  isDraining: z.boolean().describe('Whether an operator or a signal asked it to take no new clients.'),
  sessions: count().describe('Sessions in memory.'),
  clientGroups: count().describe(
    'Groups of clients without sessions: one for each principal, endpoint and set of capabilities.',
  ),
  requestsInFlight: count(),
  parkedCalls: count(),
  memoryBytes: count().describe('Resident memory of the gateway, without its upstreams.'),
  upstreams: z.object({ ready: count(), notReady: count(), total: count() }),
  replicas: z
    .array(
      z.object({
        replica: words('Its address for other replicas: `host:port`.'),
        isAsked: z
          .boolean()
          .describe('Whether it is the one that was asked, whose config, readiness and process these are.'),
        version: z.string(),
        startedAt: time(),
        configHash: z.string(),
        isReady: z.boolean(),
        reasons: z.array(z.string()),
      }),
    )
    .optional()
    .describe('The replicas that have answered, whose numbers are added up here; absent if there is only one.'),
  unanswered,
});

export const catalogAnswer = named('Catalog', {
  view: words('The endpoint: empty for `/mcp`, else the last segment of its path.'),
  era: z.enum(['legacy', 'modern']),
  items: z.array(
    z.object({
      kind: z.enum(['tool', 'prompt', 'resource', 'template']),
      name: words('The published name, URI or URI template; for an item that is not published, the upstream’s own.'),
      upstream: words('Id of the upstream that lists it.'),
      upstreamName: words('The upstream’s own name, URI or URI template.').optional(),
      status: z
        .enum(['published', 'repaired', 'filtered', 'quarantined', 'withheld'])
        .describe(
          '`repaired`: published with changes. `filtered`: left out by the config. `quarantined`: clients could not read it. `withheld`: it differs from the lock.',
        ),
      why: words('Why it is not published, or what was changed.').optional(),
    }),
  ),
  isCut: z.boolean().describe('Whether there are more items than one answer holds; ask for one upstream.'),
});

const client = named('Client', {
  name: words('As the client declares it.'),
  version: z.string(),
  revision: words('The revision that it uses.'),
  era: z.enum(['legacy', 'modern']),
  capabilities: z.array(z.string()).describe('Names of the capabilities that it declares.'),
  principal: words('Who the client is, by its credentials.'),
  connections: count().describe(
    'legacy: sessions that it has opened. modern: requests with a new set of declarations.',
  ),
  firstSeenAt: time(),
  lastSeenAt: time(),
  replica,
});

export const clientsAnswer = named('Clients', {
  clients: z.array(client).describe('Clients since the start of the gateway, the latest first.'),
  unanswered,
});

const session = named('Session', {
  id: words('A digest of the session id, which itself is a credential.'),
  kind: z.enum(['session', 'group']).describe('`group`: modern clients of one principal, which have no sessions.'),
  principal: z.string(),
  view: z.string(),
  revision: z.string(),
  client: words('Name and version, if known: a session that was restored after a restart has none.').optional(),
  requestsInFlight: count(),
  streams: count().describe('Open streams for messages that belong to no request.'),
  subscriptions: count().describe('Subscribed resources.'),
  upstreams: z.array(z.string()).describe('Upstreams that have a connection for it.'),
  idleSeconds: z.number().min(0),
  replica,
});

export const sessionsAnswer = named('Sessions', { sessions: z.array(session), isCut: z.boolean(), unanswered });

const stream = named('Stream', {
  session: words('The digest in the list of sessions.'),
  kind: z.enum(['listen', 'subscriptions']).describe('A GET stream of a session, or `subscriptions/listen`.'),
  count: count(),
  principal: z.string(),
  view: z.string(),
  replica,
});

export const streamsAnswer = named('Streams', { streams: z.array(stream), isCut: z.boolean(), unanswered });

const call = named('Call', {
  state: z.enum(['in-flight', 'parked']).describe('`parked`: waits for the answers of its modern client.'),
  method: z.string(),
  tool: z.string().optional(),
  upstream: z.string().optional(),
  session: z.string(),
  principal: z.string(),
  seconds: z.number().min(0).describe('Time since the request arrived.'),
  expiresInSeconds: z.number().min(0).optional().describe('parked: until its questions are cancelled.'),
  replica,
});

export const callsAnswer = named('Calls', {
  calls: z.array(call).describe('The longest first.'),
  isCut: z.boolean(),
  unanswered,
});

const setting = named('Setting', {
  key: words('As in the file: `gateway.sessions.idle`.'),
  value: json,
  origin: z.enum(['default', 'file', 'command line']),
  place: words('`file:line:column`, or the name of the option.').optional(),
});

export const configAnswer = named('Config', { config: configState, settings: z.array(setting) });

export const doneAnswer = named('Done', { message: words('What was done, as a sentence.'), unconfirmed });

export const restartAnswer = named('Restart', {
  message: words('What was done, as a sentence, with the reason if the upstream does not run.'),
  isStarted: z.boolean().describe('False if the upstream has failed, or is still starting.'),
  unconfirmed,
});

export const logLevelAnswer = named('LogLevel', {
  level: z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']),
  message: z.string().optional(),
  unconfirmed,
});

export const toolCallAnswer = named('ToolCall', {
  as: words('The principal that the call was made as.'),
  outcome: z
    .enum(['result', 'tool-error', 'error', 'input-required'])
    .describe('`tool-error`: the tool ran and failed. `error`: the gateway or the upstream refused the call.'),
  result: json.optional(),
  resultText: z
    .string()
    .optional()
    .describe('The result as JSON text, if it has an integer that is not exact in `result`.'),
  error: z.object({ code: z.int(), message: z.string(), data: json.optional() }).optional(),
  seconds: z.number().min(0),
});

export const explainAnswer = named('Explanation', {
  principal: z.string(),
  view: z.string().describe('The endpoint: empty for `/mcp`.'),
  kind: z.enum(['tool', 'prompt', 'resource']),
  name: z.string(),
  upstream: z.string().optional(),
  upstreamName: words("The upstream's own name or URI.").optional(),
  effect: z
    .enum(['allow', 'deny', 'depends', 'unknown'])
    .describe('`depends`: the arguments or the time of the call decide. `unknown`: no upstream has it.'),
  isListed: z.boolean().describe('Whether it is in the lists of the principal.'),
  groups: z.array(z.string()).optional().describe('The groups of the principal; absent without an access policy.'),
  claims: z
    .array(
      z.object({
        name: z.string(),
        value: words('As the token has it, in JSON; absent if the token lacks it.').optional(),
        isUsable: z.boolean().describe('False if it has another type than the declared one: then rules do not see it.'),
      }),
    )
    .optional()
    .describe('The declared claims of the principal; absent without an access policy.'),
  arguments: z.boolean().optional().describe('True if the answer is about one call with arguments.'),
  reasons: z
    .array(
      z.object({
        about: z.enum(['endpoint', 'upstream', 'list', 'rule', 'decision', 'external']),
        text: z.string(),
        place: z.string().optional().describe('File and line of the rule.'),
      }),
    )
    .describe('In the order in which a request meets them.'),
});

export const reloadAnswer = named('Reload', {
  outcome: z
    .enum(['unchanged', 'applied', 'rejected'])
    .describe('`rejected`: the file cannot be used, and the running config stays.'),
  message: z.string(),
  changes: z.array(z.string()).describe('The changes that were applied, one line each; secrets are not shown.'),
  problems: z.array(z.string()).describe('Why the file was rejected, one line each.'),
  config: configState,
});

export const configDiffAnswer = named('ConfigDiff', {
  isDifferent: z.boolean().describe('Whether the file differs from the running config, or cannot be used.'),
  changes: z
    .array(z.string())
    .describe('What a reload would change, and the next start, one line each; secrets are not shown.'),
  problems: z.array(z.string()).describe('Why the file cannot be used, one line each.'),
  config: configState,
});

export const refusalAnswer = named('Refusal', {
  error: z.enum([
    'unauthorized',
    'forbidden',
    'invalid-request',
    'not-found',
    'method-not-allowed',
    'unsupported-media-type',
    'body-too-large',
    'overloaded',
    'internal-error',
  ]),
  message: words('What happened, and what to do.'),
});

export type UpstreamAnswer = z.output<typeof upstreamAnswer>;
/** The status of an upstream, as `/status` shows it. */
export type UpstreamStatus = Omit<
  UpstreamAnswer,
  'nextStep' | 'isDisabled' | 'isRequired' | 'requestsInFlight' | 'listProblems' | 'emptyAt' | 'replicas'
>;
/** The items of an upstream that clients do not get, and the endpoints where they get none. */
export type ListGaps = Pick<UpstreamAnswer, 'listProblems' | 'emptyAt'>;
export type UpstreamsAnswer = z.output<typeof upstreamsAnswer>;
export type DoneAnswer = z.output<typeof doneAnswer>;
/** The running config and the one on disk. Nothing in it is a secret. */
export type ConfigState = z.output<typeof configState>;
export type StatusAnswer = z.output<typeof statusAnswer>;
export type CatalogAnswer = z.output<typeof catalogAnswer>;
export type ClientsAnswer = z.output<typeof clientsAnswer>;
export type SessionsAnswer = z.output<typeof sessionsAnswer>;
export type StreamsAnswer = z.output<typeof streamsAnswer>;
export type CallsAnswer = z.output<typeof callsAnswer>;
export type ToolCallAnswer = z.output<typeof toolCallAnswer>;
export type ExplainAnswer = z.output<typeof explainAnswer>;
export type RestartAnswer = z.output<typeof restartAnswer>;
export type RefusalCode = z.output<typeof refusalAnswer>['error'];
