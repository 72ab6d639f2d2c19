import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { GatewayError, toAnswer } from '../errors.ts';
import { RawObject } from '../json/json.ts';
import { type Answer, DONE } from '../protocol/jsonrpc.ts';
import { detach } from '../json/memo.ts';
import type { Severity } from '../protocol/severity.ts';
import { backoffMs } from '../upstream/backoff.ts';
import type { Link } from '../upstream/link.ts';
import type { Listening } from '../upstream/listening.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { atMost } from './at-most.ts';
import { isWanted, lowestOf } from './log-level.ts';
import type { Exchange } from './exchange.ts';
import type { Party, Subscription } from './party.ts';

type PartyLink = Link<Exchange, Party>;

/** A call does not wait longer than this for an upstream to take note of log levels and subscriptions. */
const PREPARE_MS = 1_000;

/**
 * The connections behind sessions, each told what its sessions have asked for before it is used: the log level, the
 * subscriptions. So a connection that had to be replaced goes on where the old one was.
 */
export class Links {
  readonly #upstreams: ReadonlyMap<string, Upstream<Exchange, Party>>;
  readonly #log: Logger;
  /** `<upstream> <party>` of those whose subscriptions are being brought back. */
  readonly #keeping = new Set<string>();
  /** By URI, until the upstream has answered: two who subscribe at once are one subscription. */
  readonly #subscribing = new WeakMap<PartyLink, Map<string, Promise<Answer>>>();

  constructor(upstreams: ReadonlyMap<string, Upstream<Exchange, Party>>, log: Logger) {
    this.#upstreams = upstreams;
    this.#log = log;
  }

  /** The link that serves this party now, if there is one: without waiting, for that is the usual case. */
  ready(party: Party, upstream: string): PartyLink | undefined {
    return party.linked.get(upstream);
  }

  /** @throws {GatewayError} `upstream-unavailable`, `overloaded` */
  of(party: Party, upstreamId: string): Promise<PartyLink> {
    const known = party.links.get(upstreamId);
    if (known !== undefined) return known;
    const upstream = this.#upstreams.get(upstreamId);
    if (upstream === undefined) {
      return Promise.reject(new GatewayError('internal-error', { upstream: upstreamId }));
    }
    const opening = this.#open(party, upstream);
    if (upstream.config.isolation === 'call') return opening;
    party.links.set(upstreamId, opening);
    opening.then(
      (link) => {
        if (party.links.get(upstreamId) === opening && !link.connection.isClosed) {
          party.linked.set(upstreamId, link);
        }
      },
      () => {
        if (party.links.get(upstreamId) === opening) party.links.delete(upstreamId);
      },
    );
    return opening;
  }

  async #open(party: Party, upstream: Upstream<Exchange, Party>): Promise<PartyLink> {
    const link = await upstream.link(party);
    if (party.closed.aborted) {
      upstream.leave(party);
      throw new GatewayError('session-unknown', { say: 'the session ended' });
    }
    const told = [...party.subscriptions]
      .filter(([, to]) => to.upstream === link.upstream)
      .map(([known, { uri }]) => this.#holdAgain(link, party, known, uri));
    await atMost([...told, this.#setLevel(link)], PREPARE_MS);
    return link;
  }

  /** Forgets a link that is no more. Sessions that were promised news from it get a new one. */
  gone(link: PartyLink, error: GatewayError | undefined): void {
    for (const party of link.users) {
      party.links.delete(link.upstream);
      party.linked.delete(link.upstream);
      if (error !== undefined) this.#keepPromise(party, link.upstream);
    }
  }

  /** A party has come back: whoever owes it news is reached again, though nobody calls. */
  woken(party: Party): void {
    const owing = new Set([...party.subscriptions.values()].map(({ upstream }) => upstream));
    for (const upstream of owing) this.#keepPromise(party, upstream);
  }

  /** Connects again and again until the session's subscriptions hold, or it has none any more. */
  #keepPromise(party: Party, upstream: string): void {
    const key = `${upstream} ${party.key}`;
    if (this.#keeping.has(key)) return;
    this.#keeping.add(key);
    const isOwed = () =>
      !party.closed.aborted && [...party.subscriptions.values()].some((to) => to.upstream === upstream);
    const attempts = async () => {
      for (let attempt = 1; isOwed(); attempt++) {
        try {
          await this.of(party, upstream);
          return;
        } catch (thrown) {
          this.#log.debug({ err: thrown, upstream }, 'subscriptions not back yet');
          await sleep(backoffMs(attempt, Math.random()), undefined, { ref: false });
        }
      }
    };
    void attempts().finally(() => this.#keeping.delete(key));
  }

  /** Sends the lowest level that anybody on each connection wants. */
  async levelChanged(party: Party): Promise<void> {
    const links = [...party.linked.values()];
    await atMost(
      links.map((link) => this.#setLevel(link)),
      PREPARE_MS,
    );
  }

  /** A request wants to hear of this level and above; its connection may have been asked for less. */
  async wantsLog(party: Party, link: PartyLink, level: Severity): Promise<void> {
    if (party.logLevel !== undefined && isWanted(level, party.logLevel)) return;
    party.logLevel = level;
    await atMost([this.#setLevel(link)], PREPARE_MS);
  }

  /** Never rejects: without it there are more or fewer log messages, and that is all. */
  async #setLevel(link: PartyLink): Promise<void> {
    // In the modern era each request says it for itself.
    if (link.hello.capabilities.raw('logging') === undefined || link.listening !== undefined) return;
    const level = lowestOf([...link.users].map((party) => party.logLevel));
    if (level === undefined) return;
    try {
      await this.#ask(link, 'logging/setLevel', RawObject.of({ level }));
    } catch (thrown) {
      this.#log.warn({ err: thrown, upstream: link.upstream }, 'log level not set');
    }
  }

  async subscribe(party: Party, known: string, to: Subscription): Promise<Answer> {
    const link = await this.of(party, to.upstream);
    const canSubscribe = link.hello.capabilities.object('resources')?.raw('subscribe') === 'true';
    const isolation = this.#upstreams.get(to.upstream)?.config.isolation;
    if (!canSubscribe || (isolation === 'call' && link.listening === undefined)) {
      this.#upstreams.get(to.upstream)?.release(link);
      const why = canSubscribe ? 'is connected for each call alone and keeps no subscriptions' : 'has no subscriptions';
      throw new GatewayError('method-not-found', { upstream: to.upstream, say: `upstream "${to.upstream}" ${why}` });
    }
    const answer = await this.#hold(link, party, to.uri);
    if (answer.kind === 'result')
      party.subscriptions.set(detach(known), { upstream: to.upstream, uri: detach(to.uri) });
    return answer;
  }

  async unsubscribe(party: Party, known: string, to: Subscription): Promise<Answer> {
    const had = party.subscriptions.delete(known);
    const isStillWanted = [...party.subscriptions.values()].some(
      ({ upstream, uri }) => upstream === to.upstream && uri === to.uri,
    );
    const link = party.linked.get(to.upstream);
    if (!had || isStillWanted || link === undefined) return DONE;
    return (await this.#letGo(link, party, to.uri)) ?? DONE;
  }

  /** The party is over: gives back all that was kept for it. */
  leave(party: Party): void {
    for (const link of party.linked.values()) {
      for (const [uri, holders] of link.held) {
        // A link of its own ends with the party, and its subscriptions with it.
        if (!holders.has(party) || this.#upstreams.get(link.upstream)?.config.isolation === 'session') continue;
        this.#letGo(link, party, uri).catch((thrown: unknown) => {
          this.#log.debug({ err: thrown, upstream: link.upstream }, 'not unsubscribed');
        });
      }
    }
    party.links.clear();
    party.linked.clear();
    for (const upstream of this.#upstreams.values()) upstream.leave(party);
  }

  /** Sessions that are subscribed to an upstream's resource, or to one it is a part of. */
  *subscribers(link: PartyLink, uri: string): Iterable<Party> {
    const told = new Set<Party>();
    for (const [subscribed, holders] of link.held) {
      if (!isWithin(uri, subscribed)) continue;
      for (const party of holders) {
        if (told.has(party)) continue;
        told.add(party);
        yield party;
      }
    }
  }

  /** The first who wants to hear of a resource makes us subscribe; the others join. */
  async #hold(link: PartyLink, party: Party, uri: string): Promise<Answer> {
    while (!link.held.has(uri)) {
      const joined = this.#subscribing.get(link)?.get(uri);
      const answer = await (joined ?? this.#subscribe(link, uri));
      if (answer.kind === 'error') return answer;
      // Whoever began it may have been the only one, and gone meanwhile.
      if (joined === undefined) break;
    }
    if (party.closed.aborted) {
      if (!link.held.has(uri)) await this.#tune(link, 'resources/unsubscribe', uri);
      throw new GatewayError('session-unknown', { say: 'the session ended' });
    }
    const holders = link.held.get(uri) ?? new Set();
    link.held.set(uri, holders.add(party));
    return DONE;
  }

  /** The very promise of the answer: see {@link #tune}. */
  #subscribe(link: PartyLink, uri: string): Promise<Answer> {
    const underWay = this.#subscribing.get(link) ?? new Map<string, Promise<Answer>>();
    this.#subscribing.set(link, underWay);
    const subscribing = this.#tune(link, 'resources/subscribe', uri);
    underWay.set(uri, subscribing);
    const over = () => underWay.delete(uri);
    subscribing.then(over, over);
    return subscribing;
  }

  /** Nobody knows what has changed since the connection before this one. */
  async #holdAgain(link: PartyLink, party: Party, known: string, uri: string): Promise<void> {
    try {
      const answer = await this.#hold(link, party, uri);
      if (answer.kind === 'result') party.announce('notifications/resources/updated', RawObject.of({ uri: known }));
    } catch (thrown) {
      this.#log.warn({ err: thrown, upstream: link.upstream }, 'not subscribed again');
    }
  }

  /** The last one makes us unsubscribe, and gets the upstream's answer. */
  async #letGo(link: PartyLink, party: Party, uri: string): Promise<Answer | undefined> {
    const holders = link.held.get(uri);
    if (holders === undefined || !holders.delete(party) || holders.size > 0) return undefined;
    link.held.delete(uri);
    return await this.#tune(link, 'resources/unsubscribe', uri);
  }

  /** Begins or ends to hear of a resource, in the words of the link's era. */
  #tune(link: PartyLink, method: 'resources/subscribe' | 'resources/unsubscribe', uri: string): Promise<Answer> {
    // Not a tick later than the answer: the first update may come right behind it.
    if (link.listening === undefined) return this.#ask(link, method, RawObject.of({ uri }));
    if (method === 'resources/subscribe') return listenTo(link.listening, link.upstream, uri);
    link.listening.remove(uri);
    return Promise.resolve(DONE);
  }

  #ask(link: PartyLink, method: string, params: RawObject): Promise<Answer> {
    const timeoutMs = this.#upstreams.get(link.upstream)?.config.timeouts.callMs ?? 0;
    link.usedMs = performance.now();
    const limits = { timeoutMs, maxMs: timeoutMs, progress: false, owner: undefined } as const;
    return link.connection.call(method, params, limits).answer;
  }
}

async function listenTo(listening: Listening, upstream: string, uri: string): Promise<Answer> {
  if (await listening.add(uri)) return DONE;
  return toAnswer(new GatewayError('unknown-resource', { upstream, say: uri, data: { uri } }));
}

/** A server may report a part of what was subscribed to. */
export function isWithin(uri: string, subscribed: string): boolean {
  return uri === subscribed || uri.startsWith(subscribed.endsWith('/') ? subscribed : `${subscribed}/`);
}
