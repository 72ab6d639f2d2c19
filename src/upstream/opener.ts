import type { Logger } from 'pino';
import { GatewayError } from '../errors.ts';
import { JsonTextError, type RawObject } from '../json/json.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import { type Era, eraOf } from '../protocol/revisions.ts';
import { isNotStreamable } from './era-evidence.ts';
import { age, doubt, type Eras, erasOver, type Finding, judge, type Plan, plan, servingEra } from './eras.ts';
import { handshake, type HandshakeOutcome, modernOnly } from './handshake.ts';
import { type ServerRequest, Connection } from './rpc/connection.ts';
import { type ClientFeatures, type Link, type LinkUser, NO_FEATURES } from './link.ts';
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

/** Where a link belongs among those of its upstream. */
export interface LinkPlace {
  readonly key: string;
  readonly shared: boolean;
}

/** Which link is wanted, and the client capabilities that a legacy upstream is told of. */
export interface LinkOrder extends ClientFeatures {
  /** The era of the client that it is opened for. */
  readonly clientEra: Era;
  /** Its place depends on the era that it turns out to speak. */
  placeIn(era: Era): LinkPlace;
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

/** What is broken inside of an early message must not undo a handshake that went well. */
function deliverSafely<Heard>(tell: (heard: Heard) => void, heard: Heard): void {
  try {
    tell(heard);
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
  }
}

/** One transport, and the handshakes to try over it. */
interface Attempt {
  readonly transport: TransportOption;
  readonly eras: Plan;
}

/** Opens links to one upstream, and keeps the verdicts on the eras it speaks and the transport that reaches it. */
export class Opener<Owner, User extends LinkUser> {
  readonly #parts: OpenerParts;
  #eras: Eras;
  /** The transport that legacy links were last opened over. */
  #legacyTransport: TransportOption | undefined;
  /** The probe of the modern era that is under way. Other modern clients wait for it. */
  #probing: Promise<unknown> | undefined;

  constructor(parts: OpenerParts) {
    this.#parts = parts;
    const carried = parts.transports.flatMap(({ era }): Era[] => (era === 'either' ? ['legacy', 'modern'] : [era]));
    this.#eras = erasOver(new Set(carried));
  }

  /** What is known of the eras that the upstream speaks. */
  get eras(): Eras {
    return this.#eras;
  }

  /** The era in which clients of this era are served; undefined until a probe has shown it. */
  servingEra(client: Era): Era | undefined {
    return servingEra(this.#eras, client);
  }

  /** Whether questions come on the stream of the call they are about, in legacy links; undefined before the first one. */
  get tellsWhichCall(): boolean | undefined {
    return this.#legacyTransport?.tellsWhichCall;
  }

  /** @throws {GatewayError} with nothing left behind, also when the signal is aborted. */
  async open(order: LinkOrder, events: LinkEvents<Owner, User>, signal: AbortSignal): Promise<Link<Owner, User>> {
    this.#eras = age(this.#eras, performance.now());
    // A legacy handshake opens each link anyway; only a probe of the modern era costs something where it fails.
    if (order.clientEra === 'legacy' || this.servingEra('modern') !== undefined) {
      return await this.#open(order, events, signal);
    }
    if (this.#probing !== undefined) {
      await this.#probing;
      return await this.#open(order, events, signal);
    }
    const opening = this.#open(order, events, signal);
    this.#probing = opening;
    try {
      return await opening;
    } finally {
      this.#probing = undefined;
    }
  }

  async #open(order: LinkOrder, events: LinkEvents<Owner, User>, signal: AbortSignal): Promise<Link<Owner, User>> {
    const attempts = this.#attempts(plan(this.#eras, order.clientEra));
    const findings: Finding[] = [];
    let reason: GatewayError | undefined;
    let legacyReason: GatewayError | undefined;
    try {
      for (let attempt = attempts.shift(); attempt !== undefined && !signal.aborted; attempt = attempts.shift()) {
        const mayFallBack = attempts.length > 0;
        // Only such a server may still be one of 2024-11-05.
        if (attempt.eras[0] === 'legacy' && legacyReason !== undefined && !isNotStreamable(legacyReason)) continue;
        const outcome = await this.#openWith(attempt, mayFallBack, order, events, signal);
        findings.push(...outcome.findings);
        if (outcome.kind === 'open') {
          for (const finding of findings) this.#record(finding);
          if (outcome.link.era === 'legacy') this.#legacyTransport = attempt.transport;
          return outcome.link;
        }
        if (attempt.eras[0] === 'legacy' && attempt.transport.era === 'legacy') legacyReason = outcome.reason;
        // That it does not speak the modern era explains nothing to a client that came for the legacy one.
        if (reason === undefined || attempt.eras[0] === order.clientEra || attempts.length === 0)
          reason = outcome.reason;
        if (outcome.next !== undefined) attempts.unshift({ transport: attempt.transport, eras: outcome.next });
      }
      throw reason ?? this.#aborted(signal, undefined);
    } catch (thrown) {
      this.#eras = doubt(this.#eras, performance.now());
      throw thrown;
    }
  }

  #attempts(eras: Plan): Attempt[] {
    const { transports } = this.#parts;
    const [first] = eras;
    const isWanted = (transport: TransportOption) =>
      transport.era === 'either' ||
      (eras.includes(transport.era) &&
        (transport.era !== 'legacy' || this.#legacyTransport === undefined || transport === this.#legacyTransport));
    const wanted = transports.filter(isWanted);
    const preferred = wanted.findIndex(({ era }) => era === first);
    const ordered = preferred <= 0 ? wanted : [...wanted.splice(preferred, 1), ...wanted];
    return ordered.map((transport) => ({ transport, eras: transport.era === 'either' ? eras : [transport.era] }));
  }

  #record(finding: Finding): void {
    const { log } = this.#parts;
    const before = this.#eras;
    this.#eras = judge(before, finding, performance.now());
    if (this.#eras !== before) log.info(finding, 'era of the upstream');
  }

  async #openWith(
    attempt: Attempt,
    mayFallBack: boolean,
    order: LinkOrder,
    events: LinkEvents<Owner, User>,
    signal: AbortSignal,
  ): Promise<Exclude<HandshakeOutcome, { kind: 'open' }> | OpenedLink<Owner, User>> {
    const { upstream, callMs, log } = this.#parts;
    let link: Link<Owner, User> | undefined;
    // A server may send messages before the handshake is through; they are delivered right after it.
    const early: ((link: Link<Owner, User>) => void)[] = [];
    const deliver = (tell: (link: Link<Owner, User>) => void) => {
      if (link === undefined) early.push(tell);
      else tell(link);
    };
    const onNotification = (notification: Notification, about: Owner | undefined) =>
      deliver((opened) => events.onNotification(opened, notification, about));
    let connection: Connection<Owner>;
    try {
      connection = await Connection.open(
        upstream,
        attempt.transport.start,
        {
          onNotification,
          onServerRequest: (ask) => deliver((opened) => events.onServerRequest(opened, ask)),
          onClose: (error) => {
            if (link === undefined) return;
            link.subscription?.close();
            events.onClose(link, error);
          },
        },
        signal,
      );
    } catch (thrown) {
      if (!(thrown instanceof GatewayError) || !isNotStreamable(thrown)) throw thrown;
      return { kind: 'unsuitable', reason: thrown, findings: [], next: undefined };
    }
    const abort = () => void connection.close();
    signal.addEventListener('abort', abort, { once: true });
    try {
      const outcome = await this.#handshake(attempt, mayFallBack, connection, order);
      if (outcome.kind === 'unsuitable') {
        await connection.close();
        return outcome;
      }
      const { hello, findings } = outcome;
      if (connection.isClosed) throw new GatewayError('upstream-lost', { upstream, message: 'it ended at once' });
      const era = eraOf(hello.revision);
      const isModern = era === 'modern';
      const { clientCapabilities, capabilityKey } = isModern ? NO_FEATURES : order;
      link = {
        ...order.placeIn(era),
        clientCapabilities,
        capabilityKey,
        upstream,
        connection,
        hello,
        era,
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
      return { kind: 'open', link, findings };
    } catch (thrown) {
      await connection.close();
      throw signal.aborted ? this.#aborted(signal, thrown) : thrown;
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }

  /** @throws {GatewayError} when no other attempt can help. */
  async #handshake(
    { transport, eras }: Attempt,
    mayFallBack: boolean,
    connection: Connection<Owner>,
    { clientCapabilities }: LinkOrder,
  ): Promise<HandshakeOutcome> {
    const { upstream, clientInfo, startMs } = this.#parts;
    const parts = { upstream, connection, clientInfo, clientCapabilities, eras: this.#eras, startMs };
    if (transport.era === 'modern') return await modernOnly(parts, mayFallBack ? startMs / 2 : startMs);
    return await handshake(parts, eras);
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

interface OpenedLink<Owner, User extends LinkUser> {
  readonly kind: 'open';
  readonly link: Link<Owner, User>;
  readonly findings: readonly Finding[];
}
