import type { HttpTarget, StdioTarget, UpstreamTimeouts } from '../../config/values/upstream-config.ts';
import type { LimitName } from '../../limits.ts';
import type { TlsWire } from '../../http1/tls.ts';
import type { Wire } from '../../http1/wire.ts';
import { WirePool } from '../../http1/pool.ts';
import { addressOf } from '../../http1/tunnel.ts';

/** Returns the URL of the proxy for a host and port; undefined for direct connections. */
export type ProxyOf = (host: string, port: number) => string | undefined;

/** Opens HTTP clients. Loads the TLS client, which takes long, only if a target needs it. */
export class WireOpeners {
  readonly #proxyOf: ProxyOf | undefined;
  readonly #onLimit: (limit: LimitName) => void;
  #TlsWire: typeof TlsWire | undefined;

  /**
   * @param proxyOf asked for `https:` targets. Plain ones are on private networks, and most proxies refuse tunnels to their ports.
   * @param onLimit called when a response exceeds a bound.
   */
  constructor(proxyOf?: ProxyOf, onLimit: (limit: LimitName) => void = () => undefined) {
    this.#proxyOf = proxyOf;
    this.#onLimit = onLimit;
  }

  /** Resolves when clients can be opened for these targets. */
  async prepare(targets: readonly (HttpTarget | StdioTarget)[]): Promise<void> {
    const needsTls = targets.some((target) => target.kind !== 'stdio' && isHttps(new URL(target.url)));
    if (needsTls) ({ TlsWire: this.#TlsWire } = await import('../../http1/tls.ts'));
  }

  /**
   * Opens the HTTP client for one upstream and one set of credentials. The number of its sockets is not bounded here: every open
   * stream needs one, and callers bound the requests in flight.
   *
   * Only connecting has a deadline here, because streams can be silent for hours. Each request has deadlines of its own.
   */
  open(target: HttpTarget, { connectMs }: UpstreamTimeouts): Wire {
    const url = new URL(target.url);
    if (!isHttps(url)) return new WirePool(url, connectMs, this.#onLimit);
    if (this.#TlsWire === undefined) throw new TypeError(`no TLS client was loaded for ${url.origin}`);
    const { host, port } = addressOf(url);
    return new this.#TlsWire(url, connectMs, {
      tls: target.tls,
      proxy: this.#proxyOf?.(host, port),
      onLimit: this.#onLimit,
    });
  }
}

function isHttps({ protocol }: URL): boolean {
  return protocol === 'https:';
}
