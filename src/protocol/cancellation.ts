import { RawObject } from '../json/json.ts';
import { withoutEnvelope } from './envelope.ts';
import { withoutCoreTaskMeta } from './meta.ts';

/** The reason for a cancellation: a text of the gateway, or the params of the notification by which a peer cancels. */
export type CancelReason = string | RawObject | undefined;

/**
 * Returns the params of a notification that one peer sends and another gets. They are without the members of `_meta` that belong to the
 * connection with the sender.
 *
 * @throws {JsonTextError} if `_meta` names a member twice.
 */
export function carriedParams(params: RawObject): RawObject {
  return withoutCoreTaskMeta(withoutEnvelope(params));
}

/**
 * Returns the params of `notifications/cancelled`.
 *
 * @param id of the request, as raw JSON.
 */
export function cancelledParams(id: string, why: CancelReason): RawObject {
  if (typeof why === 'object') {
    const sent = why.with('requestId', id);
    // A strict peer refuses a notification whose reason is no string, and would not cancel.
    return sent.string('reason') === undefined ? sent.with('reason', undefined) : sent;
  }
  return RawObject.EMPTY.with('requestId', id).with('reason', why === undefined ? undefined : JSON.stringify(why));
}
