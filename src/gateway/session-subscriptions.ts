import { upstreamIn } from '../catalog/view.ts';
import { GatewayError } from '../errors.ts';
import { detach } from '../json/kept-text.ts';
import { getOrMake } from '../map-entries.ts';
import { type Answer, EMPTY_RESULT, type Request } from '../protocol/jsonrpc.ts';
import { upstreamErrorTypeOf } from '../telemetry/operation.ts';
import type { DispatcherParts } from './calls/dispatcher.ts';
import type { Session } from './clients/session.ts';
import type { SessionClient } from './clients/session-client.ts';
import type { Sessions } from './clients/sessions.ts';
import type { HolderLinks } from './connections/holder-links.ts';
import type { Subscription } from './exchange/connection-holder.ts';
import type { OpenExchange } from './exchange/open-exchange.ts';
import { resolveUri } from './exchange/route.ts';
import type { ResultTranslator } from './forward/result-translator.ts';
import type { AuditRecorder } from './records/audit-recorder.ts';

export interface SessionSubscriptionsParts extends Pick<DispatcherParts, 'gate' | 'external'> {
  readonly links: Pick<HolderLinks, 'subscribe' | 'unsubscribe'>;
  readonly sessions: Pick<Sessions, 'save'>;
  readonly translator: ResultTranslator;
  /** Records requests before they are sent; undefined unless the config requires that. */
  readonly audit: Pick<AuditRecorder, 'begin'> | undefined;
}

/** Makes and ends the subscriptions of sessions to resources. Each is stored until it has ended, so that a restored session has it again. */
export class SessionSubscriptions {
  readonly #parts: SessionSubscriptionsParts;
  /** The last requests that are under way, by URI. */
  readonly #running = new WeakMap<Session, Map<string, Promise<Answer>>>();

  constructor(parts: SessionSubscriptionsParts) {
    this.#parts = parts;
  }

  /**
   * Subscribes a session to a resource, by the URI that its client knows.
   *
   * @throws {GatewayError} if the client may not subscribe, or the subscription cannot be stored.
   */
  subscribe(exchange: OpenExchange<Session>, client: SessionClient): Promise<Answer> {
    return this.#inOrder(exchange, () => this.#subscribe(exchange, client));
  }

  async #subscribe(exchange: OpenExchange<Session>, client: SessionClient): Promise<Answer> {
    const { holder: session, request } = exchange;
    const { caller } = client;
    const { links, sessions, gate, external, audit } = this.#parts;
    const { uri, found } = requestedResource(session, client, request);
    const to = subscriptionTo(gate.judgeSubscription(client, request, uri, found));
    await external.askAboutResource(caller, request, uri, to, exchange);
    await audit?.begin(request, caller, to.upstream);
    // Saved first, so that a subscription that cannot be stored is not sent to the upstream.
    await sessions.save(session, { kind: 'subscribe', uri });
    // One that waits for another token ends if this request fails.
    session.unresolved?.delete(uri);
    const judgeAgain = () => {
      const refusal = gate.refusalOfSubscription(caller, request, uri, to, true);
      if (refusal !== undefined) throw refusal;
    };
    try {
      const answer = await this.#stored(session, uri, links.subscribe(session, uri, to, judgeAgain));
      return this.#toClient(exchange, client, to, answer);
    } finally {
      // Not before, because questions of an upstream go to the calls that are there.
      exchange.upstream = to.upstream;
    }
  }

  /** Ends the subscription that a request names, at the upstream if it was made there. */
  unsubscribe(exchange: OpenExchange<Session>, client: SessionClient): Promise<Answer> {
    return this.#inOrder(exchange, () => this.#unsubscribe(exchange, client));
  }

  /** Runs a request after the earlier ones of its session about the same resource, for whose answers the client may not have waited. */
  #inOrder(exchange: OpenExchange<Session>, run: () => Promise<Answer>): Promise<Answer> {
    const { holder, request } = exchange;
    const running = getOrMake(this.#running, holder, () => new Map());
    const uri = request.params?.string('uri') ?? '';
    const runLater = () => {
      // Its client may have cancelled it meanwhile, or ended the session.
      exchange.throwIfCancelled();
      return run();
    };
    const answering = running.get(uri)?.then(runLater, runLater) ?? run();
    running.set(uri, answering);
    const onEnd = () => {
      if (running.get(uri) === answering) running.delete(uri);
    };
    answering.then(onEnd, onEnd);
    return answering;
  }

  async #unsubscribe(exchange: OpenExchange<Session>, client: SessionClient): Promise<Answer> {
    const { holder: session, request } = exchange;
    const { uri, found } = requestedResource(session, client, request);
    // One that waits for another token, or for its upstream, is only stored.
    const to = session.unresolved?.has(uri) === true ? undefined : subscriptionTo(found);
    const { links, audit } = this.#parts;
    await audit?.begin(request, client.caller, to?.upstream);
    // One that waited may have been made meanwhile.
    const made = to ?? session.subscriptions.get(uri);
    if (made === undefined) {
      session.unresolved?.delete(uri);
      return await this.#stored(session, uri, Promise.resolve(EMPTY_RESULT));
    }
    try {
      const answer = await this.#stored(session, uri, links.unsubscribe(session, uri, made));
      return this.#toClient(exchange, client, made, answer);
    } finally {
      exchange.upstream = made.upstream;
    }
  }

  /** Resolves with an answer, once a subscription that the session does not have is not stored either. */
  async #stored<T>(session: Session, uri: string, answering: Promise<T>): Promise<T> {
    try {
      return await answering;
    } finally {
      if (!session.subscriptions.has(uri) && session.unresolved?.has(uri) !== true)
        await this.#parts.sessions.save(session, { kind: 'unsubscribe', uri });
    }
  }

  /** Returns the answer to a subscription as the client reads it. @param answer undefined if the upstream was not asked. */
  #toClient(
    exchange: OpenExchange<Session>,
    client: SessionClient,
    { upstream }: Subscription,
    answer: Answer | undefined,
  ): Answer {
    if (answer === undefined) return EMPTY_RESULT;
    const { request } = exchange;
    exchange.outcome = { answer, error: upstreamErrorTypeOf(request.method, answer) };
    if (answer.kind !== 'error') return answer;
    // Only upstreams with sessions answer these with an error.
    return this.#parts.translator.toClient({ client, request }, { upstream, era: 'legacy', source: undefined }, answer);
  }
}

/** Returns the published URI of a subscription, and where the resource is; a {@link GatewayError} if it is unknown. */
function requestedResource({ subscriptions }: Session, { catalog }: SessionClient, { method, params }: Request) {
  const uri = params?.string('uri');
  if (uri === undefined) throw new GatewayError('invalid-params', { message: '"uri" must be a string' });
  const known = subscriptions.get(uri);
  // While the upstream of a subscription is removed, another one may have its URI.
  const isMeant = method === 'resources/unsubscribe' || upstreamIn(catalog.view, known?.upstream ?? '') !== undefined;
  return { uri, found: known !== undefined && isMeant ? known : resolveUri(catalog, uri) };
}

function subscriptionTo(found: ReturnType<typeof resolveUri>): Subscription {
  if (found instanceof GatewayError) throw found;
  return { upstream: found.upstream, uri: detach(found.uri) };
}
