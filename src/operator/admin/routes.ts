import { z } from 'zod';
import { LOG_LEVELS } from '../../config/values/config.ts';
import { AdminError, type AdminPort } from './admin-port.ts';
import { viewIdOf } from '../../endpoint-path.ts';
import * as answers from './answers.ts';
import { diffAnswerOf, reloadAnswerOf } from './config-answers.ts';

/** The path of the admin API. Its version changes when an answer loses a member or changes its meaning. */
export const ADMIN_PATH = '/admin/v1';

export type HttpMethod = 'get' | 'post' | 'put' | 'delete';

/** One operation of the admin API. */
export interface AdminRoute {
  readonly method: HttpMethod;
  /** Below {@link ADMIN_PATH}, with `{id}` for a part that the caller chooses. */
  readonly path: string;
  /** Unique; for clients that are generated from the document. */
  readonly operationId: string;
  readonly summary: string;
  /** Without members if there is none. */
  readonly query: z.ZodObject;
  readonly body: z.ZodObject;
  /** True if the operator changes something, which the log and the audit log tell. */
  readonly changes: boolean;
  /** True if an upstream gets the numbers of the body, so that a changed one is refused. */
  readonly isBodySent: boolean;
  readonly answer: z.ZodType;
  /** Carries out a request, and makes the answer by its schema. @throws {AdminError} */
  run(port: AdminPort, request: AdminRequest): Promise<unknown>;
}

/** A request whose operator is known. */
export interface AdminRequest {
  readonly operator: string;
  /** The part of the path that the caller chose; empty if the path has none. */
  readonly id: string;
  readonly query: Readonly<Record<string, string>>;
  /** The parsed JSON body; an empty map if there is none. */
  readonly body: unknown;
  /** Aborted when the caller has gone. */
  readonly signal: AbortSignal;
}

/** The query or the body of a request that has none. */
const NONE = z.object({});
type None = typeof NONE;

interface RouteParts<Q extends z.ZodObject, B extends z.ZodObject, A extends z.ZodType> extends Pick<
  AdminRoute,
  'operationId' | 'summary'
> {
  readonly query: Q;
  readonly body: B;
  readonly changes?: boolean;
  readonly isBodySent?: boolean;
  readonly answer: A;
  readonly handle: (
    port: AdminPort,
    input: Omit<AdminRequest, 'query' | 'body'> & { readonly query: z.output<Q>; readonly body: z.output<B> },
  ) => z.input<A> | Promise<z.input<A>>;
}

function route<Q extends z.ZodObject, B extends z.ZodObject, A extends z.ZodType>(
  method: HttpMethod,
  path: string,
  { handle, ...parts }: RouteParts<Q, B, A>,
): AdminRoute {
  return {
    method,
    path,
    changes: method !== 'get',
    isBodySent: false,
    ...parts,
    run: async (port, request) => {
      const query = check(parts.query, request.query, 'query');
      const body = check(parts.body, request.body, 'body');
      return parts.answer.parse(await handle(port, { ...request, query, body }));
    },
  };
}

/** Returns the route of requests without a query. */
function withBody<B extends z.ZodObject, A extends z.ZodType>(
  method: HttpMethod,
  path: string,
  parts: Omit<RouteParts<None, B, A>, 'query'>,
): AdminRoute {
  return route(method, path, { ...parts, query: NONE });
}

/** Returns the route of requests without a query and a body. */
function plain<A extends z.ZodType>(
  method: HttpMethod,
  path: string,
  parts: Omit<RouteParts<None, None, A>, 'query' | 'body'>,
): AdminRoute {
  return route(method, path, { ...parts, query: NONE, body: NONE });
}

/** Returns a part of a request, checked by its schema. @throws {AdminError} `invalid-request` */
function check<S extends z.ZodType>(schema: S, value: unknown, part: 'query' | 'body'): z.output<S> {
  const checked = schema.safeParse(value);
  if (checked.success) return checked.data;
  const problems = checked.error.issues.map(({ path, message }) => `${[part, ...path].join('.')}: ${message}`);
  throw new AdminError('invalid-request', `${problems.join('; ')}. ${ADMIN_PATH}/openapi.json describes each request.`);
}

/** The longest drain that an operator can ask for. A request must not wait for longer than proxies allow. */
const MAX_DRAIN_SECONDS = 600;
const drainSeconds = (seconds: number) =>
  z
    .number()
    .min(0)
    .max(MAX_DRAIN_SECONDS)
    .default(seconds)
    .describe('Longest wait for calls in flight; later they fail with an unknown outcome.');

/** A year: the longest validity of a session. */
const MAX_GRACE_SECONDS = 31_536_000;

const RESTART_DRAIN_SECONDS = 30;
const DISABLE_DRAIN_SECONDS = 60;
const MS = 1_000;

const view = z
  .string()
  .overwrite(viewIdOf)
  .default('')
  .describe('The endpoint: its path, or the last segment of it; empty for `/mcp`.');

/** Every operation of the admin API that answers with one JSON document. */
export const ADMIN_ROUTES: readonly AdminRoute[] = [
  plain('get', '/status', {
    operationId: 'getStatus',
    summary: 'The state of the gateway as a whole.',
    answer: answers.statusAnswer,
    handle: (port) => port.status(),
  }),
  plain('get', '/upstreams', {
    operationId: 'listUpstreams',
    summary: 'Every upstream, with its state, the reason and the next step.',
    answer: answers.upstreamsAnswer,
    handle: (port) => port.upstreams(),
  }),
  plain('get', '/upstreams/{id}', {
    operationId: 'getUpstream',
    summary: 'One upstream.',
    answer: answers.upstreamAnswer,
    handle: async (port, { id }) => {
      const { upstreams: all } = await port.upstreams();
      const found = all.find((upstream) => upstream.id === id);
      if (found !== undefined) return found;
      throw new AdminError(
        'not-found',
        `There is no upstream "${id}". There are: ${all.map((one) => one.id).join(', ')}.`,
      );
    },
  }),
  withBody('post', '/upstreams/{id}/restart', {
    operationId: 'restartUpstream',
    summary: 'Opens new connections to an upstream and closes the old ones. Also enables a disabled one.',
    body: z.object({ drainSeconds: drainSeconds(RESTART_DRAIN_SECONDS) }),
    answer: answers.restartAnswer,
    handle: (port, { id, body, operator }) => port.restartUpstream(id, body.drainSeconds * MS, operator),
  }),
  withBody('post', '/upstreams/{id}/disable', {
    operationId: 'disableUpstream',
    summary: 'Takes an upstream out of service until it is restarted. Calls in flight may end first.',
    body: z.object({ drainSeconds: drainSeconds(DISABLE_DRAIN_SECONDS) }),
    answer: answers.doneAnswer,
    handle: (port, { id, body, operator }) => port.disableUpstream(id, body.drainSeconds * MS, operator),
  }),
  route('get', '/catalog', {
    operationId: 'getCatalog',
    summary: 'The items of an endpoint with their origin, also those that clients do not get, and why.',
    body: NONE,
    query: z.object({
      view,
      era: z.enum(['legacy', 'modern']).default('legacy').describe('The era of the clients.'),
      upstream: z.string().optional().describe('Only the items of this upstream.'),
    }),
    answer: answers.catalogAnswer,
    handle: (port, { query }) => port.catalog({ ...query, upstream: query.upstream }),
  }),
  withBody('post', '/explain', {
    operationId: 'explain',
    summary: 'Whether a principal may use an item, with every reason in order.',
    body: z.object({
      as: z
        .record(z.string(), z.unknown())
        .describe('The principal: the payload of a token, or key, groups, scopes, subject, issuer, client, claims.'),
      view,
      kind: z.enum(['tool', 'prompt', 'resource']),
      name: z.string().describe('The published name or URI.'),
      args: z.record(z.string(), z.unknown()).optional().describe('The arguments of the call.'),
    }),
    changes: false,
    answer: answers.explainAnswer,
    handle: (port, { body }) => port.explain({ ...body, args: body.args }),
  }),
  plain('get', '/clients', {
    operationId: 'listClients',
    summary: 'The clients since the start, with what they declare.',
    answer: answers.clientsAnswer,
    handle: (port) => port.clients(),
  }),
  plain('get', '/sessions', {
    operationId: 'listSessions',
    summary: 'Sessions of legacy clients and groups of modern clients in memory.',
    answer: answers.sessionsAnswer,
    handle: (port) => port.sessions(),
  }),
  plain('delete', '/sessions/{id}', {
    operationId: 'endSession',
    summary: 'Ends a session for good. Its client gets 404 and opens a new one.',
    answer: answers.doneAnswer,
    handle: async (port, { id, operator }) => ({ message: await port.endSession(id, operator) }),
  }),
  plain('get', '/streams', {
    operationId: 'listStreams',
    summary: 'Open streams toward clients for messages that belong to no request.',
    answer: answers.streamsAnswer,
    handle: (port) => port.streams(),
  }),
  plain('get', '/calls', {
    operationId: 'listCalls',
    summary: 'Requests in flight at upstreams, and parked calls.',
    answer: answers.callsAnswer,
    handle: (port) => port.calls(),
  }),
  withBody('post', '/call', {
    operationId: 'callTool',
    summary: 'Calls a tool once, as the operator of the key. The answer names the principal.',
    body: z.object({
      tool: z.string().min(1).describe('The published name.'),
      arguments: z.record(z.string(), z.unknown()).default({}),
      view,
    }),
    isBodySent: true,
    answer: answers.toolCallAnswer,
    handle: (port, { operator, body, signal }) => port.callTool(operator, body, signal),
  }),
  plain('get', '/config', {
    operationId: 'getConfig',
    summary: 'The running config with the origin of each value; secrets are redacted.',
    answer: answers.configAnswer,
    handle: ({ config }) => ({ config: config.state, settings: [...config.settings()] }),
  }),
  plain('get', '/config/diff', {
    operationId: 'diffConfig',
    summary: 'The difference between the running config and the file; secrets are redacted.',
    answer: answers.configDiffAnswer,
    handle: ({ config }) => diffAnswerOf(config),
  }),
  plain('post', '/config/reload', {
    operationId: 'reloadConfig',
    summary: 'Reads the config file again and applies it if it is valid.',
    answer: answers.reloadAnswer,
    handle: async ({ config }) => reloadAnswerOf(await config.reload('operator'), config),
  }),
  withBody('post', '/drain', {
    operationId: 'setDraining',
    summary: 'Makes /readyz answer 503, so that load balancers send no new clients; or undoes it.',
    body: z.object({ isDraining: z.boolean().default(true) }),
    answer: answers.doneAnswer,
    handle: (port, { body }) => ({ message: port.setDraining(body.isDraining) }),
  }),
  withBody('post', '/keys/rotate', {
    operationId: 'rotateKeys',
    summary: 'Adds a key that seals session ids, cursors and task ids from now on. Older ones stay valid for a time.',
    body: z.object({
      graceSeconds: z
        .number()
        .min(0)
        .max(MAX_GRACE_SECONDS)
        .optional()
        .describe('Validity of older handles from now on; 0 ends all sessions. Default: `sessions.maxAge`.'),
    }),
    answer: answers.doneAnswer,
    handle: async (port, { body: { graceSeconds } }) => ({
      message: await port.rotateKeys(graceSeconds === undefined ? undefined : graceSeconds * MS),
    }),
  }),
  plain('get', '/log-level', {
    operationId: 'getLogLevel',
    summary: 'The lowest level of the log lines that are written.',
    answer: answers.logLevelAnswer,
    handle: (port) => ({ level: port.logLevel }),
  }),
  withBody('put', '/log-level', {
    operationId: 'setLogLevel',
    summary: 'Changes the level until the gateway stops, or a reload finds another in the file.',
    body: z.object({ level: z.enum(LOG_LEVELS) }),
    answer: answers.logLevelAnswer,
    handle: async (port, { body: { level }, operator }) => {
      const before = port.logLevel;
      const unconfirmed = await port.setLogLevel(level, operator);
      const isSet = `The level is ${level} until the gateway stops, or the file sets another; it was ${before}.`;
      if (unconfirmed.length === 0) return { level, message: isSet };
      const message = `${isSet} Replicas that have not confirmed it: ${unconfirmed.join(', ')}.`;
      return { level, message, unconfirmed: [...unconfirmed] };
    },
  }),
];
