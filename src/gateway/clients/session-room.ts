import type { SharedParts } from '../records/shared-parts.ts';
import type { Settings } from '../../config/values/config.ts';
import { KeyedSums } from '../../map-entries.ts';
import type { Principal } from '../../policy/principal.ts';
import { FairPool } from '../../upstream/quota/fair-pool.ts';
import type { Session } from './session.ts';
import { noRoom, tooMany } from './session-refusals.ts';

export interface SessionRoomParts extends Pick<SharedParts, 'shares' | 'counters'> {
  readonly settings: Settings<'limits'>;
  /** The sessions in memory. */
  readonly active: ReadonlyMap<string, Session>;
  /** Releases a session that is restored from its id by its next request. */
  release(session: Session): void;
}

/** Keeps the sessions of each principal within `sessionsPerPrincipal`, and those of all within `sessions`. */
export class SessionRoom {
  readonly #parts: SessionRoomParts;
  /** The number of sessions that are being opened or restored, by principal. They count as open. */
  readonly #opening = new KeyedSums();
  readonly #pool: FairPool;

  constructor(parts: SessionRoomParts) {
    this.#parts = parts;
    this.#pool = new FairPool(parts.shares, parts.settings().limits.sessions);
  }

  /**
   * Makes a session that counts as open. What it needs is prepared while other processes are asked for room.
   *
   * @param make returns undefined if there is no session after all.
   */
  async reserve<Prepared, Made extends Session | undefined>(
    { key }: Principal,
    prepare: () => Promise<Prepared>,
    make: (prepared: Prepared) => Promise<Made>,
  ): Promise<Made> {
    this.#makeRoom(key);
    this.#pool.take(key);
    this.#opening.add(key, 1);
    let made: Made | undefined;
    try {
      const [preparing, counting] = [prepare(), this.#count(key)];
      await Promise.allSettled([preparing, counting]);
      await counting;
      try {
        made = await make(await preparing);
        return made;
      } finally {
        if (made === undefined) this.#parts.counters?.release(sessionCounterOf(key));
      }
    } finally {
      if (made === undefined) this.#pool.release(key);
      this.#opening.add(key, -1);
    }
  }

  /**
   * Counts a session among those of all processes. If there are too many, releases sessions of this process without loss.
   *
   * @throws {GatewayError} `overloaded`
   */
  async #count(principal: string): Promise<void> {
    const { counters, settings } = this.#parts;
    if (counters === undefined) return;
    const { sessionsPerPrincipal: limit } = settings().limits;
    while (!(await counters.acquire(sessionCounterOf(principal), limit))) {
      const { oldest } = this.#sessionsOf(principal);
      if (oldest === undefined) throw tooMany(limit);
      this.#parts.release(oldest);
    }
  }

  /** Gives back the room of a session of this principal that is not in memory any more. */
  leave(key: string): void {
    this.#pool.release(key);
    this.#parts.counters?.release(sessionCounterOf(key));
  }

  /**
   * Releases the least recently used session of a principal without loss, if there is no room for another one of all principals.
   *
   * @throws {GatewayError} `overloaded`
   */
  #makeRoomAmongAll(key: string): void {
    const { settings, shares } = this.#parts;
    const { sessions } = settings().limits;
    this.#pool.setCapacity(sessions);
    if (this.#pool.hasRoomFor(key)) return;
    const { oldest } = this.#sessionsOf(key);
    if (oldest !== undefined) return this.#parts.release(oldest);
    throw noRoom(this.#pool, shares, key, sessions);
  }

  /**
   * Releases the least recently used session of a principal without loss, if the principal has the share of this process. A
   * released session is restored from its id.
   */
  #makeRoom(key: string): void {
    this.#makeRoomAmongAll(key);
    const { sessionsPerPrincipal: limit } = this.#parts.settings().limits;
    const opening = this.#opening.of(key);
    if (this.#parts.active.size + opening < this.#share) return;
    const { count, oldest } = this.#sessionsOf(key);
    if (count + opening < this.#share) return;
    // It has no links.
    if (oldest !== undefined) return this.#parts.release(oldest);
    if (count + opening >= limit) throw tooMany(count + opening);
  }

  /**
   * Releases the least recently used sessions of each principal, without loss, that has more than the share of this process. So there is room at a
   * process that has just joined.
   */
  shrink(): void {
    if ((this.#parts.counters?.processes ?? 1) === 1 || this.#parts.active.size <= this.#share) return;
    for (const sessions of Map.groupBy(this.#parts.active.values(), ({ principal }) => principal).values()) {
      const releasable = sessions.filter(({ isReleasable }) => isReleasable).toSorted((a, b) => a.usedMs - b.usedMs);
      for (const session of releasable.slice(0, Math.max(0, sessions.length - this.#share)))
        this.#parts.release(session);
    }
  }

  /** The sessions of one principal in this process beyond which those without loss are released. */
  get #share(): number {
    const { settings, counters } = this.#parts;
    return Math.ceil(settings().limits.sessionsPerPrincipal / (counters?.processes ?? 1));
  }

  /** Returns the number of sessions of a principal, and the least recently used of those that can be released without loss. */
  #sessionsOf(principal: string): { readonly count: number; readonly oldest: Session | undefined } {
    let count = 0;
    let oldest: Session | undefined;
    for (const session of this.#parts.active.values()) {
      if (session.principal !== principal) continue;
      count++;
      if (session.isReleasable && (oldest === undefined || session.usedMs < oldest.usedMs)) oldest = session;
    }
    return { count, oldest };
  }
}

function sessionCounterOf(principal: string): string {
  return `sessions ${principal}`;
}
