import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { GatewayError } from '../errors.ts';
import { RawObject } from '../protocol/json.ts';
import type { Answer } from '../protocol/jsonrpc.ts';
import { backoffMs } from '../upstream/backoff.ts';
import type { Link } from '../upstream/link.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { atMost } from './at-most.ts';
import { lowestOf } from './log-level.ts';
import type { Exchange, Session, Subscription } from './session.ts';

type SessionLink = Link<Exchange, Session>;

/** A call does not wait longer than this for an upstream to take note of log levels and subscriptions. */
const PREPARE_MS = 1_000;

/**
 * The connections behind sessions, each told what its sessions have asked for before it is used: the log level, the
 * subscriptions. So a connection that had to be replaced goes on where the old one was.
 */
export class Links {
  readonly #upstreams: ReadonlyMap<string, Upstream<Exchange, Session>>;
  readonly #log: Logger;
  /** `<upstream> <session>` of those whose subscriptions are being brought back. */
  readonly #keeping = new Set<string>();

  constructor(upstreams: ReadonlyMap<string, Upstream<Exchange, Session>>, log: Logger) {
    this.#upstreams = upstreams;
    this.#log = log;
  }

  /** The link that serves this session now, if there is one: without waiting, for that is the usual case. */
  ready(session: Session, upstream: string): SessionLink | undefined {
    return session.linked.get(upstream);
  }

  /** @throws {GatewayError} `upstream-unavailable`, `overloaded` */
  of(session: Session, upstreamId: string): Promise<SessionLink> {
    const known = session.links.get(upstreamId);
    if (known !== undefined) return known;
    const upstream = this.#upstreams.get(upstreamId);
    if (upstream === undefined) {
      return Promise.reject(new GatewayError('internal-error', { upstream: upstreamId }));
    }
    const opening = this.#open(session, upstream);
    if (upstream.config.isolation === 'call') return opening;
    session.links.set(upstreamId, opening);
    opening.then(
      (link) => {
        if (session.links.get(upstreamId) === opening && !link.connection.isClosed) {
          session.linked.set(upstreamId, link);
        }
      },
      () => {
        if (session.links.get(upstreamId) === opening) session.links.delete(upstreamId);
      },
    );
    return opening;
  }

  async #open(session: Session, upstream: Upstream<Exchange, Session>): Promise<SessionLink> {
    const link = await upstream.link(session);
    if (session.closed.aborted) {
      upstream.leave(session);
      throw new GatewayError('session-unknown', { say: 'the session ended' });
    }
    const told = [...session.subscriptions.values()]
      .filter(({ upstream: owner }) => owner === link.upstream)
      .map(({ uri }) => this.#holdAgain(link, session, uri));
    await atMost([...told, this.#setLevel(link)], PREPARE_MS);
    return link;
  }

  /** Forgets a link that is no more. Sessions that were promised news from it get a new one. */
  gone(link: SessionLink, error: GatewayError | undefined): void {
    for (const session of link.users) {
      session.links.delete(link.upstream);
      session.linked.delete(link.upstream);
      if (error !== undefined) this.#keepPromise(session, link.upstream);
    }
  }

  /** A session has come back: whoever owes it news is reached again, though nobody calls. */
  woken(session: Session): void {
    const owing = new Set([...session.subscriptions.values()].map(({ upstream }) => upstream));
    for (const upstream of owing) this.#keepPromise(session, upstream);
  }

  /** Connects again and again until the session's subscriptions hold, or it has none any more. */
  #keepPromise(session: Session, upstream: string): void {
    const key = `${upstream} ${session.key}`;
    if (this.#keeping.has(key)) return;
    this.#keeping.add(key);
    const isOwed = () =>
      !session.closed.aborted && [...session.subscriptions.values()].some((to) => to.upstream === upstream);
    const attempts = async () => {
      for (let attempt = 1; isOwed(); attempt++) {
        try {
          await this.of(session, upstream);
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
  async levelChanged(session: Session): Promise<void> {
    const links = [...session.linked.values()];
    await atMost(
      links.map((link) => this.#setLevel(link)),
      PREPARE_MS,
    );
  }

  /** Never rejects: without it there are more or fewer log messages, and that is all. */
  async #setLevel(link: SessionLink): Promise<void> {
    if (link.hello.capabilities.raw('logging') === undefined) return;
    const level = lowestOf([...link.users].map((session) => session.logLevel));
    if (level === undefined) return;
    try {
      await this.#ask(link, 'logging/setLevel', RawObject.of({ level }));
    } catch (thrown) {
      this.#log.warn({ err: thrown, upstream: link.upstream }, 'log level not set');
    }
  }

  async subscribe(session: Session, known: string, to: Subscription): Promise<Answer> {
    const link = await this.of(session, to.upstream);
    const canSubscribe = link.hello.capabilities.object('resources')?.raw('subscribe') === 'true';
    const isolation = this.#upstreams.get(to.upstream)?.config.isolation;
    if (!canSubscribe || isolation === 'call') {
      this.#upstreams.get(to.upstream)?.release(link);
      const why = canSubscribe ? 'is connected for each call alone and keeps no subscriptions' : 'has no subscriptions';
      throw new GatewayError('method-not-found', { upstream: to.upstream, say: `upstream "${to.upstream}" ${why}` });
    }
    const answer = await this.#hold(link, session, to.uri);
    if (answer.kind === 'result') session.subscriptions.set(known, to);
    return answer;
  }

  async unsubscribe(session: Session, known: string, to: Subscription): Promise<Answer> {
    const had = session.subscriptions.delete(known);
    const isStillWanted = [...session.subscriptions.values()].some(
      ({ upstream, uri }) => upstream === to.upstream && uri === to.uri,
    );
    const link = session.linked.get(to.upstream);
    if (!had || isStillWanted || link === undefined) return { kind: 'result', result: '{}' };
    return (await this.#letGo(link, session, to.uri)) ?? { kind: 'result', result: '{}' };
  }

  /** The session is over: gives back all that was kept for it. */
  leave(session: Session): void {
    for (const link of session.linked.values()) {
      for (const [uri, holders] of link.held) {
        // A link of its own ends with the session, and its subscriptions with it.
        if (!holders.has(session) || this.#upstreams.get(link.upstream)?.config.isolation === 'session') continue;
        this.#letGo(link, session, uri).catch((thrown: unknown) => {
          this.#log.debug({ err: thrown, upstream: link.upstream }, 'not unsubscribed');
        });
      }
    }
    session.links.clear();
    session.linked.clear();
    for (const upstream of this.#upstreams.values()) upstream.leave(session);
  }

  /** Sessions that are subscribed to an upstream's resource, or to one it is a part of. */
  *subscribers(link: SessionLink, uri: string): Iterable<Session> {
    const told = new Set<Session>();
    for (const [subscribed, holders] of link.held) {
      if (!isWithin(uri, subscribed)) continue;
      for (const session of holders) {
        if (told.has(session)) continue;
        told.add(session);
        yield session;
      }
    }
  }

  /** The first who wants to hear of a resource makes us subscribe; the others join. */
  async #hold(link: SessionLink, session: Session, uri: string): Promise<Answer> {
    if (!link.held.has(uri)) {
      const answer = await this.#ask(link, 'resources/subscribe', RawObject.of({ uri }));
      if (answer.kind === 'error') return answer;
    }
    if (session.closed.aborted) {
      if (!link.held.has(uri)) await this.#ask(link, 'resources/unsubscribe', RawObject.of({ uri }));
      throw new GatewayError('session-unknown', { say: 'the session ended' });
    }
    const holders = link.held.get(uri) ?? new Set();
    link.held.set(uri, holders.add(session));
    return { kind: 'result', result: '{}' };
  }

  async #holdAgain(link: SessionLink, session: Session, uri: string): Promise<void> {
    try {
      await this.#hold(link, session, uri);
    } catch (thrown) {
      this.#log.warn({ err: thrown, upstream: link.upstream }, 'not subscribed again');
    }
  }

  /** The last one makes us unsubscribe, and gets the upstream's answer. */
  async #letGo(link: SessionLink, session: Session, uri: string): Promise<Answer | undefined> {
    const holders = link.held.get(uri);
    if (holders === undefined || !holders.delete(session) || holders.size > 0) return undefined;
    link.held.delete(uri);
    return await this.#ask(link, 'resources/unsubscribe', RawObject.of({ uri }));
  }

  #ask(link: SessionLink, method: string, params: RawObject): Promise<Answer> {
    const timeoutMs = this.#upstreams.get(link.upstream)?.config.timeouts.callMs ?? 0;
    const limits = { timeoutMs, maxMs: timeoutMs, progress: false, background: true, owner: undefined } as const;
    return link.connection.call(method, params, limits).answer;
  }
}

/** A server may report a part of what was subscribed to. */
function isWithin(uri: string, subscribed: string): boolean {
  return uri === subscribed || uri.startsWith(subscribed.endsWith('/') ? subscribed : `${subscribed}/`);
}
