import type { View } from '../../catalog/view.ts';
import type { Config, Settings } from '../../config/values/config.ts';
import type { ExternalDecisions } from '../../gateway/exchange/external-decisions.ts';
import type { PrincipalShares } from '../../gateway/exchange/principal-shares.ts';
import type { AuditRecorder } from '../../gateway/records/audit-recorder.ts';
import type { SharedParts } from '../../gateway/records/shared-parts.ts';
import type { ClientTransport } from '../../gateway/records/request-recorder.ts';
import type { Sealer } from '../../gateway/handles/sealer.ts';
import type { RawObject } from '../../json/json.ts';
import type { State } from '../../store/open-state.ts';
import type { RateTable } from '../../store/rate-table.ts';
import type { Tracing } from '../../telemetry/tracing/tracing.ts';
import type { UpstreamTransports } from '../transports.ts';

export interface CoreParts extends Pick<SharedParts, 'owners' | 'counters' | 'metrics' | 'log'> {
  readonly config: Config;
  /** The state that outlives requests. */
  readonly state: State;
  readonly sealer: Sealer;
  readonly transports: UpstreamTransports;
  /** Counts calls over all processes; undefined if this process counts for itself. */
  readonly rateTable?: RateTable | undefined;
  /** Returns the number of processes. Default: one. */
  readonly processes?: (() => number) | undefined;
  readonly clientTransport: ClientTransport;
  /** Traces requests; undefined if nothing is traced. The core disposes it when it stops. */
  readonly tracing: Tracing | undefined;
  /** Undefined if there is no audit log. */
  readonly audit: AuditRecorder | undefined;
}

/** The parts of a core that all others may read. */
export interface CommonParts extends CoreParts, Pick<SharedParts, 'upstreams' | 'gate' | 'onLimit'> {
  /** Returns the running config. Every part reads the settings that a reload may change by this function. */
  readonly settings: Settings<keyof Config>;
  /** The views of the running config. */
  readonly views: Map<string, View>;
  /** The shares of principals in processes, connections, requests, sessions and parked calls. */
  readonly shares: PrincipalShares;
  /** Asks a decision point about what the gate allows. */
  readonly external: ExternalDecisions;
  /** Describes the gateway to clients and to upstreams. */
  readonly serverInfo: RawObject;
}
