import type { HttpBindings } from '@hono/node-server';
import { type Context, Hono } from 'hono';
import type { Logger } from 'pino';
import type { ApiKeys } from '../../auth/api-key.ts';
import { changedNumber, infiniteNumber } from '../../json/changed-number.ts';
import { CLIENT_BOUNDS, JsonTextError, RawObject } from '../../json/json.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import { escapeUnseen, shownText } from '../../peer-text.ts';
import { admitOperator, type OnRefused } from './access.ts';
import { AdminError, type AdminPort } from './admin-port.ts';
import type { RefusalCode } from './answers.ts';
import { logStream } from './log-stream.ts';
import { openApiDocument } from './openapi.ts';
import { ADMIN_ROUTES, type AdminRoute } from './routes.ts';

export interface AdminParts {
  readonly port: AdminPort;
  /** Returns the keys of operators at this moment, which a reload may replace. A key of a client is not among them. */
  readonly operators: () => ApiKeys;
  readonly version: string;
  readonly log: Logger;
  readonly onRefused: OnRefused;
  /** Runs before an operation that changes something. @param target what it changes, if that has an id. */
  readonly onOperation?: (operator: string, operation: string, target: string | undefined) => void;
  readonly onLimit: (limit: LimitName) => void;
}

interface Env {
  Bindings: Partial<HttpBindings>;
  Variables: { operator: string };
}

export type AdminApp = Hono<Env>;

const STATUS = {
  unauthorized: 401,
  forbidden: 403,
  'invalid-request': 400,
  'not-found': 404,
  'method-not-allowed': 405,
  'unsupported-media-type': 415,
  'body-too-large': 413,
  overloaded: 503,
  'internal-error': 500,
} as const satisfies Record<RefusalCode, number>;

type Status = 200 | 503 | (typeof STATUS)[RefusalCode];

/** Returns an answer that may hold texts of peers. */
export function answerWith(c: Context, value: unknown, status: Status = 200, headers: Record<string, string> = {}) {
  const text = escapeUnseen(JSON.stringify(value));
  return c.body(text, status, { 'Content-Type': 'application/json', ...headers });
}

function refuse(c: Context, error: RefusalCode, message: string, headers: Record<string, string> = {}): Response {
  return answerWith(c, { error, message }, STATUS[error], headers);
}

/** Creates the app of the admin API. Every route but the OpenAPI document needs the key of an operator. */
export function createAdminApp(parts: AdminParts): AdminApp {
  const { port, operators, version, log, onRefused, onOperation, onLimit } = parts;
  const app = new Hono<Env>();
  let document: object | undefined;

  app.get('/openapi.json', (c) => c.json((document ??= openApiDocument(version))));

  app.use(async (c, next) => {
    const access = admitOperator(c.req.raw.headers, operators());
    if (access.kind === 'refused') {
      onRefused(access.error, c.env.incoming);
      const challenge =
        access.error === 'unauthorized' ? { 'WWW-Authenticate': 'Bearer realm="linkspan operator"' } : {};
      return refuse(c, access.error, access.message, challenge);
    }
    c.set('operator', access.name);
    return await next();
  });

  app.get('/log', (c) => {
    const { headers } = c.req.raw;
    let checked = operators();
    const isAllowed = () => {
      const keys = operators();
      if (keys !== checked && admitOperator(headers, keys).kind === 'refused') return false;
      checked = keys;
      return true;
    };
    // Nobody reads or cancels the stream that answers HEAD.
    const follow = c.req.query('follow') === 'true' && c.req.method === 'GET';
    const stream = logStream(port, { follow, isAllowed, onLimit });
    return new Response(stream, { headers: { 'Content-Type': 'application/x-ndjson', 'Cache-Control': 'no-store' } });
  });

  for (const route of ADMIN_ROUTES) {
    app.on(route.method.toUpperCase(), patternOf(route.path), async (c) => {
      const body = await readBody(c, route, onLimit);
      const operator = c.get('operator');
      if (route.changes) {
        onOperation?.(operator, route.operationId, c.req.param('id'));
        log.info({ operator, operation: route.operationId, target: c.req.param('id') }, 'operator request');
      }
      const request = {
        operator,
        id: c.req.param('id') ?? '',
        query: c.req.query(),
        body,
        signal: c.req.raw.signal,
      };
      return answerWith(c, await route.run(port, request));
    });
  }

  const served = [{ method: 'get', path: '/log' }, ...ADMIN_ROUTES];
  for (const [path, routes] of Map.groupBy(served, (route) => route.path)) {
    const allowed = routes.map(({ method }) => method.toUpperCase()).join(', ');
    app.all(patternOf(path), (c) => refuse(c, 'method-not-allowed', `Use ${allowed}.`, { Allow: allowed }));
  }
  // Not `notFound`, which Hono ignores in an app that is part of another.
  app.all('*', (c) => refuse(c, 'not-found', 'There is no such operation; openapi.json lists all.'));

  app.onError((error, c) => {
    if (error instanceof AdminError) {
      // Only the log has a limit on the number of operators.
      if (error.code === 'overloaded') onLimit('logFollowers');
      return refuse(c, error.code, error.message);
    }
    log.error({ err: error }, 'operator request failed');
    return refuse(c, 'internal-error', 'The gateway failed to answer; its log has the reason.');
  });
  return app;
}

/** Returns the path of a route as Hono writes it. */
function patternOf(path: string): string {
  return path.replace('{id}', ':id');
}

/** Reads the JSON body of a request, within the bounds of messages from clients. An empty body is an empty map. @throws {AdminError} */
async function readBody(
  c: Context,
  { body, isBodySent }: AdminRoute,
  onLimit: (limit: LimitName) => void,
): Promise<unknown> {
  if (Object.keys(body.shape).length === 0) return {};
  const text = await textOf(c.req.raw.body);
  if (text === undefined) {
    onLimit('adminBodyBytes');
    // The rest of the body is not read, so no further request can follow on this connection.
    c.header('Connection', 'close');
    throw new AdminError('body-too-large', `The body is larger than ${LIMITS.adminBodyBytes} bytes.`);
  }
  if (text.trim() === '') return {};
  if (!/^application\/json\s*(?:;|$)/i.test(c.req.header('content-type') ?? '')) {
    throw new AdminError('unsupported-media-type', 'Send the body as application/json.');
  }
  try {
    // A body beyond the bounds can be parsed, but it overflows the stack when it is written to an upstream.
    RawObject.parseStrictly(text, CLIENT_BOUNDS);
    const changed = isBodySent ? changedNumber(text) : undefined;
    if (changed !== undefined) {
      const message = `The body has the number ${changed}, which would be changed; send it as text.`;
      throw new AdminError('invalid-request', message);
    }
    // A number that is sent is judged above.
    const huge = isBodySent ? undefined : infiniteNumber(text);
    if (huge === undefined) return JSON.parse(text);
    throw new AdminError('invalid-request', `The body has the number ${shownText(huge)}, which is too large.`);
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
    const { refused, message } = thrown;
    if (refused !== undefined && refused !== 'duplicate') onLimit(refused);
    const what = refused === undefined ? 'is not a JSON object' : 'is not accepted';
    throw new AdminError('invalid-request', `The body ${what}: ${message}.`);
  }
}

/**
 * Returns the text of a body; undefined if it is larger than an operator may send. Hono's limit needs another `Request`.
 *
 * @throws {AdminError} if the operator leaves before the end.
 */
async function textOf(body: ReadableStream<Uint8Array> | null): Promise<string | undefined> {
  if (body === null) return '';
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  try {
    for await (const chunk of body) {
      bytes += chunk.length;
      if (bytes > LIMITS.adminBodyBytes) return undefined;
      chunks.push(chunk);
    }
  } catch {
    // Only the connection can fail here, and nobody reads this answer.
    throw new AdminError('invalid-request', 'The body ended before its end.');
  }
  return Buffer.concat(chunks).toString('utf8');
}
