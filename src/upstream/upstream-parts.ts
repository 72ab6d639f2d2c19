import type { Logger } from 'pino';
import type { UpstreamConfig } from '../config/values/upstream-config.ts';
import type { RawObject } from '../json/json.ts';
import type { LimitName } from '../limits.ts';
import type { CredentialSource } from './connection-key.ts';
import type { Tracing } from '../telemetry/tracing/tracing.ts';
import type { ConnectionQuota } from './quota/connection-quota.ts';
import type { Shares } from './quota/fair-pool.ts';
import type { TransportOption } from './rpc/transport.ts';

export interface UpstreamParts {
  readonly config: UpstreamConfig;
  /** Its transports, in order of preference. */
  readonly transports: readonly TransportOption[];
  /** The quota of all upstreams of its kind: stdio, or remote. */
  readonly quota: ConnectionQuota;
  /** The shares of principals in its requests and connections. */
  readonly shares: Shares;
  readonly credentials: CredentialSource;
  readonly clientInfo: RawObject;
  readonly log: Logger;
  /** Undefined if nothing is traced. */
  readonly tracing: Tracing | undefined;
  readonly onLimit: (limit: LimitName) => void;
  readonly onStartFailed: () => void;
  /** All lists were read over one connection, in this time. */
  readonly onListed: (durationMs: number) => void;
}
