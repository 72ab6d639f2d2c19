import type { Logger } from 'pino';
import type { Settings } from '../config/config.ts';
import type { UpstreamConfig } from '../config/upstream-config.ts';
import type { ConnectionHolder } from '../gateway/exchange/connection-holder.ts';
import type { Exchange } from '../gateway/exchange/exchange.ts';
import type { RawObject } from '../json/json.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Tracing } from '../telemetry/tracing/tracing.ts';
import type { Shares } from '../upstream/quota/fair-pool.ts';
import type { ConnectionQuota } from '../upstream/quota/connection-quota.ts';
import { processLimit, processQuota, remoteQuota } from '../upstream/quota/quotas.ts';
import { Upstream } from '../upstream/upstream.ts';
import type { UpstreamEvents } from '../upstream/upstream-events.ts';
import { openFileLimit } from './connection-limit.ts';
import type { UpstreamTransport, UpstreamTransports } from './transports.ts';

/** The parts that an {@link UpstreamFactory} is constructed from. */
export interface UpstreamFactoryParts {
  readonly settings: Settings<'limits'>;
  readonly shares: Shares;
  readonly transports: UpstreamTransports;
  readonly events: UpstreamEvents<Exchange, ConnectionHolder>;
  /** The `clientInfo` that the gateway sends to upstreams. */
  readonly clientInfo: RawObject;
  readonly metrics: Metrics;
  readonly log: Logger;
  /** Undefined if nothing is traced. */
  readonly tracing: Tracing | undefined;
}

/** Constructs upstreams from their configuration. All of them share the quotas of processes and remote connections. */
export class UpstreamFactory {
  readonly #parts: UpstreamFactoryParts;
  readonly #processes: ConnectionQuota;
  readonly #remote: ConnectionQuota;
  readonly #transports = new WeakMap<Upstream<Exchange, ConnectionHolder>, UpstreamTransport>();

  constructor(parts: UpstreamFactoryParts) {
    this.#parts = parts;
    this.#processes = processQuota(parts.settings().limits.processes, parts.metrics.processes, parts.shares);
    this.#remote = remoteQuota(openFileLimit() ?? Infinity, parts.shares);
  }

  /** Constructs one upstream. It starts no connection yet. */
  create(config: UpstreamConfig): Upstream<Exchange, ConnectionHolder> {
    const { settings, shares, transports, events, clientInfo, metrics, log, tracing } = this.#parts;
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
        clientInfo,
        log,
        tracing,
        onLimit: (limit) => metrics.countLimit(limit),
        onStartFailed: () => metrics.countStartFailure(id),
        onListed: (durationMs) => metrics.recordListing(id, durationMs / 1_000),
      },
      events,
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
