import type { Logger } from 'pino';
import { type Offer, offerText, parseOffer } from '../../catalog/offer.ts';
import { accountText } from '../../config/values/credentials.ts';
import { CLIENT_FEATURES, type UpstreamConfig } from '../../config/values/upstream-config.ts';
import { eraOf } from '../../protocol/revisions.ts';
import type { OfferStore, StoredOfferKey } from '../../store/offer-store.ts';
import { workTurn } from '../../work-turn.ts';

/** The offers in the store. An offer that cannot be written is still served; only a restart loses it. */
export class StoredOffers {
  readonly #store: OfferStore;
  readonly #log: Logger;
  /** Offers that could not be written. */
  #unsaved = new WeakSet<Offer>();
  #writing: Promise<void> = Promise.resolve();

  constructor(store: OfferStore, log: Logger) {
    this.#store = store;
    this.#log = log;
  }

  /** Returns whether other processes of the gateway get these offers. */
  get areShared(): boolean {
    return this.#store.watch !== undefined;
  }

  /** Returns the offer of this key. Undefined if there is none, or none that can be read. */
  async read(key: StoredOfferKey): Promise<Offer | undefined> {
    const offer = parseOffer((await this.#store.read(key)) ?? '');
    return offer !== undefined && eraOf(offer.revision) === key.era ? offer : undefined;
  }

  /** @param onEnd runs when the offer is written, or could not be written. */
  write(key: StoredOfferKey, offer: Offer, onEnd: () => void): void {
    this.#run(key, async () => {
      try {
        await this.#store.write(key, offerText(offer));
      } catch (thrown) {
        this.#unsaved.add(offer);
        throw thrown;
      } finally {
        onEnd();
      }
    });
  }

  remove(key: StoredOfferKey): void {
    this.#run(key, () => this.#store.remove(key));
  }

  /** Returns whether an offer could not be written, for the offers of which that was not asked before. */
  takeUnsaved(): (offer: Offer) => boolean {
    const unsaved = this.#unsaved;
    this.#unsaved = new WeakSet();
    return (offer) => unsaved.has(offer);
  }

  /** Runs changes one after another, each in a turn with little other work. */
  #run({ upstream }: StoredOfferKey, change: () => Promise<void>): void {
    this.#writing = this.#writing
      .then(workTurn)
      .then(change)
      .catch((thrown: unknown) => this.#log.warn({ err: thrown, upstream }, 'offer not saved'));
  }

  /** Resolves when all offers are on disk. */
  flush(): Promise<void> {
    return this.#writing;
  }
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
