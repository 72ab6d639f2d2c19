import type { Logger } from 'pino';
import type { View } from '../../catalog/view.ts';
import type { LimitName } from '../../limits.ts';
import type { Counters } from '../../store/shared-counters.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { Shares } from '../../upstream/quota/fair-pool.ts';
import type { ConnectionHolder, Upstreams } from '../exchange/connection-holder.ts';
import type { Gate } from '../exchange/gate.ts';
import type { Owners } from '../exchange/owners.ts';
import type { AuditRecorder } from './audit-recorder.ts';

/** Parts that many others read. */
export interface SharedParts {
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly upstreams: Upstreams;
  /** The views of now, by id. The catalog of a holder may be of an earlier config. */
  readonly views: ReadonlyMap<string, View>;
  readonly owners: Owners;
  readonly gate: Gate;
  /** The shares of principals in what is bounded. */
  readonly shares: Shares;
  /** Counts what is bounded per principal, over all processes; undefined if there is no other one. */
  readonly counters: Counters | undefined;
  /** Records requests before they are sent; undefined unless the config requires that. */
  readonly audit: Pick<AuditRecorder, 'begin'> | undefined;
  /** Returns the other client groups of a holder's principal; none for a session. */
  readonly siblingsOf: (holder: ConnectionHolder) => Iterable<ConnectionHolder>;
  /** Runs when a bound is reached. */
  readonly onLimit: (limit: LimitName) => void;
}
