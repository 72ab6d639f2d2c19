import type { Logger } from 'pino';
import type { UpstreamConfig } from '../config/config.ts';
import type { RawObject } from '../json/json.ts';
import type { LimitName } from '../limits.ts';
import type { Era } from '../protocol/revisions.ts';
import type { Span, Tracing } from '../telemetry/tracing/tracing.ts';
import type { ConnectionQuota } from './connection-quota.ts';
import type { ClientFeatures } from './link/link.ts';
import type { TransportOption } from './rpc/transport.ts';

/** The parts that an `Upstream` is constructed from. */
export interface UpstreamParts {
  readonly config: UpstreamConfig;
  /** Its transports, in order of preference. */
  readonly transports: readonly TransportOption[];
  /** The quota of all upstreams of its kind: stdio, or remote. */
  readonly quota: ConnectionQuota;
  readonly clientInfo: RawObject;
  readonly log: Logger;
  /** Undefined if nothing is traced. */
  readonly tracing: Tracing | undefined;
  readonly onLimit: (limit: LimitName) => void;
  /** A connection could not be started. */
  readonly onStartFailed: () => void;
  /** All lists were read over one connection, in this time. */
  readonly onListed: (durationMs: number) => void;
}

/** A link that is to be found or opened. */
export interface LinkOrder {
  /** Returns its key, which depends on the era of the connection. */
  readonly keyIn: (era: Era) => string;
  readonly features: ClientFeatures;
  /** The era of the client that it is opened for. */
  readonly client: Era;
  readonly principal: string;
  /** The span that a start of the upstream is a part of; undefined if there is none. */
  readonly span: Span | undefined;
}
