import type { PlacementKey, PlacementTable } from '../placement-table.ts';
import { STORE_NOTICES, STORES } from './methods.ts';
import type { PipeCalls } from './pipe-calls.ts';
import { remoteStore } from './remote-store.ts';

/**
 * Returns the table of the parent. Nothing is missed: it is out of reach only after the parent has gone, and then this process ends.
 *
 * @param leaseMs the time that a lease lasts at the parent, in ms.
 */
export function pipedPlacementTable(calls: PipeCalls, leaseMs: number): PlacementTable {
  const parent = remoteStore(calls, STORES.placements);
  const watchers = new Map<string, (key: PlacementKey) => void>();
  calls.serve(STORE_NOTICES.revoked, async ({ member, key }) => watchers.get(member)?.(key));
  return {
    ...parent,
    leaseMs,
    watch: async (member, onRevoked) => {
      watchers.set(member, onRevoked);
      await parent.watch(member);
    },
    unwatch: async (member) => {
      watchers.delete(member);
      await parent.unwatch(member);
    },
  };
}
