import type { Logger } from 'pino';
import { GatewayError } from '../errors.ts';
import { JsonTextError, RawObject } from '../json/json.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import { MODERN } from '../protocol/revisions.ts';
import { type ServerRequest, Connection } from './rpc/connection.ts';
import { discover } from './discover.ts';
import { type ServerHello, initialize } from './initialize.ts';
import { HttpStatusError } from './rpc/http-status-error.ts';
import type { ClientFeatures, Link, LinkUser } from './link.ts';
import { UpstreamSubscription } from './upstream-subscription.ts';
import type { TransportOption } from './rpc/transport.ts';

/** What a link tells from its first moment on, in the order of arrival. */
export interface LinkEvents<Owner, User extends LinkUser> {
  onOpen(link: Link<Owner, User>): void;
  onNotification(link: Link<Owner, User>, notification: Notification, about: Owner | undefined): void;
  onServerRequest(link: Link<Owner, User>, ask: ServerRequest<Owner>): void;
  /** It ended, whoever ended it. */
  onClose(link: Link<Owner, User>, error: GatewayError): void;
}

/** Which link is wanted, and what the upstream is told of its client. */
export interface LinkOrder extends ClientFeatures {
  readonly key: string;
  readonly shared: boolean;
}

export interface OpenerParts {
  readonly upstream: string;
  /** The preferred first. A server that cannot be spoken to the first way is tried the next. */
  readonly transports: readonly TransportOption[];
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
export const SHARED: LinkOrder = {
  key: 'shared',
  shared: true,
  clientCapabilities: RawObject.EMPTY,
  capabilityKey: '',
};

/** HTTP statuses by which a server of 2024-11-05 answers a POST it does not expect. */
const NOT_STREAMABLE = new Set([400, 404, 405]);

function isNotStreamable(thrown: unknown): boolean {
  return (
    thrown instanceof GatewayError && thrown.cause instanceof HttpStatusError && NOT_STREAMABLE.has(thrown.cause.status)
  );
}

/** What is broken inside of an early message must not undo a handshake that went well. */
function deliverSafely<Heard>(tell: (heard: Heard) => void, heard: Heard): void {
  try {
    tell(heard);
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
  }
}

/** This way will not do, for the reason given; `again` when the same one may, in the older manner. */
class UnsuitableTransportError extends Error {
  override readonly name = 'UnsuitedError';
  readonly reason: GatewayError;
  readonly canRetryLegacy: boolean;

  constructor(reason: GatewayError, again: boolean) {
    super(reason.message);
    this.reason = reason;
    this.canRetryLegacy = again;
  }
}

/** Makes links to one upstream, and remembers in which way it can be reached and which era it speaks. */
export class Opener<Owner, User extends LinkUser> {
  readonly #parts: OpenerParts;
  #preferred = 0;
  #era: 'modern' | 'legacy' | undefined;
  /** Monotonic ms. */
  #eraSinceMs = 0;
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
    if (this.#era === 'legacy') this.#expireEra(this.#legacyMs);
    const { transports } = this.#parts;
    for (let i = this.#preferred; ;) {
      const transport = transports[i];
      if (transport === undefined) throw new RangeError('an upstream without a transport');
      try {
        const link = await this.#openWith(transport, order, events, signal);
        this.#preferred = i;
        return link;
      } catch (thrown) {
        if (thrown instanceof UnsuitableTransportError)
          this.#legacyMs = isInTrouble(thrown.reason) ? DOUBTFUL_MS : LEGACY_MS;
        if (thrown instanceof UnsuitableTransportError && thrown.canRetryLegacy && !signal.aborted) {
          this.#setEra('legacy');
          continue;
        }
        if ((thrown instanceof UnsuitableTransportError || isNotStreamable(thrown)) && i + 1 < transports.length) {
          i++;
          continue;
        }
        // A server may have been upgraded since the verdict; a later start judges it afresh.
        this.#expireEra(REJUDGE_MS);
        throw thrown instanceof UnsuitableTransportError ? thrown.reason : thrown;
      }
    }
  }

  #expireEra(ageMs: number): void {
    if (performance.now() - this.#eraSinceMs < ageMs) return;
    this.#preferred = 0;
    this.#era = undefined;
  }

  #setEra(era: 'modern' | 'legacy'): void {
    if (this.#era === era) return;
    this.#era = era;
    this.#eraSinceMs = performance.now();
  }

  async #openWith(
    transport: TransportOption,
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
    const onNotification = (notification: Notification, about: Owner | undefined) =>
      hear((heard) => events.onNotification(heard, notification, about));
    const connection: Connection<Owner> = await Connection.open(
      upstream,
      transport.start,
      {
        onNotification,
        onServerRequest: (ask) => hear((heard) => events.onServerRequest(heard, ask)),
        onClose: (error) => {
          if (link === undefined) return;
          link.subscription?.close();
          events.onClose(link, error);
        },
      },
      signal,
    );
    const abort = () => void connection.close();
    signal.addEventListener('abort', abort, { once: true });
    try {
      const hello = await this.#handshake(transport, connection, order);
      if (connection.isClosed) throw new GatewayError('upstream-lost', { upstream, message: 'it ended at once' });
      const isModern = hello.revision === MODERN;
      link = {
        ...(isModern ? SHARED : order),
        upstream,
        connection,
        hello,
        era: isModern ? 'modern' : 'legacy',
        subscription: isModern
          ? new UpstreamSubscription({ upstream, connection, hello, callMs, log, onNotification })
          : undefined,
        users: new Set(),
        subscribers: new Map(),
        tasks: new Map(),
        usedMs: performance.now(),
        hasAnswered: false,
      };
      events.onOpen(link);
      for (const tell of early) deliverSafely(tell, link);
      return link;
    } catch (thrown) {
      await connection.close();
      throw signal.aborted ? this.#aborted(signal, thrown) : thrown;
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }

  /** @throws {UnsuitableTransportError} when another way may do. */
  async #handshake({ era }: TransportOption, connection: Connection<Owner>, order: LinkOrder): Promise<ServerHello> {
    const { upstream, clientInfo, startMs } = this.#parts;
    if (era !== 'legacy' && this.#era !== 'legacy') {
      const patienceMs = era === 'either' ? Math.min(SILENCE_MS, startMs / 2) : startMs / 2;
      const verdict = await discover(upstream, connection, clientInfo, patienceMs);
      if (verdict.kind === 'modern') {
        this.#setEra('modern');
        return verdict.hello;
      }
      // A modern server is not spoken to in older words; and whoever lacks the right credentials lacks them in any.
      if (verdict.kind === 'unknown' && (verdict.isModern || isRefusedOutright(verdict.error))) throw verdict.error;
      const message = `upstream "${upstream}" does not speak revision ${MODERN}, which the config asks for`;
      const reason =
        verdict.kind === 'unknown' ? verdict.error : new GatewayError('upstream-unavailable', { upstream, message });
      if (era === 'modern' || connection.isClosed) throw new UnsuitableTransportError(reason, era === 'either');
      connection.speakModern(undefined);
    }
    const hello = await initialize(upstream, connection, order.clientCapabilities, clientInfo, startMs);
    this.#setEra('legacy');
    return hello;
  }

  /** Closing what hangs ends every wait with a closed connection; why it was closed is the better answer. */
  #aborted(signal: AbortSignal, cause: unknown): GatewayError {
    const { upstream, startMs } = this.#parts;
    const isLate = signal.reason instanceof DOMException && signal.reason.name === 'TimeoutError';
    const message = isLate
      ? `upstream "${upstream}" did not answer initialize within ${startMs / 1000} s`
      : 'it was stopped';
    return new GatewayError('upstream-unavailable', { upstream, message }, cause);
  }
}

/** Such a status says how a server is, and nothing of what it speaks. */
function isInTrouble({ cause }: GatewayError): boolean {
  return cause instanceof HttpStatusError && (cause.status === 408 || cause.status === 429 || cause.status >= 500);
}

function isRefusedOutright({ cause }: GatewayError): boolean {
  return cause instanceof HttpStatusError && (cause.status === 401 || cause.status === 403);
}
