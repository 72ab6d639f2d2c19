import type { UpstreamConfig } from '../config/values/upstream-config.ts';
import type { ConnectionHolder } from '../gateway/exchange/connection-holder.ts';
import type { Exchange } from '../gateway/exchange/exchange.ts';
import type { ConnectionQuota } from '../upstream/quota/connection-quota.ts';
import { processLimit, processQuota, remoteQuota } from '../upstream/quota/quotas.ts';
import { Upstream } from '../upstream/upstream.ts';
import type { UpstreamEvents } from '../upstream/upstream-events.ts';
import { openFileLimit } from './connection-limit.ts';
import type { CommonParts } from './core/core-parts.ts';
import type { UpstreamTransport } from './transports.ts';

/** Constructs upstreams from their configuration. All of them share the quotas of processes and remote connections. */
export class UpstreamFactory {
  readonly #parts: CommonParts;
  readonly #events: UpstreamEvents<Exchange, ConnectionHolder>;
  readonly #processes: ConnectionQuota;
  readonly #remote: ConnectionQuota;
  readonly #transports = new WeakMap<Upstream<Exchange, ConnectionHolder>, UpstreamTransport>();

  /** @param events gets the messages of all upstreams. */
  constructor(parts: CommonParts, events: UpstreamEvents<Exchange, ConnectionHolder>) {
    this.#parts = parts;
    this.#events = events;
    this.#processes = processQuota(parts.settings().limits.processes, parts.metrics.processes, parts.shares);
    this.#remote = remoteQuota(openFileLimit() ?? Infinity, parts.shares);
  }

  /** Constructs one upstream. It starts no connection yet. */
  create(config: UpstreamConfig): Upstream<Exchange, ConnectionHolder> {
    const { settings, shares, transports, serverInfo, metrics, log, tracing, onLimit } = this.#parts;
    const { id } = config;
    metrics.addUpstream(id);
    metrics.setUpstreamState(id, 'configured');
    const transport = transports.transportTo(config, settings().limits);
    const upstream = new Upstream(
      {
        config,
        transports: transport.options,
        credentials: transport.credentials,
        quota: config.target.kind === 'stdio' ? this.#processes : this.#remote,
        shares,
        clientInfo: serverInfo,
        log,
        tracing,
        onLimit,
        onStartFailed: () => metrics.countStartFailure(id),
        onListed: (durationMs) => metrics.recordListing(id, durationMs / 1_000),
      },
      this.#events,
    );
    this.#transports.set(upstream, transport);
    metrics.setUpstreamEras(id, upstream.eras);
    return upstream;
  }

  /** Applies settings that its open connections do not depend on, and the current limits. */
  update(upstream: Upstream<Exchange, ConnectionHolder>, config: UpstreamConfig): void {
    this.#transports.get(upstream)?.update(config, this.#parts.settings().limits);
    upstream.update(config);
  }

  /** Applies the limit on processes. */
  setLimits(): void {
    this.#processes.setLimit(processLimit(this.#parts.settings().limits.processes));
  }

  /** Closes the sockets of a stopped upstream. */
  async release(upstream: Upstream<Exchange, ConnectionHolder>): Promise<void> {
    await this.#transports.get(upstream)?.close();
  }
}
