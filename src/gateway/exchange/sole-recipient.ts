import { type Catalog, isShown } from '../../catalog/catalog.ts';
import { upstreamIn } from '../../catalog/view.ts';
import type { Link } from './connection-holder.ts';
import type { Exchange, Recipient } from './exchange.ts';

/** Returns the recipient of a message of an upstream that names no call: the only user of its link. Returns undefined if that is ambiguous. */
export function soleRecipient(link: Link): Recipient | undefined {
  const [only] = link.users;
  if (only === undefined || link.users.size !== 1) return undefined;
  // The message may be about a call that an earlier client has given up. A client group is many clients.
  if (link.connection.hasAbandoned(only.isOneClient ? only.key : undefined)) return undefined;
  const recipient = only.recipientAt(link.upstream);
  return mayKnow(only.catalog, link.upstream, recipient?.exchange) ? recipient : undefined;
}

/**
 * Returns whether the client of a catalog may know of an upstream, which the access policy may have hidden since the connection was opened. An upstream
 * that a reload has removed still finishes the requests of clients whose rights name it.
 */
export function mayKnow(catalog: Catalog, upstream: string, exchange: Exchange | undefined): boolean {
  if (isShown(catalog, upstream)) return true;
  return upstreamIn(exchange?.view, upstream) !== undefined && catalog.restriction?.shows(upstream) === true;
}
