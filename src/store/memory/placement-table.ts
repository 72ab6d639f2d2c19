import {
  keyText,
  type Member,
  type Placement,
  type PlacementKey,
  type PlacementTable,
  placementText,
} from '../placement-table.ts';

/** The table in memory, for processes that reach one process in which it is. Placements end with their members. */
export class MemoryPlacementTable implements PlacementTable {
  readonly leaseMs: number;
  readonly #members = new Map<string, { readonly member: Member; untilMs: number }>();
  readonly #placements = new Map<string, Placement>();
  readonly #watchers = new Map<string, (key: PlacementKey) => void>();
  readonly #former = new Map<string, { readonly member: string; readonly untilMs: number }>();
  #tokens = 0;
  #seenMs = performance.now();
  #leaseClockMs = 0;

  constructor(leaseMs: number) {
    this.leaseMs = leaseMs;
  }

  /**
   * Returns the time that leases are measured with. Between two calls it advances by a fifth of a lease at most. So no lease lapses because
   * all processes stood still, or this one alone.
   */
  #now(): number {
    const nowMs = performance.now();
    this.#leaseClockMs += Math.min(nowMs - this.#seenMs, this.leaseMs / 5);
    this.#seenMs = nowMs;
    return this.#leaseClockMs;
  }

  async join(member: Member): Promise<void> {
    this.#members.set(member.id, { member, untilMs: this.#now() + this.leaseMs });
  }

  async renew(id: string): Promise<readonly Member[] | undefined> {
    const members = this.#removeLapsed();
    const entry = this.#members.get(id);
    if (entry === undefined) return undefined;
    entry.untilMs = this.#now() + this.leaseMs;
    return members;
  }

  async leave(id: string): Promise<void> {
    this.#members.delete(id);
    for (const [name, { member }] of this.#placements) if (member === id) this.#placements.delete(name);
  }

  async members(): Promise<readonly Member[]> {
    return this.#removeLapsed();
  }

  #removeLapsed(): readonly Member[] {
    const nowMs = this.#now();
    for (const [id, { untilMs }] of this.#members) if (untilMs <= nowMs) this.#members.delete(id);
    return [...this.#members.values()].map(({ member }) => member);
  }

  async claim(key: PlacementKey, member: string, from: string | undefined): Promise<Placement> {
    const name = keyText(key);
    const held = this.#placements.get(name);
    if (held !== undefined && held.member !== from) return held;
    const placement = { member, token: String(++this.#tokens) };
    this.#placements.set(name, placement);
    return placement;
  }

  async confirm(key: PlacementKey, { member, token }: Placement): Promise<boolean> {
    const held = this.#placements.get(keyText(key));
    return held?.member === member && held.token === token;
  }

  /** Returns whether a placement is the current one. @param placement as {@link placementText} writes it; undefined is none. */
  isCurrent(key: PlacementKey, placement: string | undefined): boolean {
    const held = this.#placements.get(keyText(key));
    return held !== undefined && placementText(held) === placement;
  }

  async release(key: PlacementKey, placement: Placement, formerMs = 0): Promise<void> {
    if (!(await this.confirm(key, placement))) return;
    const name = keyText(key);
    this.#placements.delete(name);
    this.#removeFormer();
    if (formerMs <= 0) return;
    this.#former.delete(name);
    this.#former.set(name, { member: placement.member, untilMs: performance.now() + formerMs });
  }

  /** Removes the oldest entries that have ended. Most have the same time to live, so those behind them end later. */
  #removeFormer(): void {
    for (const [name, { untilMs }] of this.#former) {
      if (performance.now() < untilMs) return;
      this.#former.delete(name);
    }
  }

  async former(key: PlacementKey): Promise<string | undefined> {
    const former = this.#former.get(keyText(key));
    return former !== undefined && performance.now() < former.untilMs ? former.member : undefined;
  }

  async revoke(key: PlacementKey): Promise<void> {
    const held = this.#placements.get(keyText(key));
    if (held === undefined) return;
    this.#placements.delete(keyText(key));
    this.#watchers.get(held.member)?.(key);
  }

  /** Revocations are never missed. */
  async watch(member: string, onRevoked: (key: PlacementKey) => void): Promise<void> {
    this.#watchers.set(member, onRevoked);
  }

  async unwatch(member: string): Promise<void> {
    this.#watchers.delete(member);
  }
}
