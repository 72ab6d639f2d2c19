import { HolderLinks } from '../../gateway/connections/holder-links.ts';
import { StateLosses } from '../../gateway/connections/state-losses.ts';
import type { ConnectionHolder, Link } from '../../gateway/exchange/connection-holder.ts';
import { Offers } from '../../gateway/lists/offers.ts';
import { StartRecords } from '../../gateway/lists/start-records.ts';
import type { CommonParts } from './core-parts.ts';

/** Callbacks to parts that are constructed later. None runs before the core starts. */
export interface ConnectionCallbacks {
  /** Returns the groups that share the notifications of their connections with a holder. */
  readonly siblingsOf: (holder: ConnectionHolder) => Iterable<ConnectionHolder>;
  /** Runs when a link continues the session that an earlier process had at the upstream. */
  readonly onReattached: (link: Link) => void;
  /** Runs before a link is opened for a holder. */
  readonly beforeOpen: (holder: ConnectionHolder, upstream: string) => void;
  /** Runs when a link of a holder is open. */
  readonly onOpen: (link: Link) => void;
}

export type ConnectionParts = ReturnType<typeof createConnections>;

/** Constructs the parts that keep the offers of upstreams and the links of clients. */
export function createConnections(common: CommonParts, callbacks: ConnectionCallbacks) {
  const { config, state, views, upstreams, gate, metrics, log, onLimit } = common;
  const audienceOf = (id: string, principal: string) => upstreams.get(id)?.audienceOf(principal) ?? '';
  const offers = new Offers({ config, views, audienceOf, gate, store: state.offers, log, metrics });
  const records = new StartRecords(offers.upstreamKeys(), state.offers, log);
  const stateLosses = new StateLosses({ metrics, log });
  const links = new HolderLinks({ upstreams, stateLosses, log, onLimit, ...callbacks });
  return { offers, records, stateLosses, links };
}
