import type { OfferKey } from '../../catalog/offer.ts';
import { ERAS } from '../../protocol/revisions.ts';
import type { OfferStore, StoredOfferKey } from '../../store/offer-store.ts';
import type { Offers } from './offers.ts';

export interface SharedOffersParts {
  readonly offers: Pick<Offers, 'ageMs' | 'keys' | 'readStored' | 'saveAgain' | 'stored'>;
  readonly store: OfferStore;
  /** Returns whether an upstream is a process, which other processes of the gateway cannot reach. */
  readonly isProcess: (upstream: string) => boolean;
  /** Runs when lists of another process have replaced those of this one. */
  readonly onChanged: (upstream: string, key: OfferKey) => void;
  /** Lists an upstream again. Never rejects. */
  readonly relist: (upstream: string, key: OfferKey) => Promise<void>;
}

/**
 * Gives all processes of a gateway the lists that one of them has read.
 *
 * A process that has listed a remote upstream itself lists it again instead. What another process has stored may be older than what it has.
 */
export class SharedOffers {
  readonly #parts: SharedOffersParts;
  /** Lists that are to be read, by upstream and key. */
  readonly #due = new Map<string, readonly [upstream: string, key: OfferKey]>();
  #reading: Promise<void> | undefined;
  readonly #relisting = new Set<Promise<void>>();

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

  #read(upstream: string, key: OfferKey): void {
    this.#due.set(JSON.stringify([upstream, key]), [upstream, key]);
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
    const { offers, isProcess, onChanged, relist } = this.#parts;
    const replaces = isProcess(upstream) || offers.ageMs(upstream, key) === undefined;
    if (!(await offers.readStored(upstream, key, replaces))) return;
    if (replaces) {
      onChanged(upstream, key);
      return;
    }
    const relisting = relist(upstream, key).finally(() => this.#relisting.delete(relisting));
    this.#relisting.add(relisting);
  }
}
