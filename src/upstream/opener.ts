import { GatewayError } from '../errors.ts';
import { JsonTextError, type RawObject } from '../protocol/json.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import { type Ask, Connection } from './connection.ts';
import { shakeHands } from './handshake.ts';
import { HttpStatusError } from './http-status-error.ts';
import type { Features, Link, LinkUser } from './link.ts';
import type { StartTransport } from './transport.ts';

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
  /** Ways to reach it, the preferred first. A server that does not speak the first is tried with the next. */
  readonly transports: readonly StartTransport[];
  readonly clientInfo: RawObject;
  readonly startMs: number;
}

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

/** Makes links to one upstream, and remembers by which of its transports it can be reached. */
export class Opener<Owner, User extends LinkUser> {
  readonly #parts: OpenerParts;
  #preferred = 0;

  constructor(parts: OpenerParts) {
    this.#parts = parts;
  }

  /** @throws {GatewayError} with nothing left behind, also when the signal is aborted. */
  async open(order: LinkOrder, events: LinkEvents<Owner, User>, signal: AbortSignal): Promise<Link<Owner, User>> {
    const { transports } = this.#parts;
    for (let i = this.#preferred; ; i++) {
      const start = transports[i];
      if (start === undefined) throw new RangeError('an upstream without a transport');
      try {
        const link = await this.#openBy(start, order, events, signal);
        this.#preferred = i;
        return link;
      } catch (thrown) {
        if (isNotStreamable(thrown) && i + 1 < transports.length) continue;
        // A server may have been upgraded since the verdict; the next start judges it afresh.
        this.#preferred = 0;
        throw thrown;
      }
    }
  }

  async #openBy(
    start: StartTransport,
    order: LinkOrder,
    events: LinkEvents<Owner, User>,
    signal: AbortSignal,
  ): Promise<Link<Owner, User>> {
    const { upstream, clientInfo, startMs } = this.#parts;
    let link: Link<Owner, User> | undefined;
    // A server may speak before the handshake is through; what it says then is heard right after.
    const early: ((link: Link<Owner, User>) => void)[] = [];
    const hear = (tell: (link: Link<Owner, User>) => void) => {
      if (link === undefined) early.push(tell);
      else tell(link);
    };
    const connection: Connection<Owner> = await Connection.open(
      upstream,
      start,
      {
        notification: (notification, about) => hear((heard) => events.notification(heard, notification, about)),
        ask: (ask) => hear((heard) => events.ask(heard, ask)),
        closed: (error) => {
          if (link !== undefined) events.closed(link, error);
        },
      },
      signal,
    );
    const abort = () => void connection.close();
    signal.addEventListener('abort', abort, { once: true });
    try {
      const hello = await shakeHands(upstream, connection, order.offered, clientInfo, startMs);
      if (connection.isClosed) throw new GatewayError('upstream-lost', { upstream, say: 'it ended at once' });
      const usedMs = performance.now();
      link = { ...order, upstream, connection, hello, users: new Set(), held: new Map(), usedMs, served: false };
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
