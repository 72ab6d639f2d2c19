import type { Member, Placement, PlacementKey, PlacementTable } from '../placement-table.ts';
import { STORE_NOTICES, STORES } from './methods.ts';
import type { PipeCalls } from './pipe-calls.ts';

const METHODS = STORES.placements;

/** The table of the parent. Nothing is missed: it is out of reach only after the parent has gone, and then this process ends. */
export class PipedPlacementTable implements PlacementTable {
  readonly leaseMs: number;
  readonly #calls: PipeCalls;
  readonly #watchers = new Map<string, (key: PlacementKey) => void>();

  /** @param leaseMs the time that a lease lasts at the parent, in ms. */
  constructor(calls: PipeCalls, leaseMs: number) {
    this.#calls = calls;
    this.leaseMs = leaseMs;
    calls.serve(STORE_NOTICES.revoked, async ({ member, key }) => this.#watchers.get(member)?.(key));
  }

  async join(member: Member): Promise<void> {
    await this.#calls.call(METHODS.join, member);
  }

  async renew(id: string): Promise<readonly Member[] | undefined> {
    return await this.#calls.call(METHODS.renew, id);
  }

  async leave(id: string): Promise<void> {
    await this.#calls.call(METHODS.leave, id);
  }

  async members(): Promise<readonly Member[]> {
    return await this.#calls.call(METHODS.members, undefined);
  }

  async claim(key: PlacementKey, member: string, from: string | undefined): Promise<Placement> {
    return await this.#calls.call(METHODS.claim, { key, member, from });
  }

  async confirm(key: PlacementKey, placement: Placement): Promise<boolean> {
    return await this.#calls.call(METHODS.confirm, { key, placement });
  }

  async release(key: PlacementKey, placement: Placement, formerMs = 0): Promise<void> {
    await this.#calls.call(METHODS.release, { key, placement, formerMs });
  }

  async former(key: PlacementKey): Promise<string | undefined> {
    return await this.#calls.call(METHODS.former, key);
  }

  async revoke(key: PlacementKey): Promise<void> {
    await this.#calls.call(METHODS.revoke, key);
  }

  async watch(member: string, onRevoked: (key: PlacementKey) => void): Promise<void> {
    this.#watchers.set(member, onRevoked);
    await this.#calls.call(METHODS.watch, member);
  }

  async unwatch(member: string): Promise<void> {
    this.#watchers.delete(member);
    await this.#calls.call(METHODS.unwatch, member);
  }
}
