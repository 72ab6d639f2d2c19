import { isShown } from '../../catalog/catalog.ts';
import type { Link } from './connection-holder.ts';
import type { Recipient } from './exchange.ts';

/** Returns the recipient of a message of an upstream that names no call: the only user of its link. Returns undefined if that is ambiguous. */
export function soleRecipient(link: Link): Recipient | undefined {
  const [only] = link.users;
  // The access policy may have hidden the upstream since the connection was opened.
  if (only === undefined || link.users.size !== 1 || !isShown(only.catalog, link.upstream)) return undefined;
  // The message may be about a call that an earlier client has given up. A client group is many clients.
  if (link.connection.hasAbandoned(only.isOneClient ? only.key : undefined)) return undefined;
  return only.recipientAt(link.upstream);
}
