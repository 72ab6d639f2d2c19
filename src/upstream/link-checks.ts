import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { toGatewayError } from '../errors.ts';
import type { Era } from '../protocol/revisions.ts';
import { EVERYBODY } from './connection-key.ts';
import { isUp } from './lifecycle/lifecycle.ts';
import type { Lifecycles } from './lifecycle/lifecycles.ts';
import { isAnsweredByStatus, isOfCredentials } from './link/era-evidence.ts';
import type { Link } from './link/link.ts';
import type { Opener } from './link/opener.ts';
import { isSameHello, type RecheckOutcome } from './link/recheck.ts';
import { SingleRuns } from './single-runs.ts';
import type { UpstreamEvents } from './upstream-events.ts';
import type { UpstreamLinks } from './upstream-links.ts';

/** The shortest time between two checks of a link that refused requests lead to. Some servers always refuse certain requests. */
const REFUSAL_CHECK_MS = 5_000;

/** The shortest time between two checks of sessions that only read lists. Some servers often report that a list changed. */
const REPORT_CHECK_MS = 60_000;

/** The shortest time between two refused checks after which an era counts as lost. A proxy may answer for a server that is down. */
const LOST_ERA_MS = 5_000;

/** The shortest time between two changes of mere texts that lead to other links. Servers behind one balancer may have different texts. */
const TEXTS_MS = 3_600_000;

/** The longest wait for the answer of a server that is asked whether it serves. */
const ANSWER_MS = 5_000;

/** The shortest time between two such questions. Starts for many clients may fail at once. */
const QUESTION_MS = 1_000;

/** The state of the checks of the links of one era and audience, which have one server. Times are monotonic ms. */
interface Scope {
  /** Never rejects. */
  running: Promise<void> | undefined;
  checkedMs: number;
  /** Time of the first of the last checks that were all refused. */
  refusedMs: number | undefined;
  /** Time of the last change of mere texts that has led to other links. */
  describedMs: number | undefined;
}

interface LinkChecksParts {
  readonly links: UpstreamLinks;
  readonly opener: Opener;
  readonly lifecycles: Lifecycles;
  readonly events: UpstreamEvents;
  readonly log: Logger;
  /** Aborts when the upstream is stopped. */
  readonly stopping: AbortSignal;
}

/**
 * Gives up links to a server that was deployed anew, so that later requests open others. A server that keeps no session cannot
 * report that: without a check, a link would stay as its handshake made it. So would a session that only reads lists.
 */
export class LinkChecks {
  readonly #parts: LinkChecksParts;
  /** By era and audience. */
  readonly #scopes = new Map<string, Scope>();
  readonly #listed = new WeakSet<Link>();
  readonly #asking = new SingleRuns<boolean | undefined>();
  /** Monotonic ms. */
  readonly #askedMs = new Map<Era, number>();

  constructor(parts: LinkChecksParts) {
    this.#parts = parts;
  }

  /**
   * Checks a link before a listing, except the first. Resolves with whether the link was given up. Never rejects. Returns undefined if
   * there is nothing to check.
   */
  beforeListing(link: Link): Promise<boolean> | undefined {
    if (!this.#listed.has(link)) return undefined;
    return !link.connection.mayKeepState || this.#mayBeDescribedAnew(link) ? this.#check(link) : undefined;
  }

  /** Returns whether a session that only reads lists may have begun before its server had what it describes now. */
  #mayBeDescribedAnew(link: Link): boolean {
    if (!link.hasReportedChange || !isReader(link)) return false;
    const { running, checkedMs } = this.#scopeOf(link);
    return running !== undefined || performance.now() - checkedMs >= REPORT_CHECK_MS;
  }

  /** Records the begin of a listing over this link. */
  onListing(link: Link): void {
    this.#listed.add(link);
  }

  /** Checks a link whose server has refused a request. Resolves with whether the link was given up. Never rejects. */
  async afterRefusal(link: Link): Promise<boolean> {
    if (link.connection.mayKeepState || link.isRetired) return false;
    if (performance.now() - this.#scopeOf(link).checkedMs < REFUSAL_CHECK_MS) return false;
    return await this.#check(link);
  }

  /**
   * Asks a remote server over the open link that was used last, after a failed listing or start of a further link. Without an open link nobody
   * is served. Failures meanwhile share the question. Never rejects.
   */
  async afterFailure(era: Era): Promise<void> {
    const { links, lifecycles } = this.#parts;
    if (!links.isOpenIn(era)) return;
    const answers = await this.#asking.run(era, () => this.#ask(era));
    if (answers !== undefined) lifecycles.step(era, { kind: 'asked', answers });
  }

  /**
   * Asks a server that has refused or not answered a request, as that may be about the one request. Resolves with whether it answers this one;
   * undefined if it refuses this one for the credentials of the gateway. Failures meanwhile share the question. Never rejects.
   */
  afterRequest(link: Link): Promise<boolean | undefined> {
    return this.#asking.run(`${link.era} request`, async () => {
      await this.#awaitTurn(link.era);
      return await ask(link);
    });
  }

  /**
   * Asks a server that has not answered a request. Resolves with whether it may be down, which a listing has to show: it may also fail this client
   * alone. Credentials of one principal list nothing for others. Never rejects.
   */
  async mayBeDown(link: Link): Promise<boolean> {
    const isKnown = () => link.isRetired || !isUp(this.#parts.lifecycles.in(link.era));
    if (link.audience !== EVERYBODY || isKnown()) return false;
    return (await this.afterRequest(link)) !== true && !isKnown();
  }

  /** Resolves when the running handshakes have ended, and have closed their connections. */
  async whenEnded(): Promise<void> {
    for (const { running } of this.#scopes.values()) await running;
  }

  /** Waits until another question may be asked. Resolves with the time. */
  async #awaitTurn(era: Era): Promise<number> {
    const pauseMs = (this.#askedMs.get(era) ?? -Infinity) + QUESTION_MS - performance.now();
    if (pauseMs > 0) await sleep(pauseMs, undefined, { ref: false });
    const nowMs = performance.now();
    this.#askedMs.set(era, nowMs);
    return nowMs;
  }

  /** Resolves with whether the server answers; undefined if no link has credentials for that, or a start has succeeded meanwhile. */
  async #ask(era: Era): Promise<boolean | undefined> {
    const { links } = this.#parts;
    const startedMs = await this.#awaitTurn(era);
    const refused = new Set<string>();
    while (performance.now() - startedMs < ANSWER_MS) {
      const link = lastUsed(links, era, refused);
      if (link === undefined) break;
      const before = new Set(links);
      const isAnswered = await ask(link);
      if (isAnswered === true) return true;
      // Refused credentials say nothing about the server, and other audiences have others.
      if (isAnswered === undefined) refused.add(link.audience);
      // A link whose session the server has forgotten is gone by now, and says nothing about the others.
      else if (links.recordOf(link) !== undefined) return hasOpened(links, era, before) ? undefined : false;
    }
    return links.isOpenIn(era) ? undefined : false;
  }

  #scopeOf({ era, audience }: Link): Scope {
    const key = `${era} ${audience}`;
    const known = this.#scopes.get(key);
    if (known !== undefined) return known;
    const nowMs = performance.now();
    for (const [other, { running, checkedMs }] of this.#scopes)
      if (running === undefined && nowMs - checkedMs > TEXTS_MS) this.#scopes.delete(other);
    const scope = { running: undefined, checkedMs: -Infinity, refusedMs: undefined, describedMs: undefined };
    this.#scopes.set(key, scope);
    return scope;
  }

  /** Simultaneous checks of an era and audience share one handshake, by whichever link comes first. */
  async #check(link: Link): Promise<boolean> {
    const scope = this.#scopeOf(link);
    scope.running ??= this.#recheck(link, scope).finally(() => {
      scope.running = undefined;
    });
    await scope.running;
    return link.isRetired;
  }

  async #recheck(link: Link, scope: Scope): Promise<void> {
    const { opener, stopping } = this.#parts;
    scope.checkedMs = performance.now();
    const outcome = await opener.recheck(link, stopping);
    if (link.isRetired || stopping.aborted) return;
    if (link.connection.mayKeepState) {
      if (outcome === 'changed' || outcome === 'described') this.#giveUpReaders(link);
      return;
    }
    const isLost = isEraLost(outcome, scope);
    if (isLost || outcome === 'changed' || (outcome === 'described' && mayFollowTexts(scope)))
      this.#giveUp(link, isLost);
  }

  /** Gives up the sessions of this era and audience that only read lists, and know the server as this one does. */
  #giveUpReaders({ era, audience, hello }: Link): void {
    const { links, events, log } = this.#parts;
    log.info({ era }, 'upstream describes itself anew');
    for (const link of links) {
      if (link.era !== era || link.audience !== audience || !isReader(link)) continue;
      if (!isSameHello(link.hello, hello) || !links.release(link)) continue;
      events.onLinkClosed(link, 'released');
      link.isRetired = true;
    }
  }

  /**
   * Gives up the links of this era and audience that know the server as this one does: others may be newer. Their server has no state
   * of clients. Requests in flight finish on them.
   *
   * @param isOtherEra true if the server does not support the era any more.
   */
  #giveUp({ era, audience, hello }: Link, isOtherEra: boolean): void {
    const { links, opener, lifecycles, events, log } = this.#parts;
    if (isOtherEra) {
      opener.forgetEras();
      lifecycles.forget(era);
    }
    log.info({ era }, 'upstream was deployed anew');
    for (const link of links) {
      if (link.era !== era || link.audience !== audience || link.connection.mayKeepState) continue;
      if (!isSameHello(link.hello, hello) || !links.release(link)) continue;
      events.onLinkClosed(link, 'forgotten');
      link.isRetired = true;
      link.subscription?.close();
      // Those who follow a task have to follow it on another link.
      link.connection.reportGone();
    }
  }
}

/** Returns whether a link is a session of a remote server, and serves no client. */
function isReader({ place, connection }: Link): boolean {
  return place.purpose === 'discovery' && connection.session !== undefined;
}

/** @param without audiences whose links are left out. */
function lastUsed(links: Iterable<Link>, era: Era, without: ReadonlySet<string>): Link | undefined {
  const asked = [...links].filter((link) => link.era === era && !without.has(link.audience));
  return asked.toSorted((a, b) => a.usedMs - b.usedMs).at(-1);
}

/** Returns whether a link of this era was opened since. @param before the links that were open then. */
function hasOpened(links: Iterable<Link>, era: Era, before: ReadonlySet<Link>): boolean {
  return [...links].some((link) => link.era === era && !before.has(link));
}

/** Resolves with whether the server answers a request over this link; undefined if its credentials are refused. Never rejects. */
async function ask({ era, connection }: Link): Promise<boolean | undefined> {
  const times = { timeoutMs: ANSWER_MS, maxMs: ANSWER_MS };
  const options = { ...times, progress: false, isBackground: true, context: undefined } as const;
  const { answer } = connection.call(era === 'modern' ? 'server/discover' : 'ping', undefined, options);
  return await answer.then(
    () => true,
    (thrown: unknown) => {
      const error = toGatewayError(thrown);
      return isAnsweredByStatus(error) || (isOfCredentials(error) ? undefined : false);
    },
  );
}

/** Returns whether the server does not support the era any more. Counts the refusals in a row. */
function isEraLost(outcome: RecheckOutcome, scope: Scope): boolean {
  if (outcome !== 'refused') {
    scope.refusedMs = undefined;
    return outcome === 'era';
  }
  scope.refusedMs ??= scope.checkedMs;
  return scope.checkedMs - scope.refusedMs >= LOST_ERA_MS;
}

/** Returns whether other texts of the server lead to other links now. */
function mayFollowTexts(scope: Scope): boolean {
  if (scope.describedMs !== undefined && scope.checkedMs - scope.describedMs < TEXTS_MS) return false;
  scope.describedMs = scope.checkedMs;
  return true;
}
