import type { Config } from '../../config/values/config.ts';
import { GatewayError } from '../../errors.ts';
import type { RequestHeaders } from './headers.ts';

/** Accepted host names and origins, derived from the config. */
export interface AllowedHosts {
  /** Host names in the form of the `Host` header, without port. */
  readonly hosts: ReadonlySet<string>;
  readonly origins: ReadonlySet<string>;
  /** The configured part of {@link origins}: their pages may read answers. */
  readonly crossOrigins: ReadonlySet<string>;
  readonly onLoopback: boolean;
}

const LOOPBACK_HOSTS = ['localhost', '127.0.0.1', '[::1]'] as const;
/** No client uses "any address" as a host name, and attacks on browsers used `0.0.0.0`. */
const WILDCARDS = new Set(['0.0.0.0', '[::]']);

const LOOPBACK_ORIGIN = /^https?:\/\/(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?$/;
const HOST = /^(\[[\da-f:.]+\]|[a-z\d._-]+)(?::\d{1,5})?$/i;
const PATH = /^(?:\/[A-Za-z\d._~-]+)*\/?$/;
const DOT_SEGMENT = /\/\.{1,2}(?:\/|$)/;

function hostName(name: string): string {
  const lower = name.toLowerCase();
  return lower.includes(':') && !lower.startsWith('[') ? `[${lower}]` : lower;
}

export function allowedHostsOf({ listen, publicUrl, allowedHosts, allowedOrigins }: Config): AllowedHosts {
  const listenHost = hostName(listen.host);
  const hosts = new Set<string>([...LOOPBACK_HOSTS, ...allowedHosts.map(hostName)]);
  if (!WILDCARDS.has(listenHost)) hosts.add(listenHost);
  const crossOrigins = new Set(allowedOrigins.map((origin) => origin.toLowerCase()));
  const origins = new Set(crossOrigins);
  if (publicUrl !== undefined) {
    const url = new URL(publicUrl);
    hosts.add(url.hostname);
    origins.add(url.origin);
  }
  return { hosts, origins, crossOrigins, onLoopback: LOOPBACK_HOSTS.some((host) => host === listenHost) };
}

/** Refuses a target that two readers could interpret differently. Our paths need no escapes. */
export function refuseTarget(target: string): GatewayError | undefined {
  const query = target.indexOf('?');
  const path = query < 0 ? target : target.slice(0, query);
  if (PATH.test(path) && path !== '' && !DOT_SEGMENT.test(path) && !target.includes('#')) return undefined;
  return new GatewayError('invalid-request', {
    message: 'the path of the URL has characters or segments that are not served',
  });
}

function isOwnOrigin(origin: string, host: string, { origins, onLoopback }: AllowedHosts): boolean {
  return (
    origins.has(origin) ||
    origin === `http://${host}` ||
    origin === `https://${host}` ||
    (onLoopback && LOOPBACK_ORIGIN.test(origin))
  );
}

/** Returns the refusal of a web page that may not read answers. */
export function foreignOrigin(): GatewayError {
  return new GatewayError('forbidden', { message: 'the Origin is not allowed; add it to allowedOrigins' });
}

/**
 * Refuses requests of foreign web pages, also of pages rebound to our address (DNS rebinding): a page can forge neither
 * `Host` nor `Origin`.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#security-warning
 */
export function refuseSender(headers: RequestHeaders, allowedHosts: AllowedHosts): GatewayError | undefined {
  const { host, origin, secFetchSite, repeated } = headers;
  if (repeated !== undefined) {
    return new GatewayError('invalid-request', { message: `the header ${repeated} came more than once` });
  }
  const [, name] = HOST.exec(host ?? '') ?? [];
  if (host === undefined || name === undefined || !allowedHosts.hosts.has(name.toLowerCase())) {
    return new GatewayError('forbidden', { message: 'the Host header is not allowed; add its name to allowedHosts' });
  }
  if (origin !== undefined) {
    if (isOwnOrigin(origin, host, allowedHosts)) return undefined;
    return foreignOrigin();
  }
  if (secFetchSite === 'cross-site') {
    return new GatewayError('forbidden', { message: 'requests from pages of other sites are not allowed' });
  }
  return undefined;
}
