import { GatewayError } from '../errors.ts';
import { inGroups } from './in-groups.ts';
import {
  keyText,
  type Member,
  memberId,
  type Placement,
  type PlacementKey,
  type PlacementTable,
} from './placement-table.ts';
import { within } from './within.ts';
import { getOrMake } from '../map-entries.ts';

/** A table answers within this part of a lease, so that a lease is renewed several times before it lapses. */
const RENEWALS_PER_LEASE = 5;
/** Each held placement is confirmed once in this time. */
const CONFIRM_MS = 30_000;
/** The pause after a table could not be asked about placements. */
const CHECK_AGAIN_MS = 1_000;
/** A process that leaves works on its requests for at most this time. */
const FORMER_MS = 120_000;
/** A claim is tried this often while its owners die, or this process frees what it claims. */
const TRIES = 4;
/** The longest time that a request waits for the table. A request waits twice at most: for its owner, and for its state. */
const WAIT_MS = 250;

/** The owner of something after a claim: this process, or the member that has it. */
export type ClaimedOwner = { readonly kind: 'here' } | { readonly kind: 'elsewhere'; readonly member: Member };

export interface PlacementsParts extends Pick<Member, 'process' | 'address' | 'version'> {
  readonly table: PlacementTable;
  /** The time within which each held placement is confirmed, in ms. Default: 30 s. */
  readonly confirmMs?: number;
  /** The longest time that a request waits, in ms. Default: 250. */
  readonly waitMs?: number;
  /** Returns whether this process has anything that the placement stands for. One for nothing is freed after two times of `confirmMs`. */
  isUsed(key: PlacementKey): boolean;
  /**
   * Returns whether nobody may have what the placement stands for any more. Asked only about placements of an earlier member: it has heard of no end.
   * Default: never. @throws {GatewayError} `store-unavailable`
   */
  isEnded?(key: PlacementKey): Promise<boolean>;
  /** Called when another member has got a placement, or nobody has it any more. This process must let go of what it stands for. */
  onLost(key: PlacementKey): void;
  /** Called with the members after each renewal. */
  onMembers?(members: readonly Member[]): void;
  /** Called when this process is a member again, after its lease has lapsed. */
  onRejoined?(): void;
  /** Called when the lease has lapsed (`lapsed`), or could not be renewed (`failed`). */
  onTrouble(trouble: 'lapsed' | 'failed', cause: unknown): void;
}

/** A placement of this process. It is that of an earlier member of it until it is claimed again. */
interface Held {
  readonly key: PlacementKey;
  readonly placement: Placement;
  /** Monotonic ms. */
  confirmedMs: number;
}

/**
 * The placements that this process has, and its lease. The lease is renewed until {@link close}. A process whose lease has lapsed joins as a new
 * member, and keeps those of its placements that nobody has claimed.
 */
export class Placements {
  readonly #parts: PlacementsParts;
  readonly #waitMs: number;
  readonly #held = new Map<string, Held>();
  /** Claims for this process, and releases, that are under way. */
  readonly #claiming = new Map<string, Promise<ClaimedOwner>>();
  readonly #releasing = new Map<string, Promise<void>>();
  /** Begins those releases that wait for their turn. */
  readonly #due = new Map<string, () => void>();
  #isFreeing = false;
  #members: ReadonlyMap<string, Member> = new Map();
  #self: Member;
  #joins = 0;
  /** True until {@link announce}, and from {@link leave} on. */
  #isLeaving = true;
  /** Monotonic ms. The lease may have lapsed from then on. */
  #leasedUntilMs = -Infinity;
  /** True while placements of an earlier member are held, which others may claim. */
  #isReclaiming = false;
  #renewing: Promise<void> | undefined;
  #checking: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #checkTimer: NodeJS.Timeout | undefined;
  #isClosed = false;

  private constructor(parts: PlacementsParts) {
    this.#parts = parts;
    this.#waitMs = parts.waitMs ?? WAIT_MS;
    this.#self = this.#nextSelf();
  }

  /** Joins the members of the table, which give it nothing until {@link announce}. @throws {GatewayError} `store-unavailable` */
  static async open(parts: PlacementsParts): Promise<Placements> {
    const placements = new Placements(parts);
    await placements.#join(placements.#self);
    placements.#setMembers(await parts.table.members());
    const intervalMs = parts.table.leaseMs / RENEWALS_PER_LEASE;
    placements.#timer = setInterval(() => void placements.renew(), intervalMs).unref();
    return placements;
  }

  /** The member that this process is now. */
  get self(): Member {
    return this.#self;
  }

  /** True while the lease has not lapsed for certain, so that nobody can have claimed a placement of this process. */
  get isCurrent(): boolean {
    return !this.#isReclaiming && performance.now() < this.#leasedUntilMs;
  }

  /** The other members, as of the last renewal. */
  get others(): readonly Member[] {
    return [...this.#members.values()].filter(({ process }) => process !== this.#parts.process);
  }

  /** Returns the other members, as the table has them now; as of the last renewal if it cannot be asked. Never rejects. */
  async currentOthers(): Promise<readonly Member[]> {
    try {
      this.#setMembers(await within(this.#parts.table.members(), this.#waitMs));
    } catch {
      // Those of the last renewal.
    }
    return this.others;
  }

  /** Returns the member that a process is now; undefined if it has none. Asks the table if it is not known. */
  async memberOf(process: string): Promise<Member | undefined> {
    const find = () => [...this.#members.values()].find((member) => member.process === process);
    const known = find();
    if (known !== undefined) return known;
    this.#setMembers(await this.#parts.table.members());
    return find();
  }

  /** Returns the placement that this process has. A write of its state carries it. */
  held(key: PlacementKey): Placement | undefined {
    return this.#held.get(keyText(key))?.placement;
  }

  /**
   * Claims something for this process or another member, unless a living member has it. @throws {GatewayError} `store-unavailable`, also if its
   * owners change too often, or the table takes too long.
   */
  async claim(key: PlacementKey, claimant?: Member): Promise<ClaimedOwner> {
    if (claimant !== undefined && claimant.id !== this.#self.id) {
      return await within(this.#claim(key, claimant), this.#waitMs);
    }
    const name = keyText(key);
    const claiming = getOrMake(this.#claiming, name, () => this.#claim(key).finally(() => this.#claiming.delete(name)));
    return await within(claiming, this.#waitMs);
  }

  /** @param claimant undefined for this process, whatever member it is by then. */
  async #claim(key: PlacementKey, claimant?: Member): Promise<ClaimedOwner> {
    const name = keyText(key);
    let from: string | undefined;
    for (let attempt = 0; attempt < TRIES; attempt++) {
      await this.#free(name);
      const { id } = claimant ?? this.#self;
      // What is not held here gets a new token, so that an earlier release that is still under way does not free it.
      const own = claimant === undefined && !this.#held.has(name) ? id : undefined;
      const placement = await this.#parts.table.claim(key, id, from ?? own);
      // It was freed after this claim was sent.
      if (this.#releasing.has(name)) continue;
      if (placement.member === this.#self.id) {
        this.#hold(key, placement);
        return { kind: 'here' };
      }
      const member = await this.#living(placement.member);
      if (member !== undefined) return { kind: 'elsewhere', member };
      from = placement.member;
    }
    throw new GatewayError('store-unavailable', { message: 'its owner changes at the moment; try again' });
  }

  /** Returns another process as a member if its lease lasts. One that is not known may have joined just now. */
  async #living(id: string): Promise<Member | undefined> {
    if (!this.#members.has(id)) this.#setMembers(await this.#parts.table.members());
    const member = this.#members.get(id);
    // A process that has just joined again may still know the member that it was.
    return member?.process === this.#parts.process ? undefined : member;
  }

  #hold(key: PlacementKey, placement: Placement): void {
    this.#held.set(keyText(key), { key, placement, confirmedMs: performance.now() });
  }

  /**
   * Returns whether this process still has a placement. Asks only if the lease may have lapsed. If the table cannot be asked the answer is true,
   * because nobody else can claim anything then.
   */
  async isStillHeld(key: PlacementKey): Promise<boolean> {
    if (!this.isCurrent) await within(this.#settle(key), this.#waitMs).catch(ignore);
    return this.#held.has(keyText(key));
  }

  /** Renews the lease, and claims a placement at once that is one of an earlier member. */
  async #settle(key: PlacementKey): Promise<void> {
    await this.renew();
    const held = this.#held.get(keyText(key));
    if (held !== undefined && this.#isStale(held)) await this.#reclaim(held);
  }

  /**
   * Confirms a placement at once, after a write with it was refused, or claims it if it is one of an earlier member. Reports it as lost also if there
   * is none. Never rejects.
   */
  async recheck(key: PlacementKey): Promise<void> {
    const held = this.#held.get(keyText(key));
    if (held === undefined) {
      this.#parts.onLost(key);
    } else if (this.#isStale(held)) {
      await within(this.#settle(key), this.#waitMs).catch(ignore);
    } else {
      const confirming = this.#parts.table.confirm(key, held.placement);
      const isConfirmed = await within(confirming, this.#waitMs).catch(() => true);
      if (!isConfirmed && this.held(key) === held.placement) this.#lose(key);
    }
  }

  /**
   * Frees a placement. Never rejects: what is not freed expires.
   *
   * @param isInUse true if this process still works on something of it; see {@link formerOf}.
   */
  async release(key: PlacementKey, isInUse = false): Promise<void> {
    const name = keyText(key);
    const held = this.#held.get(name);
    if (held === undefined) return;
    this.#held.delete(name);
    const { promise: turn, resolve: begin } = Promise.withResolvers<void>();
    const released = turn.then(() => this.#parts.table.release(key, held.placement, isInUse ? FORMER_MS : 0));
    const releasing = released.catch(ignore).finally(() => {
      if (this.#releasing.get(name) === releasing) this.#releasing.delete(name);
    });
    this.#releasing.set(name, releasing);
    this.#due.set(name, begin);
    void this.#freeDue();
    await releasing;
  }

  /** Frees what is due, in groups: a process that leaves frees all that it has. Never rejects. */
  async #freeDue(): Promise<void> {
    if (this.#isFreeing) return;
    this.#isFreeing = true;
    while (this.#due.size > 0) await inGroups([...this.#due.keys()], (name) => this.#free(name));
    this.#isFreeing = false;
  }

  /** Waits for a release, which begins at once. Never rejects. */
  async #free(name: string): Promise<void> {
    this.#due.get(name)?.();
    this.#due.delete(name);
    await this.#releasing.get(name);
  }

  /** Returns the member that had a placement before, if it may still work on something of it. Never rejects. */
  async formerOf(key: PlacementKey): Promise<Member | undefined> {
    return await within(this.#formerOf(key), this.#waitMs).catch(() => undefined);
  }

  async #formerOf(key: PlacementKey): Promise<Member | undefined> {
    const id = await this.#parts.table.former(key);
    return id === undefined || id === this.#self.id ? undefined : await this.#living(id);
  }

  /** Tells the other members that they can give placements to this one. If the table is out of reach, a later renewal does. Never rejects. */
  async announce(): Promise<void> {
    this.#isLeaving = false;
    // One that is under way may have begun before.
    await this.#renewing;
    await this.renew();
  }

  /** Tells the other members that this one leaves, so that they give it nothing. @throws {GatewayError} `store-unavailable` */
  async leave(): Promise<void> {
    this.#isLeaving = true;
    // A lease that has lapsed must not come back.
    if (!this.isCurrent) await this.renew();
    await this.#describe();
    this.#setMembers(await this.#parts.table.members());
  }

  /** Describes this member to the others as it is now. */
  async #describe(): Promise<void> {
    this.#self = { ...this.#self, isLeaving: this.#isLeaving };
    await this.#parts.table.join(this.#self);
  }

  /** Renews the lease, or joins again if it has lapsed. Never rejects. */
  renew(): Promise<void> {
    this.#renewing ??= this.#renew()
      .catch((thrown: unknown) => this.#parts.onTrouble('failed', thrown))
      .finally(() => {
        this.#renewing = undefined;
      });
    return this.#renewing;
  }

  async #renew(): Promise<void> {
    if (this.#isClosed) return;
    const { table } = this.#parts;
    const sentMs = performance.now();
    const members = await table.renew(this.#self.id);
    if (this.#isClosed) return;
    if (members === undefined) {
      this.#leasedUntilMs = -Infinity;
      this.#parts.onTrouble('lapsed', undefined);
      const before = this.#self.id;
      await this.#join(this.#nextSelf());
      this.#parts.onRejoined?.();
      void table.unwatch(before).catch(ignore);
    } else {
      this.#leasedUntilMs = sentMs + table.leaseMs;
      const own = members.find(({ id }) => id === this.#self.id);
      if ((own?.isLeaving === true) !== this.#isLeaving) await this.#describe();
    }
    this.#setMembers(members ?? (await table.members()));
    this.#check();
  }

  /** Joins as a member. What another member of this process has is claimed later. */
  async #join(self: Member): Promise<void> {
    const { table } = this.#parts;
    const sentMs = performance.now();
    try {
      await table.join(self);
      await table.watch(
        self.id,
        (key) => this.#lose(key),
        () => this.#confirmAll(),
      );
    } catch (thrown) {
      await Promise.allSettled([table.unwatch(self.id), table.leave(self.id)]);
      throw thrown;
    }
    this.#self = self;
    this.#isReclaiming = this.#held.size > 0;
    this.#leasedUntilMs = sentMs + table.leaseMs;
  }

  #nextSelf(): Member {
    const { process, address, version } = this.#parts;
    return { id: memberId(process, ++this.#joins), process, address, version, isLeaving: this.#isLeaving };
  }

  /** Confirms the placements whose turn it is, without delaying the next renewal. If the table cannot be asked, does so again soon. */
  #check(): void {
    if (this.#isClosed) return;
    clearTimeout(this.#checkTimer);
    if (this.#checking !== undefined) {
      this.#checkAgain();
      return;
    }
    this.#checking = this.#checkHeld(performance.now())
      .catch((thrown: unknown) => {
        this.#parts.onTrouble('failed', thrown);
        this.#checkAgain();
      })
      .finally(() => {
        this.#checking = undefined;
      });
  }

  #checkAgain(): void {
    clearTimeout(this.#checkTimer);
    this.#checkTimer = setTimeout(() => this.#check(), CHECK_AGAIN_MS).unref();
  }

  async #checkHeld(nowMs: number): Promise<void> {
    if (this.#isReclaiming) {
      const isStale = (held: Held) => this.#isStale(held);
      await inGroups([...this.#held.values()].filter(isStale), (held) => this.#reclaim(held));
      this.#isReclaiming = [...this.#held.values()].some(isStale);
    }
    const { confirmMs = CONFIRM_MS } = this.#parts;
    const due = [...this.#held.values()].filter(({ confirmedMs }) => nowMs - confirmedMs >= confirmMs);
    await inGroups(due, (held) => this.#confirm(held, nowMs));
  }

  #isStale({ placement }: Held): boolean {
    return placement.member !== this.#self.id;
  }

  /** Claims a placement of an earlier member of this process. */
  async #reclaim(held: Held): Promise<void> {
    const { key, placement } = held;
    const { table } = this.#parts;
    const claimed = await table.claim(key, this.#self.id, placement.member);
    const isOwn = claimed.member === this.#self.id;
    // Asked after the claim, so that a later end revokes it.
    const isEnded = isOwn && (await this.#parts.isEnded?.(key)) === true;
    const isHeld = this.#held.get(keyText(key)) === held;
    if (isHeld && isOwn && !isEnded) this.#hold(key, claimed);
    else if (isHeld) this.#lose(key);
    // It was freed meanwhile.
    if (isOwn && !this.#held.has(keyText(key))) await table.release(key, claimed);
  }

  async #confirm(held: Held, nowMs: number): Promise<void> {
    const { key, placement } = held;
    const { table, confirmMs = CONFIRM_MS } = this.#parts;
    if (!this.#parts.isUsed(key)) {
      // Its request may still be under way.
      if (nowMs - held.confirmedMs >= 2 * confirmMs) await this.release(key);
    } else if (await table.confirm(key, placement)) held.confirmedMs = nowMs;
    else if (this.held(key) === placement) this.#lose(key);
  }

  /** Confirms all placements, after some may have been revoked without notice. */
  #confirmAll(): void {
    for (const held of this.#held.values()) {
      if (this.#parts.isUsed(held.key)) held.confirmedMs = -Infinity;
    }
    this.#check();
  }

  #lose(key: PlacementKey): void {
    if (this.#held.delete(keyText(key))) this.#parts.onLost(key);
  }

  #setMembers(members: readonly Member[]): void {
    this.#members = new Map(members.map((member) => [member.id, member]));
    this.#parts.onMembers?.(members);
  }

  /** Frees all placements and leaves. Never rejects. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#timer);
    await this.#renewing;
    await this.#checking;
    clearTimeout(this.#checkTimer);
    const { table } = this.#parts;
    const held = [...this.#held.values()];
    this.#held.clear();
    await Promise.all(this.#releasing.values());
    await inGroups(held, ({ key, placement }) => table.release(key, placement).catch(ignore));
    await Promise.allSettled([table.unwatch(this.#self.id), table.leave(this.#self.id)]);
  }
}

/** Ignores a failure of the table. */
function ignore(): void {}
