import type { Agent } from 'undici';
import { type EgressConfig, DIRECT_EGRESS } from '../config/values/credentials.ts';
import { type LimitName, LIMITS } from '../limits.ts';
import { EgressError } from './egress-error.ts';
import type { Resolve } from '../http1/lookup.ts';
import type { UrlSource } from './guarded-connector.ts';
import { checkJson, JsonTextError, UPSTREAM_BOUNDS } from '../json/json.ts';
import { resultOrError } from '../thrown.ts';
import { getOrMake } from '../map-entries.ts';

const TIMEOUT_MS = 5_000;

/** Sockets for the requests to one receiver, apart from those of other requests. */
export interface SocketPool {
  /** The longest wait for a connection. Requests with another one have other sockets. */
  readonly connectMs: number;
  readonly idleMs: number;
  readonly maxSockets: number;
}

/** One request to an issuer, a receiver of records or a decision point. */
export interface EgressRequest {
  readonly method?: 'GET' | 'POST';
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  /** Keeps the connection for a next request. By default it is closed, because requests are minutes apart. */
  readonly keepsConnection?: boolean;
  /** Default: the sockets of most requests, with a wait of 5 s for a connection. */
  readonly pool?: SocketPool;
  /** Ends the request, but not the wait for a connection. Default: a deadline of 5 s. */
  readonly signal?: AbortSignal;
}

/** Response headers that callers read. */
const HEADERS = ['content-type', 'www-authenticate'] as const;

/**
 * Sends all requests of the gateway to issuers, and to URLs that they name. They are for keys, about tokens, and for tokens. It also sends
 * audit records, and questions about access. Follows no redirects, since a redirect could take credentials elsewhere.
 *
 * Upstreams are not reached by it: their sockets are in `http1/`, and follow no redirects either.
 */
export class Egress implements AsyncDisposable {
  readonly #config: EgressConfig;
  readonly #resolve: Resolve | undefined;
  readonly #onLimit: ((limit: LimitName) => void) | undefined;
  /** By source, and by the wait for a connection if that is not the default. */
  readonly #agents = new Map<string, Promise<Agent>>();

  /**
   * @param resolve looks names up; by default as the system does.
   * @param onLimit called when a response is too large.
   */
  constructor(config: EgressConfig = DIRECT_EGRESS, resolve?: Resolve, onLimit?: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
    this.#config = config;
    this.#resolve = resolve;
  }

  /** Loads what a first request would wait for. */
  async prepare(): Promise<void> {
    await this.#agent('configured');
  }

  /**
   * Sends a request. The response has a whole body.
   *
   * @param source `discovered` unless the URL, or its origin, is in the config.
   * @throws {EgressError} for a URL or response that is not allowed; another error if no response arrives before the signal and within 256 KiB.
   */
  async fetch(url: string, source: UrlSource, request: EgressRequest = {}): Promise<Response> {
    const target = checkedUrl(url, source);
    try {
      return await this.#send(target, source, request);
    } catch (thrown) {
      // The error of the parser has the bytes of the response, which may have a token, and the log would have them.
      if (!(thrown instanceof Error) || thrown.name !== 'HTTPParserError') throw thrown;
      throw new EgressError(`${target.origin} answered with invalid HTTP`);
    }
  }

  async #send(target: URL, source: UrlSource, request: EgressRequest): Promise<Response> {
    // Loaded only here, since it takes a tenth of a second.
    const { request: send } = await import('./undici.ts');
    const { statusCode, headers, body } = await send(target, {
      dispatcher: await this.#agent(source, request.pool),
      method: request.method ?? 'GET',
      headers: { ...request.headers },
      body: request.body ?? null,
      reset: request.keepsConnection !== true,
      signal: request.signal ?? AbortSignal.timeout(TIMEOUT_MS),
    });
    const dropBody = (): void => void body.on('error', () => undefined).destroy();
    if (statusCode >= 300 && statusCode < 400) {
      dropBody();
      const message = `${target.origin} answered with a redirect (HTTP ${statusCode}), which is not followed`;
      throw new EgressError(message, { status: statusCode });
    }
    if (statusCode < 200 || statusCode > 599) {
      dropBody();
      throw new EgressError(`${target.origin} answered with HTTP ${statusCode}, which is no status`);
    }
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of body) {
      if (!Buffer.isBuffer(chunk)) continue;
      bytes += chunk.length;
      if (bytes > LIMITS.issuerResponseBytes) {
        dropBody();
        this.#onLimit?.('issuerResponseBytes');
        const message = `the response of ${target.origin} is larger than ${LIMITS.issuerResponseBytes} bytes`;
        throw new EgressError(message, { status: statusCode });
      }
      chunks.push(chunk);
    }
    const whole = statusCode === 204 || statusCode === 205 ? null : Buffer.concat(chunks);
    if (whole !== null && exceedsBounds(new TextDecoder().decode(whole))) {
      const message = `the response of ${target.origin} is nested deeper than ${LIMITS.jsonDepth} levels, or has too many values`;
      throw new EgressError(message, { status: statusCode });
    }
    const kept = HEADERS.flatMap((name) => {
      const value = headers[name];
      return typeof value === 'string' ? [[name, value] as const] : [];
    });
    return new Response(whole, { status: statusCode, headers: Object.fromEntries(kept) });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const agents = await Promise.all(this.#agents.values());
    this.#agents.clear();
    await Promise.all(agents.map((agent) => agent.destroy()));
  }

  #agent(source: UrlSource, pool?: SocketPool): Promise<Agent> {
    const key = pool === undefined ? source : `${source} ${pool.connectMs}`;
    return getOrMake(this.#agents, key, () => this.#open(source, pool));
  }

  async #open(source: UrlSource, pool: SocketPool | undefined): Promise<Agent> {
    const [{ Agent }, { guardedConnector }] = await Promise.all([
      import('./undici.ts'),
      import('./guarded-connector.ts'),
    ]);
    const connect = guardedConnector(source, this.#config, this.#resolve, pool?.connectMs);
    const bounds = pool === undefined ? {} : { connections: pool.maxSockets, keepAliveTimeout: pool.idleMs };
    return new Agent({ connect, allowH2: false, ...bounds });
  }
}

/** Returns the URL. @throws {EgressError} if it is not allowed for its source, whatever address it leads to. */
function checkedUrl(text: string, source: UrlSource): URL {
  const url = URL.parse(text);
  if (url === null) throw new EgressError('a URL cannot be read');
  const { protocol, username, password } = url;
  const isAllowed = protocol === 'https:' || (protocol === 'http:' && source === 'configured');
  if (!isAllowed) throw new EgressError(`${url.origin} is not connected to: its scheme is not https`);
  if (username !== '' || password !== '')
    throw new EgressError(`${url.origin} is not connected to: its URL has a password`);
  return url;
}

/** Returns whether JSON text is nested too deep, or has too many values to look. `JSON.stringify` of deep values overflows the stack. */
function exceedsBounds(text: string): boolean {
  const error = resultOrError(JsonTextError, () => checkJson(text, UPSTREAM_BOUNDS));
  return error instanceof JsonTextError && error.refused !== undefined;
}
