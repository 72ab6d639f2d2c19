import type { UpstreamConfig } from '../config/values/upstream-config.ts';
import type { CredentialSource } from './connection-key.ts';
import type { Tracing } from '../telemetry/tracing/tracing.ts';
import type { ConnectionQuota } from './quota/connection-quota.ts';
import type { Shares } from './quota/fair-pool.ts';
import type { OpenerParts } from './link/opener.ts';

export interface UpstreamParts extends Pick<OpenerParts, 'transports' | 'clientInfo' | 'log' | 'onLimit'> {
  readonly config: UpstreamConfig;
  /** The quota of all upstreams of its kind: stdio, or remote. */
  readonly quota: ConnectionQuota;
  /** The shares of principals in its requests and connections. */
  readonly shares: Shares;
  readonly credentials: CredentialSource;
  /** Undefined if nothing is traced. */
  readonly tracing: Tracing | undefined;
  readonly onStartFailed: () => void;
  /** All lists were read over one connection, in this time. */
  readonly onListed: (durationMs: number) => void;
}
