import { GatewayError } from '../../errors.ts';
import type { FairPool, Shares } from '../../upstream/quota/fair-pool.ts';
import { LIMITS, type LimitName } from '../../limits.ts';

/** Returns the error for a principal that has as many sessions in use as it may. */
export function tooMany(count: number): GatewayError {
  const message =
    `you have ${count} sessions that are in use, as many as gateway.limits.sessionsPerPrincipal allows; ` +
    'end one with DELETE, or try again later';
  return new GatewayError('overloaded', { message });
}

/** Returns the error for a principal that gets no session because of those of all principals, and counts it. */
export function noRoom(pool: FairPool, shares: Shares, principal: string, limit: number): GatewayError {
  if (pool.hasFree) shares.onRefused('sessions');
  const message = pool.hasFree
    ? `you have ${pool.usedBy(principal)} of ${limit} sessions (gateway.limits.sessions), and the rest is kept for other clients; ` +
      'end one with DELETE, or try again later'
    : `all ${limit} sessions are in use by other clients (gateway.limits.sessions); try again later`;
  return new GatewayError('overloaded', { message });
}

/** Returns the error that names the limit that forbids a change, and the client's remedy; or that the session has moved (`fenced`). */
export function refusal(limit: LimitName | 'fenced'): GatewayError {
  if (limit === 'fenced') {
    const message = 'another process of the gateway serves this session now; send the request again';
    return new GatewayError('store-unavailable', { message });
  }
  if (limit === 'subscriptionUriBytes') {
    return new GatewayError('invalid-params', { message: `"uri" is longer than ${LIMITS.subscriptionUriBytes} bytes` });
  }
  const message =
    limit === 'subscriptionsPerSession'
      ? `this session has ${LIMITS.subscriptionsPerSession} subscriptions already; unsubscribe from some first`
      : `the subscriptions of ${limit === 'sessionRecordBytes' ? 'all' : 'your'} sessions take ${LIMITS[limit]} bytes already; end sessions that are not used any more`;
  return new GatewayError('overloaded', { message, data: { limit } });
}
