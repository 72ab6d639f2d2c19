import { COMMAND } from '../../command-name.ts';
import { randomUUID } from 'node:crypto';
import { addAbortListener } from 'node:events';
import type { Logger } from 'pino';
import { GatewayError, upstreamError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import { KeptMap } from '../../json/kept-text.ts';
import type { LimitName } from '../../limits.ts';
import { errorAnswer, type Notification } from '../../protocol/jsonrpc.ts';
import { type Era, eraOf, LATEST_LEGACY, type LegacyRevision } from '../../protocol/revisions.ts';
import type { Span } from '../../telemetry/tracing/tracing.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { EarlyMessages } from './early-messages.ts';
import { hasNoStream, isNotStreamable, isRefusedByStatus, isUnauthorized, mayBeDown } from './era-evidence.ts';
import {
  dropAll,
  dropExpired,
  dropAfterFailure,
  type Eras,
  erasOver,
  type Finding,
  recordFinding,
  type HandshakePlan,
  NO_MS,
  planHandshakes,
  servingEra,
} from './eras.ts';
import { handshake, type HandshakeOutcome, modernOnly } from './handshake.ts';
import { type ServerRequest, Connection } from '../rpc/connection.ts';
import { type Attachment, reattach } from './attachment.ts';
import { Proposals } from './proposals.ts';
import { isHandshakeRefusal, recheck, type RecheckOutcome } from './recheck.ts';
import { type ClientFeatures, type Link, type LinkPlace, type LinkUser, NO_FEATURES } from './link.ts';
import { UpstreamSubscription } from './upstream-subscription.ts';
import type { TransportOption } from '../rpc/transport.ts';
import { isOutOfTime, START_SETTING, StartTimeoutError } from './start-timeout.ts';

/** Receives the events of a link, in the order of arrival. */
export interface LinkEvents<Context, User extends LinkUser> {
  /** The handshake has succeeded. Called before all other events. */
  onOpen(link: Link<Context, User>): void;
  onNotification(link: Link<Context, User>, notification: Notification, about: Context | undefined): void;
  onServerRequest(link: Link<Context, User>, request: ServerRequest<Context>): void;
  /** Notifications may have been lost while there was no stream for them. */
  onGap(link: Link<Context, User>): void;
  /** A request was refused for the credentials of the gateway. */
  onUnauthorized(link: Link<Context, User>, error: GatewayError): void;
  /** A request was refused in a way that may be about the handshake: the server may have been deployed anew. */
  onRefused(link: Link<Context, User>): void;
  /** A request has failed in a way that may be about all: a remote server may be down. */
  onMaybeDown(link: Link<Context, User>): void;
  /** The connection has closed, on either side. */
  onClose(link: Link<Context, User>, error: GatewayError): void;
}

/** A request for a link, with the client capabilities that a legacy upstream gets in `initialize`. */
export interface LinkRequest extends ClientFeatures {
  readonly clientEra: Era;
  /** The audience of the link; see `audienceOf` in `connection-key.ts`. */
  readonly audience: string;
  /** A session of the upstream to continue. If that is not possible, another one is opened. */
  readonly attachment?: Attachment | undefined;
  /** Returns the place of the link, which depends on the era of the connection. */
  readonly placeIn: (era: Era) => LinkPlace;
}

/** The purpose of a link that is needed: the client or the listing that it is for. */
export interface LinkNeed extends LinkRequest {
  /** The principal that a free connection is waited for; the audience of a listing. */
  readonly principal: string;
  /** The span that a start of the upstream is a part of. */
  readonly span?: Span | undefined;
}

export interface OpenerParts {
  readonly upstream: string;
  /** In order of preference. If the handshake fails over one of them, the next is tried. */
  readonly transports: readonly TransportOption[];
  readonly clientInfo: RawObject;
  /** Read for each link, since a reload of the config may change them. */
  readonly timeouts: () => { readonly startMs: number; readonly callMs: number };
  readonly log: Logger;
  /** Called when the upstream sends too much before the end of a handshake. */
  readonly onLimit: (limit: LimitName) => void;
}

/** A transport, and the eras whose handshakes to try over it. */
interface Attempt {
  readonly transport: TransportOption;
  readonly eras: HandshakePlan;
  /** The session to continue, instead of a handshake. */
  readonly attachment?: Attachment;
}

/** What all attempts of one start have. */
interface Start<Context, User extends LinkUser> {
  readonly request: LinkRequest;
  readonly events: LinkEvents<Context, User>;
  readonly signal: AbortSignal;
  readonly proposals: Proposals;
}

/** Opens links to one upstream. Keeps its known support of the eras, and the transport that has worked for legacy links. */
export class Opener<Context = unknown, User extends LinkUser = LinkUser> {
  readonly #parts: OpenerParts;
  #eras: Eras;
  #legacyTransport: TransportOption | undefined;
  /** The revision that the upstream took after it refused others; undefined without such a refusal in the last hour. */
  #wanted: { readonly revision: LegacyRevision; readonly sinceMs: number } | undefined;
  /** True if the last start has failed: the server may have moved to another transport. */
  #hasFailed = false;
  /** The running probe of the modern era. Other modern clients wait for it. */
  #probing: { readonly audience: string; readonly opening: Promise<unknown> } | undefined;

  constructor(parts: OpenerParts) {
    this.#parts = parts;
    const carried = parts.transports.flatMap(({ era }): Era[] => (era === 'either' ? ['legacy', 'modern'] : [era]));
    this.#eras = erasOver(new Set(carried));
  }

  get eras(): Eras {
    return this.#eras;
  }

  servingEra(client: Era): Era | undefined {
    return servingEra(this.#eras, client);
  }

  /** Returns whether server requests on legacy links arrive on the stream of their call; undefined before the first legacy link. */
  get hasCallStreams(): boolean | undefined {
    return this.#legacyTransport?.hasCallStreams;
  }

  /** Opens a link. @throws {GatewayError} if all attempts fail or the signal is aborted; every connection is closed then. */
  async open(
    request: LinkRequest,
    events: LinkEvents<Context, User>,
    signal: AbortSignal,
  ): Promise<Link<Context, User>> {
    this.#eras = dropExpired(this.#eras, performance.now());
    // Only a failed probe of the modern era has a cost, so only that probe is shared.
    if (request.clientEra === 'legacy' || this.servingEra('modern') !== undefined) {
      return await this.#open(request, events, signal);
    }
    if (this.#probing !== undefined) {
      const { audience, opening } = this.#probing;
      if (audience === request.audience) {
        await opening;
        return await this.#open(request, events, signal);
      }
      // It may fail for credentials that this audience does not use.
      await opening.catch(() => undefined);
      return await this.open(request, events, signal);
    }
    const opening = this.#open(request, events, signal);
    this.#probing = { audience: request.audience, opening };
    try {
      return await opening;
    } finally {
      this.#probing = undefined;
    }
  }

  /** Repeats the handshake of an open link to a remote server that keeps no state of a client for it. Never rejects. */
  async recheck(link: Link<Context, User>, stopping: AbortSignal): Promise<RecheckOutcome> {
    const { transports, clientInfo, timeouts } = this.#parts;
    const isOfLink = ({ era, canAttach }: TransportOption) =>
      link.era === 'modern' ? era === 'modern' : canAttach === true;
    const transport = transports.find(isOfLink);
    if (transport === undefined) return 'unknown';
    const { startMs } = timeouts();
    const signal = AbortSignal.any([stopping, AbortSignal.timeout(startMs)]);
    const parts = { start: transport.start, clientInfo, timeoutMs: startMs / 2, proposals: this.#proposals() };
    return await recheck(link, parts, signal);
  }

  /** Drops all findings: the server was deployed anew. */
  forgetEras(): void {
    this.#eras = dropAll(this.#eras);
    this.#wanted = undefined;
  }

  #proposals(): Proposals {
    const wanted = this.#wanted;
    const isWanted = wanted !== undefined && performance.now() - wanted.sinceMs < NO_MS;
    return new Proposals(isWanted ? wanted.revision : LATEST_LEGACY);
  }

  async #open(
    request: LinkRequest,
    events: LinkEvents<Context, User>,
    signal: AbortSignal,
  ): Promise<Link<Context, User>> {
    const attempts = [
      ...this.#reattachment(request.attachment),
      ...this.#attempts(planHandshakes(this.#eras, request.clientEra)),
    ];
    const findings: Finding[] = [];
    const proposals = this.#proposals();
    const start = { request, events, signal, proposals };
    let reason: GatewayError | undefined;
    let legacyReason: GatewayError | undefined;
    try {
      for (let attempt = attempts.shift(); attempt !== undefined && !signal.aborted; attempt = attempts.shift()) {
        const { transport, attachment } = attempt;
        const [era] = attempt.eras;
        /** The failure over another transport of this era. */
        const before = era === 'legacy' ? legacyReason : undefined;
        // Only after such a failure, the server may be one of 2024-11-05.
        if (before !== undefined && !isNotStreamable(before)) continue;
        const outcome = await this.#openWith(attempt, attempts.length > 0, start);
        findings.push(...outcome.findings);
        if (outcome.kind === 'open') {
          this.#hasFailed = false;
          for (const finding of findings) this.#record(finding);
          if (outcome.link.era === 'legacy') {
            this.#legacyTransport = transport;
            if (proposals.hasMoved) this.#wanted = { revision: proposals.current, sinceMs: performance.now() };
          }
          return outcome.link;
        }
        if (attachment !== undefined) continue;
        const { next } = outcome;
        if (next === undefined && era === 'legacy' && transport.era === 'legacy') legacyReason ??= outcome.reason;
        // A failure in the era of the client explains more than one in the other era.
        if (reason === undefined || era === request.clientEra || attempts.length === 0)
          reason = before !== undefined && hasNoStream(outcome.reason) ? before : outcome.reason;
        if (next !== undefined) attempts.unshift({ transport, eras: next });
      }
      throw reason ?? this.#abortedError(signal, undefined);
    } catch (thrown) {
      this.#hasFailed = true;
      this.#eras = dropAfterFailure(this.#eras, performance.now());
      throw thrown;
    }
  }

  #reattachment(attachment: Attachment | undefined): Attempt[] {
    const transport = this.#parts.transports.find(({ canAttach }) => canAttach === true);
    return attachment === undefined || transport === undefined ? [] : [{ transport, eras: ['legacy'], attachment }];
  }

  #attempts(eras: HandshakePlan): Attempt[] {
    const [first] = eras;
    const known = this.#hasFailed ? undefined : this.#legacyTransport;
    const wanted = this.#parts.transports
      .filter(({ era }) => era === 'either' || eras.includes(era))
      .toSorted((a, b) => Number(b === known) - Number(a === known));
    const preferred = wanted.findIndex(({ era }) => era === first);
    const ordered = preferred <= 0 ? wanted : [...wanted.splice(preferred, 1), ...wanted];
    return ordered.map((transport) => ({ transport, eras: transport.era === 'either' ? eras : [transport.era] }));
  }

  #record(finding: Finding): void {
    const { log } = this.#parts;
    const before = this.#eras;
    this.#eras = recordFinding(before, finding, performance.now());
    if (this.#eras !== before) log.info(finding, 'era of the upstream');
  }

  async #openWith(
    attempt: Attempt,
    mayFallBack: boolean,
    start: Start<Context, User>,
  ): Promise<Exclude<HandshakeOutcome, { kind: 'open' }> | OpenedLink<Context, User>> {
    const { upstream, timeouts, log, onLimit } = this.#parts;
    const { request, events, signal } = start;
    const { audience } = request;
    let link: Link<Context, User> | undefined;
    let closed: GatewayError | undefined;
    const messages = new EarlyMessages<Link<Context, User>>(onLimit);
    const onNotification = (notification: Notification, about: Context | undefined) => {
      messages.add(notification.params, (opened) => events.onNotification(opened, notification, about));
    };
    const onServerRequest = (request: ServerRequest<Context>) => {
      let isWithdrawn = false;
      request.onWithdrawn(() => (isWithdrawn = true));
      const deliver = (opened: Link<Context, User>) => {
        if (!isWithdrawn) events.onServerRequest(opened, request);
      };
      if (messages.add(request.params, deliver)) return;
      request.answer(errorAnswer(RPC.internalError, 'Too many requests before the end of the handshake'));
    };
    const onGap = () => {
      if (link !== undefined) events.onGap(link);
    };
    let connection: Connection<Context>;
    try {
      connection = await Connection.open(
        upstream,
        attempt.transport.start,
        {
          onNotification,
          onServerRequest,
          onGap,
          onFault: (thrown) => log.error({ err: thrown, upstream }, 'message of the upstream not handled'),
          onLimit,
          onSendFailed: (error, isBackground) => {
            if (link === undefined) return;
            if (isUnauthorized(error)) events.onUnauthorized(link, error);
            else if (!isBackground && isRefusedByStatus(error)) events.onRefused(link);
            else if (!isBackground && !attempt.transport.isProcess && mayBeDown(error)) events.onMaybeDown(link);
          },
          onError: (error, isBackground) => {
            if (link === undefined || isBackground || connection.mayKeepState) return;
            if (isHandshakeRefusal(error)) events.onRefused(link);
          },
          onClose: (error) => {
            closed = error;
            if (link === undefined) return;
            link.subscription?.close();
            events.onClose(link, error);
          },
        },
        signal,
        { audience },
      );
    } catch (thrown) {
      if (isOutOfTime(signal)) throw this.#abortedError(signal, thrown, 'start', attempt.transport);
      if (!(thrown instanceof GatewayError) || !hasNoStream(thrown)) throw thrown;
      return { kind: 'unsuitable', reason: thrown, findings: [], next: undefined };
    }
    using _aborting = addAbortListener(signal, () => void connection.close());
    try {
      const outcome = await this.#handshake(attempt, mayFallBack, connection, start);
      if (outcome.kind === 'unsuitable') {
        // The abort has closed the connection, so the reason says nothing about the upstream.
        if (signal.aborted) throw outcome.reason;
        await connection.close();
        return outcome;
      }
      const { hello, findings } = outcome;
      if (connection.isClosed) throw new GatewayError('upstream-lost', { upstream, message: 'it ended at once' });
      const era = eraOf(hello.revision);
      const isModern = era === 'modern';
      const { clientCapabilities, capabilityKey } = isModern ? NO_FEATURES : request;
      const place = request.placeIn(era);
      link = {
        place,
        audience,
        clientCapabilities,
        capabilityKey,
        upstream,
        connection,
        hello,
        era,
        subscription: isModern
          ? new UpstreamSubscription({ connection, hello, timeouts, log, onNotification, onGap })
          : undefined,
        users: new Set(),
        subscribers: new KeptMap(),
        subscribedLengths: new Set(),
        tasks: new KeptMap(),
        run: attempt.transport.isProcess && place.purpose === 'all' ? randomUUID() : '',
        calls: 0,
        usedMs: performance.now(),
        isRetired: false,
        isReattached: attempt.attachment !== undefined,
        logLevel: undefined,
        hasAnsweredCall: attempt.attachment !== undefined,
        hasReportedChange: false,
      };
      events.onOpen(link);
      messages.deliverTo(link);
      return { kind: 'open', link, findings };
    } catch (thrown) {
      await connection.close();
      if (!signal.aborted) throw thrown;
      throw this.#abortedError(signal, thrown, 'answer the handshake', attempt.transport, closed);
    }
  }

  /** Performs the handshakes of an attempt. @throws {GatewayError} if another attempt cannot succeed either. */
  async #handshake(
    { transport, eras, attachment }: Attempt,
    mayFallBack: boolean,
    connection: Connection<Context>,
    { request: { clientCapabilities }, proposals }: Start<Context, User>,
  ): Promise<HandshakeOutcome> {
    const { clientInfo, timeouts } = this.#parts;
    const { startMs } = timeouts();
    if (attachment !== undefined) return await reattach(connection, attachment, startMs / 2);
    const parts = { connection, clientInfo, clientCapabilities, eras: this.#eras, startMs, proposals };
    if (transport.era === 'modern') return await modernOnly(parts, mayFallBack ? startMs / 2 : startMs);
    return await handshake(parts, eras);
  }

  /**
   * Returns the error for an aborted attempt. It names the reason of the abort instead of the closed connection.
   *
   * @param step what the upstream did not do in time.
   * @param closed the reason of the close; its cause has what a program has printed.
   */
  #abortedError(
    signal: AbortSignal,
    cause: unknown,
    step: 'start' | 'answer the handshake' = 'start',
    transport?: TransportOption,
    closed?: GatewayError,
  ): GatewayError {
    const { upstream, timeouts } = this.#parts;
    if (!isOutOfTime(signal)) {
      return new GatewayError('upstream-unavailable', { upstream, message: 'it was stopped' }, cause);
    }
    const { startMs } = timeouts();
    const event = `did not ${step} within ${startMs / 1000} s ${START_SETTING}`;
    return upstreamError('upstream-unavailable', upstream, event, {}, lateStart(transport, cause, closed));
  }
}

/** Returns the cause of a start that took too long, with what an operator can do about it, and what the program has printed. */
function lateStart(transport: TransportOption | undefined, cause: unknown, closed?: GatewayError): StartTimeoutError {
  const advice =
    transport?.isProcess !== true
      ? 'it accepts connections, and is slow or hangs'
      : transport.mayDownload === true
        ? `a first start may download packages: run "${COMMAND} prefetch", or raise timeouts.start`
        : 'it hangs, does not speak MCP, or needs a longer timeouts.start';
  const printed = closed?.cause instanceof Error ? `; ${closed.cause.message}` : '';
  return new StartTimeoutError(`${advice}${printed}`, { cause });
}

interface OpenedLink<Context, User extends LinkUser> {
  readonly kind: 'open';
  readonly link: Link<Context, User>;
  readonly findings: readonly Finding[];
}
