import type { HttpTarget, StdioTarget, UpstreamTimeouts } from '../../config/config.ts';
import type { Wire } from '../../http1/wire.ts';
import { WirePool } from '../../http1/pool.ts';

/**
 * Opens the HTTP client for one upstream and one set of credentials. The number of its sockets is not bounded here: every open
 * stream needs one, and callers bound the requests in flight.
 *
 * Only connecting has a deadline here, because streams can be silent for hours. Each request has deadlines of its own.
 */
export type WireOpener = (target: HttpTarget, timeouts: UpstreamTimeouts) => Wire;

/** Opens HTTP clients. Loads the TLS client, which takes long, only if a target needs it. */
export class WireOpeners {
  #openTls: ((url: URL, connectMs: number) => Wire) | undefined;

  /** Resolves when clients can be opened for these targets. */
  async prepare(targets: readonly (HttpTarget | StdioTarget)[]): Promise<void> {
    const needsTls = targets.some((target) => target.kind !== 'stdio' && isHttps(new URL(target.url)));
    if (!needsTls || this.#openTls !== undefined) return;
    const { TlsWire } = await import('../../http1/tls.ts');
    this.#openTls = (url, connectMs) => new TlsWire(url, connectMs);
  }

  readonly open: WireOpener = (target, { connectMs }) => {
    const url = new URL(target.url);
    if (!isHttps(url)) return new WirePool(url, connectMs);
    if (this.#openTls === undefined) throw new TypeError(`no TLS client was loaded for ${url.origin}`);
    return this.#openTls(url, connectMs);
  };
}

function isHttps({ protocol }: URL): boolean {
  return protocol === 'https:';
}
