import type { Logger } from 'pino';
import { resultWithin } from '../../deadline.ts';
import type { Severity } from '../../protocol/severity.ts';
import { UPSTREAM_DIALECTS } from '../dialects/upstream-dialect.ts';
import type { ConnectionHolder, Link, Upstream } from '../exchange/connection-holder.ts';
import { DEFAULT_LEVEL, isWanted, lowestLevel } from '../exchange/log-level.ts';

/** The longest that a call waits until an upstream has answered log level and subscriptions. */
export const PREPARE_MS = 1_000;

/** Keeps each link at the lowest log level that one of its users wants. */
export class LinkLevels {
  readonly #send: (link: Link, level: Severity) => Promise<unknown>;
  readonly #log: Logger;

  constructor(send: (link: Link, level: Severity) => Promise<unknown>, log: Logger) {
    this.#send = send;
    this.#log = log;
  }

  /** Sends the log level of a link. Never rejects: after a failure only the log messages differ. */
  async set(link: Link, level = lowestLevel(link.users)): Promise<void> {
    if (level === undefined || !keepsLevel(link)) return;
    link.logLevel = level;
    try {
      await this.#send(link, level);
    } catch (thrown) {
      if (!link.connection.isClosed) this.#log.warn({ err: thrown, upstream: link.upstream }, 'log level not set');
    }
  }

  /** Sends the levels of all links of a holder, whose level has changed. Waits at most {@link PREPARE_MS}. */
  async setAll(holder: ConnectionHolder): Promise<void> {
    await resultWithin(Promise.all([...holder.links.values()].map((link) => this.set(link))), PREPARE_MS);
  }

  /** Lowers the log level of a link if a request wants log messages that the link does not send. */
  async ensure(holder: ConnectionHolder, link: Link, level: Severity): Promise<void> {
    if (!UPSTREAM_DIALECTS[link.era].keepsClientState) return;
    if (holder.logLevel === undefined || !isWanted(level, holder.logLevel)) holder.logLevel = level;
    // A link that opened later, or while the level was set, may have another one.
    const sends = link.logLevel !== undefined && isWanted(level, link.logLevel);
    if (sends || !keepsLevel(link)) return;
    await resultWithin(this.set(link), PREPARE_MS);
  }

  /** Releases the links of a holder to an upstream. The remaining users may want fewer log messages. */
  releaseUser(holder: ConnectionHolder, upstream: Upstream): void {
    const shared: Link[] = [];
    for (const link of upstream.links()) {
      if (link.logLevel !== undefined && link.users.size > 1 && link.users.has(holder)) shared.push(link);
    }
    upstream.releaseUser(holder);
    for (const link of shared) {
      const level = lowestLevel(link.users) ?? DEFAULT_LEVEL;
      if (level !== link.logLevel) void this.set(link, level);
    }
  }
}

/** Returns whether an upstream has a log level for each link. */
function keepsLevel({ hello, era }: Link): boolean {
  return hello.capabilities.raw('logging') !== undefined && UPSTREAM_DIALECTS[era].keepsClientState;
}
