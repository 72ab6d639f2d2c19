import type { HttpBindings } from '@hono/node-server';
import type { Logger } from 'pino';
import type { Authenticator } from '../../auth/authenticate.ts';
import type { Config } from '../../config/values/config.ts';
import { type ErrorCode, GatewayError } from '../../errors.ts';
import type { PassedOn } from '../../gateway/front/front.ts';
import { shownText } from '../../peer-text.ts';
import type { Principal } from '../../policy/principal.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { RefusalLines } from '../../telemetry/log/refusal-lines.ts';
import { ClientAddresses, networkOf } from './client-address.ts';
import { type HeaderForms, readHeaders, type RequestHeaders } from './headers.ts';
import { type AllowedHosts, allowedHostsOf, foreignOrigin, refuseSender, refuseTarget } from './origin.ts';
import { refuse } from './refusal.ts';
import type { RefusalAudit } from './refusal-audit.ts';
import { endpointPath, ssePath } from '../../endpoint-path.ts';

/** A request whose target, sender and credentials are accepted. */
export interface Admitted {
  readonly headers: RequestHeaders;
  readonly principal: Principal;
  /** Set if another process has passed the request on. */
  readonly passedOn?: Omit<PassedOn, 'text'>;
}

export interface AdmissionParts {
  readonly authenticator: Authenticator;
  readonly config: Config;
  /** `http://host:port` with the port that was bound. */
  readonly origin: string;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** Undefined if there is no audit log. */
  readonly refusals?: RefusalAudit | undefined;
}

/** The longest part of a header that is logged. */
const LOGGED_CHARS = 100;

/** Host names that every reader parses alike. */
const PLAIN_HOST = /^[a-z\d._-]+(?::(?:\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}))?$/;

/** The time after which credentials can perhaps be checked, which could not be checked now. */
const RETRY_AFTER_S = 5;

/** The error row of each HTTP status. */
const ROWS = {
  400: 'invalid-request',
  401: 'unauthorized',
  403: 'forbidden',
  503: 'auth-unavailable',
} as const satisfies Record<number, ErrorCode>;

/** Checks the target, sender and credentials of every request before it is handled. */
export class Admission {
  readonly #parts: AdmissionParts;
  readonly #allowedHosts: AllowedHosts;
  readonly #origin: string;
  readonly #merged: string;
  readonly #addresses: ClientAddresses;
  readonly #refusalLines: RefusalLines;

  constructor(parts: AdmissionParts) {
    this.#parts = parts;
    this.#allowedHosts = allowedHostsOf(parts.config);
    this.#refusalLines = new RefusalLines(parts.log, (limit) => parts.metrics.countLimit(limit));
    this.#addresses = new ClientAddresses(parts.config.trustedProxies);
    this.#origin = parts.config.publicUrl ?? parts.origin;
    this.#merged = this.#origin + endpointPath('');
  }

  /** Returns the external URI of the endpoint of a view. */
  endpoint(view: string): string {
    return view === '' ? this.#merged : this.#origin + endpointPath(view);
  }

  /** Returns the external URI at which clients of HTTP+SSE reach a view. It is an OAuth resource of its own, because clients compare the URIs. */
  sseEndpoint(view: string): string {
    return this.#origin + ssePath(view);
  }

  /** Checks the request target, `Host` and `Origin`. Returns the headers, or the refusal, or the answer to a preflight. */
  checkSender({ incoming, outgoing }: HttpBindings): RequestHeaders | Response {
    const target = refuseTarget(incoming.url ?? '');
    if (target !== undefined) return refuse(target);
    const headers = readHeaders(incoming);
    const sender = refuseSender(headers, this.#allowedHosts);
    if (sender !== undefined) return this.#refuseSender(sender, headers, incoming);
    const { crossOrigins } = this.#allowedHosts;
    // Also without an origin: a cache would give the answer to a page.
    if (crossOrigins.size > 0) outgoing.setHeader('vary', 'origin');
    if (headers.origin === undefined || !crossOrigins.has(headers.origin)) {
      // A page of this machine, which cannot read the answer. Its preflight has no credentials, and must not look like a failure of those.
      const isPreflight = incoming.method === 'OPTIONS' && 'access-control-request-method' in incoming.headers;
      return isPreflight ? this.#refuseSender(foreignOrigin(), headers, incoming) : headers;
    }
    outgoing.setHeader('access-control-allow-origin', headers.origin);
    outgoing.setHeader('access-control-expose-headers', 'mcp-session-id, www-authenticate');
    return incoming.method === 'OPTIONS' ? preflight(incoming.headers['access-control-request-headers']) : headers;
  }

  #refuseSender(error: GatewayError, headers: RequestHeaders, incoming: HttpBindings['incoming']): Response {
    const address = this.#addresses.of(incoming);
    this.#parts.refusals?.record({ error, reason: error.code, address });
    if (this.#refusalLines.admits(undefined)) {
      const [host, origin] = [headers.host, headers.origin].map((name) => name && shownText(name, LOGGED_CHARS));
      this.#parts.log.warn({ host, origin, why: error.message }, 'request refused');
    }
    return refuse(error);
  }

  /**
   * Returns the headers of a request whose sender is certainly allowed. Undefined means that {@link admit} must decide;
   * it allows every request that this method allows.
   */
  admitPlain(incoming: HeaderForms): RequestHeaders | undefined {
    const headers = readHeaders(incoming);
    const { host, origin } = headers;
    if (origin !== undefined || host === undefined || !PLAIN_HOST.test(host)) return undefined;
    return refuseSender(headers, this.#allowedHosts) === undefined ? headers : undefined;
  }

  /** Returns the principal if it is known without waiting. Undefined means that {@link admit} must decide. */
  principalOf(headers: RequestHeaders, view: string, connection: object): Principal | undefined {
    return this.#parts.authenticator.known(headers, this.endpoint(view), connection);
  }

  admit(env: HttpBindings, view: string): Promise<Admitted | Response> {
    return this.#admit(env, view, this.endpoint(view));
  }

  /** Admits a request of HTTP+SSE. A token for the view's endpoint of Streamable HTTP is accepted too. */
  admitSse(env: HttpBindings, view: string): Promise<Admitted | Response> {
    return this.#admit(env, view, this.sseEndpoint(view), [this.endpoint(view)]);
  }

  async #admit(
    env: HttpBindings,
    view: string,
    endpoint: string,
    alsoFor?: readonly string[],
  ): Promise<Admitted | Response> {
    const headers = this.checkSender(env);
    if (headers instanceof Response) return headers;

    const { authenticator, log, metrics, refusals } = this.#parts;
    const address = this.#addresses.of(env.incoming);
    const found = await authenticator.authenticate(headers, endpoint, networkOf(address), alsoFor);
    if (found.kind === 'principal') return { headers, principal: found.principal };

    const { status, challenge, why } = found;
    metrics.countAuthFailure(why);
    if (this.#refusalLines.admits(undefined)) log.info({ status, why }, 'request refused');
    const error = new GatewayError(ROWS[status], { message: why });
    refusals?.record({ error, reason: why, view, address });
    const later = status === 503 ? { 'retry-after': String(RETRY_AFTER_S) } : {};
    return refuse(error, undefined, challenge === undefined ? later : { 'www-authenticate': challenge });
  }
}

const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;

/**
 * Answers the CORS preflight of a page of an allowed origin, which has no credentials. The page may send any header: those that the gateway does
 * not read have no effect.
 *
 * @param asked the header that names the headers of the actual request.
 */
function preflight(asked = ''): Response {
  const names = asked.split(',').map((name) => name.trim());
  return new Response(null, {
    status: 204,
    headers: {
      'access-control-allow-methods': 'GET, POST, DELETE',
      'access-control-allow-headers': names.filter((name) => TOKEN.test(name)).join(', '),
      'access-control-max-age': '600',
    },
  });
}
