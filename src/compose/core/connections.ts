import { HolderLinks, type HolderLinksParts } from '../../gateway/connections/holder-links.ts';
import { StateLosses } from '../../gateway/connections/state-losses.ts';
import { Offers, type OffersParts } from '../../gateway/lists/offers.ts';
import { StartRecords } from '../../gateway/lists/start-records.ts';
import type { CommonParts } from './core-parts.ts';

/** Callbacks to parts that are constructed later. None runs before the core starts. */
export type ConnectionCallbacks = Pick<HolderLinksParts, 'siblingsOf' | 'onReattached' | 'beforeOpen' | 'onOpen'> &
  Required<Pick<OffersParts, 'holders'>>;

export type ConnectionParts = ReturnType<typeof createConnections>;

/** Constructs the parts that keep the offers of upstreams and the links of clients. */
export function createConnections(common: CommonParts, { holders, ...callbacks }: ConnectionCallbacks) {
  const { state, sealer, upstreams, log } = common;
  const audienceOf = (id: string, principal: string) => upstreams.get(id)?.audienceOf(principal) ?? '';
  const pseudonymsOf = (path: string) => sealer.pseudonymsOf(path);
  const offers = new Offers({ ...common, pseudonymsOf, audienceOf, holders, store: state.offers });
  const records = new StartRecords(offers.stored.upstreamKeys(), state.offers, log);
  const stateLosses = new StateLosses(common);
  const links = new HolderLinks({ ...common, stateLosses, ...callbacks });
  return { offers, records, stateLosses, links };
}
