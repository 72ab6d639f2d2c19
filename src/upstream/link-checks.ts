import type { Logger } from 'pino';
import type { Lifecycles } from './lifecycle/lifecycles.ts';
import type { Link, LinkUser } from './link/link.ts';
import type { Opener } from './link/opener.ts';
import type { UpstreamEvents } from './upstream-events.ts';
import type { UpstreamLinks } from './upstream-links.ts';

/** The shortest time between two checks of a link that refused requests lead to. Some servers always refuse certain requests. */
const REFUSAL_CHECK_MS = 5_000;

interface LinkChecksParts<Context, User extends LinkUser> {
  readonly links: UpstreamLinks<Context, User>;
  readonly opener: Opener<Context, User>;
  readonly lifecycles: Lifecycles;
  readonly events: UpstreamEvents<Context, User>;
  readonly log: Logger;
  /** Aborts when the upstream is stopped. */
  readonly stopping: AbortSignal;
}

/**
 * Gives up links to a server that was deployed anew, so that later requests open others. A server that keeps no session cannot
 * report that: without a check, a link would stay as its handshake made it.
 */
export class LinkChecks<Context, User extends LinkUser> {
  readonly #parts: LinkChecksParts<Context, User>;
  readonly #running = new Map<Link<Context, User>, Promise<boolean>>();
  readonly #checkedMs = new WeakMap<Link<Context, User>, number>();
  readonly #listed = new WeakSet<Link<Context, User>>();

  constructor(parts: LinkChecksParts<Context, User>) {
    this.#parts = parts;
  }

  /**
   * Checks a link before a listing, except the first. Resolves with whether the link was given up. Never rejects. Returns undefined if
   * there is nothing to check.
   */
  beforeListing(link: Link<Context, User>): Promise<boolean> | undefined {
    if (link.connection.mayKeepState) return undefined;
    if (this.#listed.has(link)) return this.#check(link);
    this.#listed.add(link);
    return undefined;
  }

  /** Checks a link whose server has refused a request. Resolves with whether the link was given up. Never rejects. */
  async afterRefusal(link: Link<Context, User>): Promise<boolean> {
    if (link.connection.mayKeepState || link.isRetired) return false;
    const checkedMs = this.#checkedMs.get(link);
    if (checkedMs !== undefined && performance.now() - checkedMs < REFUSAL_CHECK_MS) return false;
    return await this.#check(link);
  }

  /** Simultaneous checks of a link share one handshake. */
  #check(link: Link<Context, User>): Promise<boolean> {
    const known = this.#running.get(link);
    if (known !== undefined) return known;
    const checking = this.#recheck(link).finally(() => this.#running.delete(link));
    this.#running.set(link, checking);
    return checking;
  }

  async #recheck(link: Link<Context, User>): Promise<boolean> {
    const { opener, stopping } = this.#parts;
    this.#checkedMs.set(link, performance.now());
    const outcome = await opener.recheck(link, stopping);
    if (outcome === 'same' || outcome === 'unknown' || stopping.aborted) return false;
    this.#giveUp(link, outcome === 'era');
    return true;
  }

  /**
   * Gives up the links of this era and audience. Their server has no state of clients. Requests in flight finish on them.
   *
   * @param isOtherEra true if the server does not support the era any more.
   */
  #giveUp({ era, audience }: Link<Context, User>, isOtherEra: boolean): void {
    const { links, opener, lifecycles, events, log } = this.#parts;
    if (isOtherEra) {
      opener.forgetEras();
      lifecycles.forget(era);
    }
    log.info({ era }, 'upstream was deployed anew');
    for (const link of links) {
      if (link.era !== era || link.audience !== audience || link.connection.mayKeepState) continue;
      if (!links.release(link)) continue;
      events.onLinkClosed(link, 'forgotten');
      link.isRetired = true;
      link.subscription?.close();
    }
  }
}
