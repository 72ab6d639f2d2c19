import type { Logger } from 'pino';
import { isSameOffer, type Offer, type OfferKey, offerKeyText, offerText, parseOffer } from '../../catalog/offer.ts';
import { accountText } from '../../config/values/credentials.ts';
import { CLIENT_FEATURES, type UpstreamConfig } from '../../config/values/upstream-config.ts';
import { eraOf } from '../../protocol/revisions.ts';
import type { OfferStore, StoredOfferKey, UpstreamKey } from '../../store/offer-store.ts';
import { workTurn } from '../../work-turn.ts';

/** Keys that are known not to be in the store. Clients choose their capabilities, so there are more keys than upstreams. */
const MAX_ABSENT = 16_384;

/**
 * The offers in the store. Knows without reading it which offers it lacks, and which other processes have written.
 * An offer that cannot be written is still served; only a restart loses it.
 */
export class StoredOffers {
  readonly #store: OfferStore;
  readonly #log: Logger;
  /** The text of {@link targetText} by upstream. */
  readonly #targets = new Map<string, string>();
  /** Names of offers that are not in the store, so that it is not read for each client. */
  readonly #absent = new Set<string>();
  /** Offers that other processes have written and that differ from those in memory, by name. */
  readonly #byOthers = new Map<string, Offer>();
  /** Offers that could not be written. */
  #unsaved = new WeakSet<Offer>();
  #writes = 0;
  #writing: Promise<void> = Promise.resolve();

  constructor(store: OfferStore, log: Logger) {
    this.#store = store;
    this.#log = log;
  }

  /** Returns whether other processes of the gateway get these offers. */
  get areShared(): boolean {
    return this.#store.watch !== undefined;
  }

  /** Returns the keys of the upstreams in the store. */
  upstreamKeys(): readonly UpstreamKey[] {
    return [...this.#targets].map(([upstream, target]) => ({ upstream, target }));
  }

  /** Returns the text that identifies the server behind an upstream's id. */
  targetOf(upstream: string): string | undefined {
    return this.#targets.get(upstream);
  }

  setTarget(upstream: string, target: string): void {
    this.#targets.set(upstream, target);
  }

  /** Removes an upstream from memory. Its offers stay in the store: it may come back. */
  forget(upstream: string): void {
    this.#targets.delete(upstream);
    for (const names of [this.#byOthers, this.#absent]) {
      for (const name of names.keys()) if (name.startsWith(`${upstream} `)) names.delete(name);
    }
  }

  /** Returns the offer of this key. Undefined if there is none, or none that can be read. */
  async read(upstream: string, key: OfferKey): Promise<Offer | undefined> {
    const offer = parseOffer((await this.#store.read(this.#storeKey(upstream, key))) ?? '');
    return offer !== undefined && eraOf(offer.revision) === key.era ? offer : undefined;
  }

  write(upstream: string, key: OfferKey, offer: Offer): void {
    const storeKey = this.#storeKey(upstream, key);
    this.#absent.delete(nameOf(upstream, key));
    this.#run(upstream, async () => {
      try {
        await this.#store.write(storeKey, offerText(offer));
      } catch (thrown) {
        this.#unsaved.add(offer);
        throw thrown;
      } finally {
        this.#writes++;
        this.#byOthers.delete(nameOf(upstream, key));
      }
    });
  }

  /** Removes an offer. It is absent from now on, although earlier changes are written first. */
  remove(upstream: string, key: OfferKey): void {
    const storeKey = this.#storeKey(upstream, key);
    this.setAbsent(upstream, key);
    this.#byOthers.delete(nameOf(upstream, key));
    this.#run(upstream, () => this.#store.remove(storeKey));
  }

  /** Returns whether the store is known to lack the offer of this key. */
  isAbsent(upstream: string, key: OfferKey): boolean {
    return this.#absent.has(nameOf(upstream, key));
  }

  /** Records that the store lacks the offer of this key. */
  setAbsent(upstream: string, key: OfferKey): void {
    if (this.#absent.size >= MAX_ABSENT) this.#absent.clear();
    this.#absent.add(nameOf(upstream, key));
  }

  /** Forgets what was known of an offer that another process has written now. */
  onWrittenByOther(upstream: string, key: OfferKey): void {
    this.#absent.delete(nameOf(upstream, key));
    this.#byOthers.delete(nameOf(upstream, key));
  }

  /**
   * Returns a function that records an offer of another process, which is read from now on and differs from the one in memory. A write of this
   * process meanwhile may have replaced it.
   */
  recorderOfOther(upstream: string, key: OfferKey): (offer: Offer) => void {
    const writes = this.#writes;
    return (offer) => {
      if (this.#writes === writes) this.#byOthers.set(nameOf(upstream, key), offer);
    };
  }

  /** Returns whether another process has written the same offer. */
  isByOther(upstream: string, key: OfferKey, offer: Offer): boolean {
    const written = this.#byOthers.get(nameOf(upstream, key));
    return written !== undefined && isSameOffer(written, offer);
  }

  /** Returns whether an offer could not be written, for the offers of which that was not asked before. */
  takeUnsaved(): (offer: Offer) => boolean {
    const unsaved = this.#unsaved;
    this.#unsaved = new WeakSet();
    return (offer) => unsaved.has(offer);
  }

  /** Runs changes one after another, each in a turn with little other work. */
  #run(upstream: string, change: () => Promise<void>): void {
    this.#writing = this.#writing
      .then(workTurn)
      .then(change)
      .catch((thrown: unknown) => this.#log.warn({ err: thrown, upstream }, 'offer not saved'));
  }

  /** Resolves when all offers are on disk. */
  flush(): Promise<void> {
    return this.#writing;
  }

  #storeKey(upstream: string, key: OfferKey): StoredOfferKey {
    return { upstream, target: this.#targets.get(upstream) ?? '', ...key };
  }
}

function nameOf(upstream: string, key: OfferKey): string {
  return `${upstream} ${offerKeyText(key)}`;
}

/** Returns a text that identifies an upstream's server. The lists of another command or URL are not valid. */
export function targetText({ target, clientFeatures }: UpstreamConfig): string {
  // A server may list other items for other accounts.
  const account = target.kind === 'stdio' || target.auth === undefined ? [] : [accountText(target.auth)];
  const parts = target.kind === 'stdio' ? [target.command, ...target.args] : [target.url, ...account];
  // A server may list less for clients with fewer features.
  const isLimited = CLIENT_FEATURES.some((feature) => !clientFeatures.includes(feature));
  return JSON.stringify(isLimited ? [...parts, { clientFeatures }] : parts);
}
