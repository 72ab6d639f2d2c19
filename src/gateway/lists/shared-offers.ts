import type { OfferKey } from '../../catalog/offer.ts';
import { settlesWithin } from '../../deadline.ts';
import { ERAS } from '../../protocol/revisions.ts';
import type { OfferStore, StoredOfferKey } from '../../store/offer-store.ts';
import type { Offers } from './offers.ts';

/** The first and the longest pause between listings of an upstream that never has the lists that another process has read. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
/** After this time of a listing, the lists of the other process are used until its end. List requests wait a little longer than that. */
const ADOPTED_AFTER_MS = 150;

export interface SharedOffersParts {
  readonly offers: Pick<Offers, 'ageMs' | 'exactOffer' | 'keys' | 'readStored' | 'saveAgain' | 'stored'>;
  readonly store: OfferStore;
  /** Returns whether an upstream is a process, which other processes of the gateway cannot reach. */
  readonly isProcess: (upstream: string) => boolean;
  /** Runs when lists of another process have replaced those of this one. */
  readonly onChanged: (upstream: string, key: OfferKey) => void;
  /** Lists an upstream again. Never rejects. */
  readonly relist: (upstream: string, key: OfferKey) => Promise<void>;
}

/** The time in which lists are not read again; monotonic ms. */
interface Pause {
  readonly untilMs: number;
  readonly pauseMs: number;
  /** Set if they are to be read at its end. */
  timer?: NodeJS.Timeout | undefined;
}

/**
 * Gives all processes of a gateway the lists that one of them has read.
 *
 * A process that has listed a remote upstream itself lists it again instead. What another process has stored may be older than what it has.
 * If that takes a while, it uses the stored lists until then. Clients of the other process are told of them, and may list here.
 * Some upstreams have other lists at each reading, such as the time in a description. So that two processes do not tell each other of changes all
 * the time, each makes longer and longer pauses.
 */
export class SharedOffers {
  readonly #parts: SharedOffersParts;
  /** Lists that are to be read, by upstream and key. */
  readonly #due = new Map<string, readonly [upstream: string, key: OfferKey]>();
  #reading: Promise<void> | undefined;
  readonly #relisting = new Set<Promise<void>>();
  /** Of lists that were other ones than those of the other process, by upstream and key. */
  readonly #pauses = new Map<string, Pause>();
  #isClosed = false;

  constructor(parts: SharedOffersParts) {
    this.#parts = parts;
  }

  /** Resolves when the lists are read of which this process was told; undefined if there are none. Never rejects. */
  get reading(): Promise<unknown> | undefined {
    if (this.#reading === undefined && this.#relisting.size === 0) return undefined;
    return Promise.all([this.#reading, ...this.#relisting]);
  }

  /** Begins to follow the other processes. @throws {GatewayError} `store-unavailable` */
  async start(): Promise<void> {
    const { offers, store } = this.#parts;
    await store.watch?.({
      onWritten: ({ upstream, target, era, capabilityKey, audience }: StoredOfferKey) => {
        const known = ERAS.find((one) => one === era);
        // Another process may have another config or version for a while.
        if (known === undefined || offers.stored.targetOf(upstream) !== target) return;
        this.#read(upstream, { era: known, capabilityKey, audience });
      },
      onMissed: () => {
        offers.saveAgain();
        for (const [upstream, key] of offers.keys()) this.#read(upstream, key);
      },
    });
  }

  /** Reads no lists later. */
  close(): void {
    this.#isClosed = true;
    for (const { timer } of this.#pauses.values()) clearTimeout(timer);
  }

  #read(upstream: string, key: OfferKey): void {
    this.#due.set(nameOf(upstream, key), [upstream, key]);
    this.#reading ??= this.#readDue();
  }

  /** Reads one list after the other, also those that become due meanwhile. */
  async #readDue(): Promise<void> {
    for (const [name, [upstream, key]] of this.#due) {
      this.#due.delete(name);
      await this.#compare(upstream, key);
    }
    this.#reading = undefined;
  }

  async #compare(upstream: string, key: OfferKey): Promise<void> {
    const { offers, isProcess, onChanged } = this.#parts;
    const replaces = isProcess(upstream) || offers.ageMs(upstream, key) === undefined;
    const pause = this.#pauses.get(nameOf(upstream, key));
    const restMs = replaces || pause === undefined ? 0 : pause.untilMs - performance.now();
    if (pause !== undefined && restMs > 0) {
      if (this.#isClosed) return;
      pause.timer ??= setTimeout(() => {
        pause.timer = undefined;
        this.#read(upstream, key);
      }, restMs).unref();
      return;
    }
    if (!(await offers.readStored(upstream, key, replaces))) return;
    if (replaces) {
      onChanged(upstream, key);
      return;
    }
    const relisting = this.#relist(upstream, key).finally(() => this.#relisting.delete(relisting));
    this.#relisting.add(relisting);
  }

  /** Lists an upstream again. Never rejects. */
  async #relist(upstream: string, key: OfferKey): Promise<void> {
    const { offers, onChanged, relist } = this.#parts;
    const name = nameOf(upstream, key);
    const last = this.#pauses.get(name);
    const before = offers.exactOffer(upstream, key);
    const listed = relist(upstream, key);
    const isLate = !(await settlesWithin(listed, ADOPTED_AFTER_MS));
    // What this process has read meanwhile may be newer.
    if (isLate && offers.exactOffer(upstream, key) === before && (await offers.readStored(upstream, key, true)))
      onChanged(upstream, key);
    await listed;
    const offer = offers.exactOffer(upstream, key);
    clearTimeout(this.#pauses.get(name)?.timer);
    this.#pauses.delete(name);
    // It cannot be read, or it has what the other process has found.
    if (offer === undefined || offer === before || offers.stored.isByOther(upstream, key, offer)) return;
    const nowMs = performance.now();
    const isSoon = last !== undefined && nowMs < last.untilMs + LONGEST_PAUSE_MS;
    // Those of upstreams and principals that are gone.
    for (const [past, { untilMs }] of this.#pauses) {
      if (untilMs + LONGEST_PAUSE_MS < nowMs) this.#pauses.delete(past);
    }
    const pauseMs = isSoon ? Math.min(2 * last.pauseMs, LONGEST_PAUSE_MS) : FIRST_PAUSE_MS;
    this.#pauses.set(name, { untilMs: nowMs + pauseMs, pauseMs });
  }
}

function nameOf(upstream: string, key: OfferKey): string {
  return JSON.stringify([upstream, key]);
}
