import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { GatewayError } from '../errors.ts';
import type { ClientRequest, ClientResponse } from '../gateway/front/client-http.ts';
import type { ClientSession, ModernCall, ModernCaller, ModernSink, Owner, PassedOn } from '../gateway/front/front.ts';
import { operatorPrincipal, type Principal } from '../policy/principal.ts';
import { type Notification, notificationText, type Request, type Response, responseText } from '../protocol/jsonrpc.ts';
import { isUnreadable, type Member } from '../store/placement-table.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { forwardedHeaders, forwardedText, senderText, textHeaders } from './forwarded-head.ts';
import { parseInternalAddress } from './internal-address.ts';
import type { InternalKeys } from './internal-keys.ts';
import { requestBody, requestHeaders } from './modern-exchange.ts';
import { type ExchangeHandler, OutgoingChannel } from './outgoing-channel.ts';
import { NOT_REACHED, OperatorQuestion, type ReplicaAnswer } from './operator-question.ts';
import { RelayedModern } from './relayed-modern.ts';
import { RelayedRequest } from './relayed-request.ts';

/** A replica reads a new key of the ring when it is asked for it. A request waits this long for that, if no other key is valid. */
const KEY_WAIT_MS = 500;
const KEY_RETRY_MS = 50;
/** The interval in which the newest key is tried while a connection with an older one serves. */
const RENEW_MS = 500;
/** Nothing is passed on for this long after another process has answered at the address. The lease of the one before lapses meanwhile. */
const GONE_MS = 5_000;

/** Returns a handler for an answer that does not matter. @param onEnd runs when there is one, or will be none. */
function ignoring(onEnd: () => void): ExchangeHandler {
  return { onResponse: onEnd, onData: onEnd, onRefused: onEnd, onBroken: onEnd };
}

/** Another replica, to which requests are passed on over one connection. */
export class RemoteOwner implements Owner {
  readonly #member: Member;
  readonly #keys: InternalKeys;
  readonly #metrics: Pick<Metrics, 'countForwarded'>;
  readonly #tokenOf: (principal: Principal) => string | undefined;
  #channel: OutgoingChannel | undefined;
  #opening: Promise<OutgoingChannel | undefined> | undefined;
  /** Channels that finish their requests, such as those with an older key. */
  readonly #retired = new Set<OutgoingChannel>();
  /** Monotonic ms. The newest key is not tried again before. */
  #renewMs = -Infinity;
  /** Monotonic ms. The process at the address is another one until then. */
  #goneMs = -Infinity;
  #isDestroyed = false;
  /** The shared parts of heads, as texts. */
  readonly #senders = new WeakMap<Principal, { readonly view: string; readonly text: string }>();

  /** @param tokenOf returns the token of a principal, if the other replica needs it. */
  constructor(
    member: Member,
    keys: InternalKeys,
    metrics: Pick<Metrics, 'countForwarded'>,
    tokenOf: (principal: Principal) => string | undefined = () => undefined,
  ) {
    this.#member = member;
    this.#tokenOf = tokenOf;
    this.#keys = keys;
    this.#metrics = metrics;
  }

  async forward(
    incoming: ClientRequest,
    outgoing: ClientResponse,
    principal: Principal,
    view: string,
    { target = incoming.url ?? '/mcp', hops = 0, text }: PassedOn = {},
  ): Promise<'answered' | 'unreachable'> {
    if (isUnreadable(this.#member)) {
      this.#metrics.countForwarded('unreachable');
      throw unreadable();
    }
    const ready = performance.now() < this.#goneMs ? undefined : this.#ready();
    const channel = ready instanceof Promise ? await ready : ready;
    if (channel === undefined) {
      this.#metrics.countForwarded('unreachable');
      return 'unreachable';
    }
    if (outgoing.destroyed) {
      this.#metrics.countForwarded('abandoned');
      return 'answered';
    }
    const { method = 'GET', rawHeaders } = incoming;
    const headers = text === undefined ? forwardedHeaders(rawHeaders) : textHeaders(rawHeaders, text);
    const forwarded = forwardedText({ call: randomUUID(), kind: 'http', method, target, headers, hops });
    const relayed = new RelayedRequest(incoming, outgoing);
    const isLast = text === undefined && !RelayedRequest.hasBody(incoming);
    relayed.start(channel.begin(this.#senderText(principal, view), forwarded, isLast, relayed), text);
    const outcome = await relayed.outcome;
    this.#metrics.countForwarded(outcome);
    if (relayed.isMemberGone) this.#goneMs = performance.now() + GONE_MS;
    return outcome === 'misdirected' && !outgoing.headersSent ? 'unreachable' : 'answered';
  }

  handleModernRequest(
    modern: Request,
    caller: ModernCaller,
    sink: ModernSink,
    onUnreachable: (error?: GatewayError) => void,
  ): ModernCall {
    // It stays so until an operator changes the config, so that nobody waits for it.
    const reason = isUnreadable(this.#member) ? unreadable() : undefined;
    const onUnsent = (error = reason) => onUnreachable(error);
    const relayed = new RelayedModern(sink, onUnsent, (outcome) => this.#metrics.countForwarded(outcome));
    const { principal, view } = caller;
    const text = requestBody(modern, caller);
    let isCancelled = false;
    const send = (channel: OutgoingChannel | undefined) => {
      if (channel === undefined || isCancelled) {
        relayed.onUnreachable();
        return;
      }
      const headers = requestHeaders(text, caller);
      const forwarded = forwardedText({ call: randomUUID(), kind: 'modern', method: 'POST', target: '', headers });
      relayed.start(channel.begin(this.#senderText(principal, view), forwarded, false, relayed), text);
    };
    const ready = this.#ready();
    if (ready instanceof Promise) void ready.then(send);
    else send(ready);
    return {
      cancel: () => {
        isCancelled = true;
        relayed.cancel();
      },
      // A request that does not end by itself is cancelled, because the stream of its client is here.
      close: () => undefined,
    };
  }

  async handleMessage(
    { id, caller }: Pick<ClientSession, 'id' | 'caller'>,
    message: Notification | Response,
    hops = 0,
  ): Promise<void> {
    const { principal, view } = caller;
    const text =
      message.kind === 'notification'
        ? notificationText(message.method, message.params)
        : responseText(message.id, message);
    const headers = ['mcp-session-id', id, 'content-type', 'application/json'];
    headers.push('content-length', String(Buffer.byteLength(text)));
    const forwarded = forwardedText({ call: randomUUID(), kind: 'message', method: 'POST', target: '', headers, hops });
    const channel = await this.#ready();
    const handled = Promise.withResolvers<void>();
    const exchange = channel?.begin(this.#senderText(principal, view), forwarded, false, ignoring(handled.resolve));
    exchange?.body.end(Buffer.from(text));
    if (exchange !== undefined) await handled.promise;
  }

  /**
   * Asks for an operator. Asks first whether the other replica is alive, so that a change that is reported as not confirmed was mostly not
   * made. Never rejects.
   *
   * @param limitMs the longest time to wait for the answer, in ms.
   */
  async ask(operator: string, operation: string, args: unknown, limitMs: number): Promise<ReplicaAnswer> {
    const question = new OperatorQuestion(limitMs);
    void this.#alive().then((channel) => {
      if (channel === undefined) question.end({ why: NOT_REACHED });
      if (channel === undefined || !question.isWanted) return;
      const target = JSON.stringify(args ?? null);
      const forwarded = forwardedText({ call: randomUUID(), kind: 'admin', method: operation, target, headers: [] });
      const sender = senderText({ to: this.#member.id, principal: operatorPrincipal(operator), view: '' });
      question.start(channel.begin(sender, forwarded, true, question));
    });
    return await question.answer;
  }

  /** Returns a channel to a replica that has just answered; undefined if it cannot be reached. */
  async #alive(): Promise<OutgoingChannel | undefined> {
    const channel = await this.#ready();
    return channel === undefined ? undefined : await this.#checked(channel);
  }

  /** Ends all connections, and with them the requests that are passed on: their outcome is unknown. */
  destroy(): void {
    this.#isDestroyed = true;
    this.#channel?.destroy();
    for (const channel of this.#retired) channel.destroy();
    this.#retired.clear();
  }

  /** Returns a channel to a replica that is alive; undefined if it cannot be reached. */
  #ready(): OutgoingChannel | Promise<OutgoingChannel | undefined> {
    const channel = this.#channel;
    if (channel === undefined || !channel.isUsable) return this.#open();
    if (channel.keyId !== this.#keys.newest.id) {
      if (this.#keys.find(channel.keyId, Date.now()) === undefined) {
        this.#retire(channel);
        return this.#open();
      }
      void this.#renew();
    }
    return channel.isFresh(performance.now()) ? channel : this.#checked(channel);
  }

  /** Asks before a request is sent: the outcome of one that a stopped replica gets would be unknown. */
  async #checked(channel: OutgoingChannel): Promise<OutgoingChannel | undefined> {
    if (await channel.isAlive()) return channel;
    // One with a newer key has replaced it meanwhile.
    if (this.#channel !== channel && this.#channel?.isUsable === true) return await this.#ready();
    // Requests in flight wait for the lease to lapse. The next ones try another connection.
    this.#retire(channel);
    return undefined;
  }

  #retire(channel: OutgoingChannel): void {
    if (this.#channel === channel) this.#channel = undefined;
    for (const retired of this.#retired) if (!retired.isOpen) this.#retired.delete(retired);
    this.#retired.add(channel);
    channel.retire();
  }

  #open(): Promise<OutgoingChannel | undefined> {
    this.#opening ??= this.#connect().finally(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }

  async #connect(): Promise<OutgoingChannel | undefined> {
    const address = parseInternalAddress(this.#member.address);
    if (address === undefined || this.#isDestroyed) return undefined;
    const lateMs = performance.now() + KEY_WAIT_MS;
    for (;;) {
      for (const key of this.#keys.toConnect(Date.now())) {
        const opened = await OutgoingChannel.open(address, key);
        if (opened !== 'refused') return this.#adopt(opened);
      }
      if (this.#isDestroyed || performance.now() > lateMs) return undefined;
      // Also this process may lack a newer one.
      this.#keys.onUnknown();
      await sleep(KEY_RETRY_MS);
    }
  }

  /** Replaces a channel of an older key, which serves until the other replica knows the newest. */
  async #renew(): Promise<void> {
    const nowMs = performance.now();
    const address = parseInternalAddress(this.#member.address);
    if (address === undefined || nowMs < this.#renewMs) return;
    this.#renewMs = nowMs + RENEW_MS;
    const opened = await OutgoingChannel.open(address, this.#keys.newest);
    if (opened !== 'refused') this.#adopt(opened);
  }

  /** Sends the next requests on this channel, if there is one. */
  #adopt(channel: OutgoingChannel | undefined): OutgoingChannel | undefined {
    if (channel === undefined || this.#isDestroyed) {
      channel?.destroy();
      return undefined;
    }
    if (this.#channel !== undefined) this.#retire(this.#channel);
    this.#channel = channel;
    return channel;
  }

  /** Returns the part of a head that the requests of a principal share. */
  #senderText(principal: Principal, view: string): string {
    const known = this.#senders.get(principal);
    if (known?.view === view) return known.text;
    const text = senderText({ to: this.#member.id, principal, view, token: this.#tokenOf(principal) });
    this.#senders.set(principal, { view, text });
    return text;
  }
}

function unreadable(): GatewayError {
  const message =
    'the process that has this encrypts with a key that this one lacks; the log says what the operator has to do';
  return new GatewayError('store-unavailable', { message });
}
