import { type Catalog, isShown } from '../../catalog/catalog.ts';
import { upstreamIn } from '../../catalog/view.ts';
import type { RawObject } from '../../json/json.ts';
import { relatedTask } from '../../protocol/tasks.ts';
import type { LateMessage } from '../../upstream/rpc/abandoned-calls.ts';
import { mayBeMarked } from '../handles/task-marks.ts';
import type { ConnectionHolder, Link } from '../exchange/connection-holder.ts';
import type { Exchange, Recipient } from '../exchange/exchange.ts';

/** Returns the recipient of a message of an upstream that names no call: the only user of its link. Returns undefined if that is ambiguous. */
export function soleRecipient(link: Link, message: LateMessage, params: RawObject | undefined): Recipient | undefined {
  const [only] = link.users;
  if (only === undefined || link.users.size !== 1) return undefined;
  const recipient = only.recipientAt(link.upstream);
  // The message may be about a call that an earlier client has given up.
  if (recipient === undefined || link.connection.hasAbandoned(message, recipient.client.senderKey)) return undefined;
  if (!mayKnow(only.catalog, link.upstream, recipient.exchange)) return undefined;
  const task = taskIn(params);
  return task === undefined || isTaskOf(only, recipient, link.tasks.get(task)?.owner) ? recipient : undefined;
}

/** Returns the upstream's id of the task that a message says it is about. */
export function taskIn(params: RawObject | undefined): string | undefined {
  return params !== undefined && mayBeMarked(params) ? relatedTask(params) : undefined;
}

/**
 * Returns whether the only user of a link is the one that a task is of. A session may be asked about a task that the gateway does not know
 * yet or any more. A client group has many clients, so it may be asked only about a call that is to become a task.
 */
function isTaskOf(only: ConnectionHolder, recipient: Recipient, owner: Exchange | undefined): boolean {
  if (owner !== undefined) return owner.holder.key === only.key;
  return only.isOneClient || recipient.exchange?.isTaskCall === true;
}

/**
 * Returns whether the client of a catalog may know of an upstream, which the access policy may have hidden since the connection was opened. An upstream
 * that a reload has removed still finishes the requests of clients whose rights name it.
 */
export function mayKnow(catalog: Catalog, upstream: string, exchange: Exchange | undefined): boolean {
  if (isShown(catalog, upstream)) return true;
  return upstreamIn(exchange?.view, upstream) !== undefined && catalog.restriction?.serves(upstream) === true;
}
