import { setLatest } from '../../map-entries.ts';
import { type Offer, type Refusal, refusedOffer } from '../../catalog/offer.ts';
import { upstreamIn, type View } from '../../catalog/view.ts';
import { COMMAND } from '../../command-name.ts';
import { endpointPath } from '../../endpoint-path.ts';
import { LIMITS } from '../../limits.ts';

export interface CirclesParts {
  readonly views: ReadonlyMap<string, View>;
  /** Returns the pseudonyms by which lists name an endpoint of this gateway; see `Sealer.pseudonymsOf`. */
  readonly pseudonymsOf: (path: string) => readonly string[];
}

/**
 * Finds upstreams whose lists lead back: they have come through an endpoint of this gateway that has the upstream. With each listing they
 * would have all items once more, under one more prefix. Their lists are refused as a whole.
 *
 * @see docs/decisions/0096-circles-of-gateways.md
 */
export class Circles {
  readonly #parts: CirclesParts;
  /**
   * The endpoint that an upstream has led back to, by upstream and audience. A refused upstream stays so. Without its lists,
   * the next list of another gateway does not lead back: both gateways would serve and refuse each other in turns.
   */
  readonly #known = new Map<string, Map<string, string>>();

  constructor(parts: CirclesParts) {
    this.#parts = parts;
  }

  /** Records that lists which were read from an upstream lead back, if they do. */
  note(upstream: string, audience: string, offer: Offer): void {
    const view = this.#viewIn(upstream, offer);
    const known = this.#known.get(upstream) ?? new Map<string, string>();
    if (view === undefined || known.has(audience)) return;
    this.#known.set(upstream, known);
    setLatest(known, audience, view, LIMITS.credentialAudiences);
  }

  /** Forgets an upstream: another one takes its place, or none. */
  remove(upstream: string): void {
    this.#known.delete(upstream);
  }

  /** Returns the reason why lists of an upstream are refused; undefined if they are not. */
  refusalOf(upstream: string, audience: string, offer: Offer): Refusal | undefined {
    const { endpoints = [] } = offer;
    if (endpoints.length > LIMITS.listEndpoints) {
      const why = `they have come through more than ${LIMITS.listEndpoints} endpoints of gateways; one of these gateways may have itself as an upstream`;
      return { why, limit: 'listEndpoints' };
    }
    const known = this.#known.get(upstream)?.get(audience);
    const view = known !== undefined && this.#has(known, upstream) ? known : this.#viewIn(upstream, offer);
    if (view === undefined) return undefined;
    const why =
      `they have those of this gateway itself (${endpointPath(view)}), and would grow with each listing. Remove "${upstream}" here, ` +
      `or this gateway from the upstreams of the other one, and then run: ${COMMAND} restart ${upstream}`;
    return { why };
  }

  /** Returns an offer as clients get it: without lists if they are refused. */
  judged(upstream: string, audience: string, offer: Offer): Offer {
    const refusal = this.refusalOf(upstream, audience, offer);
    return refusal === undefined ? offer : refusedOffer(offer, refusal);
  }

  /** Returns an endpoint with this upstream that the lists have come through. */
  #viewIn(upstream: string, { endpoints = [] }: Offer): string | undefined {
    if (endpoints.length === 0) return undefined;
    const isOn = (view: string) => this.#parts.pseudonymsOf(endpointPath(view)).some((one) => endpoints.includes(one));
    return [...this.#parts.views.keys()].find((view) => this.#has(view, upstream) && isOn(view));
  }

  #has(view: string, upstream: string): boolean {
    return upstreamIn(this.#parts.views.get(view), upstream) !== undefined;
  }
}
