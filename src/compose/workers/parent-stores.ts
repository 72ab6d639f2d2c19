import type { Config } from '../../config/values/config.ts';
import { MemoryCounterTable } from '../../store/memory/counter-table.ts';
import { MemoryOutcomeStore } from '../../store/memory/outcome-store.ts';
import { MemoryPlacementTable } from '../../store/memory/placement-table.ts';
import { MemoryRateTable } from '../../store/memory/rate-table.ts';
import { openState, type State } from '../../store/open-state.ts';
import { StoreServer } from '../../store/piped/store-server.ts';
import type { Logger } from '../../telemetry/log.ts';
import type { Metrics } from '../../telemetry/metrics.ts';

/** A worker that does not renew its lease for this long is taken for dead. One that ends is so at once. */
export const LEASE_MS = 5_000;
export const COUNTER_LEASE_MS = 30_000;

/** The state of a gateway with workers, which its parent has. */
export interface ParentState {
  readonly state: State;
  readonly server: StoreServer;
}

/** Opens the state directory, and makes the tables that workers share. @throws if the directory cannot be used. */
export async function openParentState({ stateDir }: Config, metrics: Metrics, log: Logger): Promise<ParentState> {
  let server: StoreServer | undefined;
  const state = await openState(stateDir, {
    mayOwn: true,
    events: {
      onWriteFailed: () => metrics.countStateWriteFailure(),
      onFailing: (error) => {
        log.error({ err: error, stateDir }, 'state directory cannot be written');
        server?.notifyStateFailure();
      },
      onRecovered: () => {
        log.info({ stateDir }, 'state directory can be written again');
        server?.notifyStateFailure();
      },
      onLimit: (limit) => metrics.countLimit(limit),
      onRefused: ({ message: reason }) => log.warn({ reason }, 'the state directory is not safe'),
    },
  });
  server = new StoreServer({
    state,
    outcomes: new MemoryOutcomeStore((limit) => metrics.countLimit(limit)),
    placements: new MemoryPlacementTable(LEASE_MS),
    counters: new MemoryCounterTable(COUNTER_LEASE_MS),
    rates: new MemoryRateTable((limit) => metrics.countLimit(limit)),
  });
  return { state, server };
}
