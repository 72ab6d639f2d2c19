import type { UpstreamConfig } from '../config/values/upstream-config.ts';
import { EVERYBODY } from './connection-key.ts';
import { isIdle, isPrivate, type Link } from './link/link.ts';

/** The time that an unused discovery connection stays open after the first client was served: it may report changes. */
const DISCOVERY_IDLE_MS = 10_000;
const UNUSED_MS = 30_000;

/** Returns whether a link stays open without users: a connection to a remote server, for its notifications; a shared process. */
export function staysOpen(link: Link, { target, isolation }: UpstreamConfig): boolean {
  const { audience, capabilityKey } = link;
  const isStanding = target.kind !== 'stdio' || isolation === 'shared';
  return !isPrivate(link) && audience === EVERYBODY && capabilityKey === '' && isStanding;
}

/**
 * Returns whether a link closes with its last user. One that works on a task of a modern client stays. The client polls from any client
 * group of its principal at the endpoint, and all of them use this link.
 */
export function closesWithUsers(link: Link, { isolation }: UpstreamConfig): boolean {
  const isPolled = link.era === 'modern' && link.tasks.size > 0;
  return isPrivate(link) && isolation !== 'principal' && !isPolled;
}

/**
 * Returns whether a link was not used for the configured time.
 *
 * @param hasServed whether a client has been served. Before that, the process that read the lists is kept for it.
 * @param nowMs monotonic.
 */
export function isExpired(link: Link, config: UpstreamConfig, hasServed: boolean, nowMs: number): boolean {
  const { idleMs } = config;
  const isSoon = link.place.purpose === 'discovery' && (hasServed || link.capabilityKey !== '');
  const limitMs = isSoon ? Math.min(DISCOVERY_IDLE_MS, idleMs) : idleMs;
  return isIdle(link) && nowMs - link.usedMs > limitMs && !staysOpen(link, config);
}

/** Returns whether nobody has used a link for a while. Some servers forget a session then, such as those of the Rust SDK after five minutes. */
export function isUnused(link: Link, nowMs: number): boolean {
  return link.users.size === 0 && isIdle(link) && nowMs - link.usedMs > UNUSED_MS;
}

/**
 * Returns whether a link has no users, and may be closed to make room for another one. One that stays open may be if its server keeps nothing for
 * it, and links that stay open have all places of the upstream.
 *
 * @param links all open links of the upstream.
 */
export function isSpare(link: Link, config: UpstreamConfig, links: Iterable<Link>): boolean {
  if (link.users.size > 0 || !isIdle(link)) return false;
  if (!staysOpen(link, config)) return true;
  const isStateless = link.place.purpose === 'discovery' || (link.era === 'modern' && config.target.kind !== 'stdio');
  const standing = [...links].filter((one) => one.users.size === 0 && staysOpen(one, config));
  return isStateless && standing.length >= config.maxConnections;
}
