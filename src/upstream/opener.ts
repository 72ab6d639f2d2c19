import type { Logger } from 'pino';
import { GatewayError } from '../errors.ts';
import { JsonTextError, RawObject } from '../json/json.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import { MODERN } from '../protocol/revisions.ts';
import { type Ask, Connection } from './connection.ts';
import { discover } from './discover.ts';
import { type Hello, shakeHands } from './handshake.ts';
import { HttpStatusError } from './http-status-error.ts';
import type { Features, Link, LinkUser } from './link.ts';
import { Listening } from './listening.ts';
import type { Way } from './transport.ts';

/** What a link tells from its first moment on, in the order of arrival. */
export interface LinkEvents<Owner, User extends LinkUser> {
  opened(link: Link<Owner, User>): void;
  notification(link: Link<Owner, User>, notification: Notification, about: Owner | undefined): void;
  ask(link: Link<Owner, User>, ask: Ask<Owner>): void;
  /** It ended, whoever ended it. */
  closed(link: Link<Owner, User>, error: GatewayError): void;
}

/** Which link is wanted, and what the upstream is told of its client. */
export interface LinkOrder extends Features {
  readonly key: string;
  readonly shared: boolean;
}

export interface OpenerParts {
  readonly upstream: string;
  /** The preferred first. A server that cannot be spoken to the first way is tried the next. */
  readonly ways: readonly Way[];
  readonly clientInfo: RawObject;
  readonly startMs: number;
  readonly callMs: number;
  readonly log: Logger;
}

/** A server that keeps silent when it is asked in the modern way is spoken to in the older one after this long. */
const SILENCE_MS = 2_000;

/** A server may be replaced by a newer one: so long the verdict holds that it is of the legacy era. */
const LEGACY_MS = 3_600_000;

/** And so long, where the server was in trouble when it was asked. */
const DOUBTFUL_MS = 60_000;

/** After a failure it is judged afresh, though not more often than this: a program that ends when asked costs a start. */
const REJUDGE_MS = 60_000;

/** What a connection serves that belongs to nobody: all there need be in the modern era. */
export const SHARED: LinkOrder = { key: 'shared', shared: true, offered: RawObject.EMPTY, profile: '' };

/** HTTP statuses by which a server of 2024-11-05 answers a POST it does not expect. */
const NOT_STREAMABLE = new Set([400, 404, 405]);

function isNotStreamable(thrown: unknown): boolean {
  return (
    thrown instanceof GatewayError && thrown.cause instanceof HttpStatusError && NOT_STREAMABLE.has(thrown.cause.status)
  );
}

/** What is broken inside of an early message must not undo a handshake that went well. */
function tellSafely<Heard>(tell: (heard: Heard) => void, heard: Heard): void {
  try {
    tell(heard);
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
  }
}

/** This way will not do, for the reason given; `again` when the same one may, in the older manner. */
class UnsuitedError extends Error {
  override readonly name = 'UnsuitedError';
  readonly reason: GatewayError;
  readonly again: boolean;

  constructor(reason: GatewayError, again: boolean) {
    super(reason.message);
    this.reason = reason;
    this.again = again;
  }
}

/** Makes links to one upstream, and remembers in which way it can be reached and which era it speaks. */
export class Opener<Owner, User extends LinkUser> {
  readonly #parts: OpenerParts;
  #preferred = 0;
  #era: 'modern' | 'legacy' | undefined;
  /** Monotonic ms. */
  #judgedMs = 0;
  #legacyMs = LEGACY_MS;

  constructor(parts: OpenerParts) {
    this.#parts = parts;
  }

  /** Whether all clients can share one connection, as far as is known. */
  get isModern(): boolean {
    return this.#era === 'modern';
  }

  /** @throws {GatewayError} with nothing left behind, also when the signal is aborted. */
  async open(order: LinkOrder, events: LinkEvents<Owner, User>, signal: AbortSignal): Promise<Link<Owner, User>> {
    if (this.#era === 'legacy') this.#forget(this.#legacyMs);
    const { ways } = this.#parts;
    for (let i = this.#preferred; ;) {
      const way = ways[i];
      if (way === undefined) throw new RangeError('an upstream without a transport');
      try {
        const link = await this.#openBy(way, order, events, signal);
        this.#preferred = i;
        return link;
      } catch (thrown) {
        if (thrown instanceof UnsuitedError) this.#legacyMs = isInTrouble(thrown.reason) ? DOUBTFUL_MS : LEGACY_MS;
        if (thrown instanceof UnsuitedError && thrown.again && !signal.aborted) {
          this.#judged('legacy');
          continue;
        }
        if ((thrown instanceof UnsuitedError || isNotStreamable(thrown)) && i + 1 < ways.length) {
          i++;
          continue;
        }
        // A server may have been upgraded since the verdict; a later start judges it afresh.
        this.#forget(REJUDGE_MS);
        throw thrown instanceof UnsuitedError ? thrown.reason : thrown;
      }
    }
  }

  #forget(ageMs: number): void {
    if (performance.now() - this.#judgedMs < ageMs) return;
    this.#preferred = 0;
    this.#era = undefined;
  }

  #judged(era: 'modern' | 'legacy'): void {
    if (this.#era === era) return;
    this.#era = era;
    this.#judgedMs = performance.now();
  }

  async #openBy(
    way: Way,
    order: LinkOrder,
    events: LinkEvents<Owner, User>,
    signal: AbortSignal,
  ): Promise<Link<Owner, User>> {
    const { upstream, callMs, log } = this.#parts;
    let link: Link<Owner, User> | undefined;
    // A server may speak before the handshake is through; what it says then is heard right after.
    const early: ((link: Link<Owner, User>) => void)[] = [];
    const hear = (tell: (link: Link<Owner, User>) => void) => {
      if (link === undefined) early.push(tell);
      else tell(link);
    };
    const notified = (notification: Notification, about: Owner | undefined) =>
      hear((heard) => events.notification(heard, notification, about));
    const connection: Connection<Owner> = await Connection.open(
      upstream,
      way.start,
      {
        notification: notified,
        ask: (ask) => hear((heard) => events.ask(heard, ask)),
        closed: (error) => {
          if (link === undefined) return;
          link.listening?.close();
          events.closed(link, error);
        },
      },
      signal,
    );
    const abort = () => void connection.close();
    signal.addEventListener('abort', abort, { once: true });
    try {
      const hello = await this.#greet(way, connection, order);
      if (connection.isClosed) throw new GatewayError('upstream-lost', { upstream, say: 'it ended at once' });
      const isModern = hello.revision === MODERN;
      link = {
        ...(isModern ? SHARED : order),
        upstream,
        connection,
        hello,
        listening: isModern ? new Listening({ upstream, connection, hello, callMs, log, notified }) : undefined,
        users: new Set(),
        held: new Map(),
        tasks: new Map(),
        usedMs: performance.now(),
        served: false,
      };
      events.opened(link);
      for (const tell of early) tellSafely(tell, link);
      return link;
    } catch (thrown) {
      await connection.close();
      throw signal.aborted ? this.#aborted(signal, thrown) : thrown;
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }

  /** @throws {UnsuitedError} when another way may do. */
  async #greet({ speaks }: Way, connection: Connection<Owner>, order: LinkOrder): Promise<Hello> {
    const { upstream, clientInfo, startMs } = this.#parts;
    if (speaks !== 'legacy' && this.#era !== 'legacy') {
      const patienceMs = speaks === 'either' ? Math.min(SILENCE_MS, startMs / 2) : startMs / 2;
      const verdict = await discover(upstream, connection, clientInfo, patienceMs);
      if (verdict.kind === 'modern') {
        this.#judged('modern');
        return verdict.hello;
      }
      // A modern server is not spoken to in older words; and whoever lacks the right credentials lacks them in any.
      if (verdict.kind === 'unknown' && (verdict.isModern || isRefusedOutright(verdict.error))) throw verdict.error;
      const say = `upstream "${upstream}" does not speak revision ${MODERN}, which the config asks for`;
      const reason =
        verdict.kind === 'unknown' ? verdict.error : new GatewayError('upstream-unavailable', { upstream, say });
      if (speaks === 'modern' || connection.isClosed) throw new UnsuitedError(reason, speaks === 'either');
      connection.speakModern(undefined);
    }
    const hello = await shakeHands(upstream, connection, order.offered, clientInfo, startMs);
    this.#judged('legacy');
    return hello;
  }

  /** Closing what hangs ends every wait with a closed connection; why it was closed is the better answer. */
  #aborted(signal: AbortSignal, cause: unknown): GatewayError {
    const { upstream, startMs } = this.#parts;
    const isLate = signal.reason instanceof DOMException && signal.reason.name === 'TimeoutError';
    const say = isLate
      ? `upstream "${upstream}" did not answer initialize within ${startMs / 1000} s`
      : 'it was stopped';
    return new GatewayError('upstream-unavailable', { upstream, say }, cause);
  }
}

/** Such a status says how a server is, and nothing of what it speaks. */
function isInTrouble({ cause }: GatewayError): boolean {
  return cause instanceof HttpStatusError && (cause.status === 408 || cause.status === 429 || cause.status >= 500);
}

function isRefusedOutright({ cause }: GatewayError): boolean {
  return cause instanceof HttpStatusError && (cause.status === 401 || cause.status === 403);
}
