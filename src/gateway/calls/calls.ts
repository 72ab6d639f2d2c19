import { setTimeout as sleep } from 'node:timers/promises';
import type { Source } from '../../catalog/names/named-items.ts';
import { sourceOf } from '../../catalog/catalog.ts';
import { GatewayError } from '../../errors.ts';
import { withoutEnvelope } from '../../protocol/envelope.ts';
import {
  type InputRequest,
  type InputRequired,
  isPlain,
  mayAsk,
  readResult,
  type Retry,
  withRetry,
} from '../../protocol/input-required.ts';
import { RawObject } from '../../json/json.ts';
import { type Answer, parsed, type RpcError } from '../../protocol/jsonrpc.ts';
import { type Header, paramHeaders } from '../../protocol/mcp-headers.ts';
import { MODERN, type Revision } from '../../protocol/revisions.ts';
import { declaresTasks } from '../../protocol/tasks.ts';
import type { Call } from '../../upstream/rpc/call.ts';
import { type Link, NO_FEATURES } from '../../upstream/link.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { type ResultTranslator, NEEDS_URL, toolFailure, type UpstreamResult } from '../forward/result-translator.ts';
import type { Exchange } from '../exchange/exchange.ts';
import { canBeAsked, capabilitiesFor, modernCapabilities } from '../exchange/client-capabilities.ts';
import { collectInput, MAX_ROUNDS } from '../questions/collect-input.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { withStateLoss } from '../connections/state-losses.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import type { ResourceCache } from '../forward/resource-cache.ts';
import type { Found, Route } from '../exchange/route.ts';
import type { Sender } from '../forward/sender.ts';
import type { TaskCalls } from './task-calls.ts';

export interface CallsParts {
  readonly upstreams: ReadonlyMap<string, Upstream<Exchange, ConnectionHolder>>;
  readonly links: HolderLinks;
  readonly listRefresher: ListRefresher;
  readonly translator: ResultTranslator;
  readonly resourceCache: ResourceCache;
  readonly sender: Sender;
  readonly taskCalls: TaskCalls;
}

/** Told how a call ends, once. */
export interface ResultSink {
  resolve(answer: Answer): void;
  reject(thrown: unknown): void;
  /** Told by what this comes to. */
  follow(answering: Promise<Answer>): void;
}

/** A call that was made already, and what came of it at first. */
interface FirstResponse {
  readonly link: Link<Exchange, ConnectionHolder>;
  readonly first: Answer | GatewayError;
}

/** A modern upstream's questions to a modern client, which carries them itself. */
export class InputRequiredError extends Error {
  override readonly name = 'InputRequiredError';
  readonly inputRequired: InputRequired;

  constructor(asked: InputRequired) {
    super('input required');
    this.inputRequired = asked;
  }
}

/** A page a user must open before a legacy upstream makes the call. */
export interface UrlElicitation {
  readonly elicitationId: string;
  readonly url: string;
  readonly message: string;
}

/** A legacy upstream refused the call until a modern client's user has opened some pages. */
export class UrlRequiredError extends Error {
  override readonly name = 'UrlRequiredError';
  readonly elicitations: readonly UrlElicitation[];

  constructor(pages: readonly UrlElicitation[]) {
    super('pages must be opened');
    this.elicitations = pages;
  }
}

/** How long after refusing a message an upstream's end has certainly been noticed. */
const RESEND_MS = 150;

/** Of the modern era: what is in the headers and what is in the body differ. */
const HEADER_MISMATCH = -32020;

/** Carries requests to the upstreams they belong to, at most once each, and brings the answers back in the client's words. */
export class Calls {
  readonly #parts: CallsParts;
  readonly #sender: Sender;

  constructor(parts: CallsParts) {
    this.#parts = parts;
    this.#sender = parts.sender;
  }

  /**
   * @throws {GatewayError} why there is no answer of the upstream.
   * @throws {InputRequiredError} to modern clients alone.
   */
  forward(exchange: OpenExchange, to: Route): Promise<Answer> {
    if (to.kind === 'nowhere') throw to.error;
    const upstream = this.#parts.upstreams.get(to.upstream);
    if (upstream === undefined) throw new GatewayError('internal-error');
    exchange.upstream = to.upstream;
    const entering = exchange.acquireSlot(upstream.limiter);
    // Usually there is room, and then there is nothing to wait for.
    if (entering === undefined) return this.#call(exchange, upstream, to);
    return entering.then(() => this.#call(exchange, upstream, to));
  }

  /**
   * The same for whoever is told, in place of a promise: none is made where a modern upstream is there, has room, and answers in
   * one round, as it mostly does.
   *
   * @throws {GatewayError} before anything was sent.
   */
  relay(exchange: OpenExchange, to: Found, ending: ResultSink): void {
    const upstream = this.#parts.upstreams.get(to.upstream);
    const link = this.#parts.links.ready(exchange.holder, to.upstream);
    const isRead = exchange.request.method === 'resources/read';
    if (upstream === undefined || link?.era !== 'modern' || isRead || !upstream.limiter.hasRoom) {
      ending.follow(this.forward(exchange, to));
      return;
    }
    void exchange.acquireSlot(upstream.limiter);
    try {
      this.#askModern(exchange, upstream, link, to, (first) =>
        this.#onFirstResponse(exchange, upstream, to, { link, first }, ending),
      );
    } catch (thrown) {
      // Its parameters cannot be put together.
      exchange.releaseSlot();
      throw thrown;
    }
  }

  #onFirstResponse(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    to: Found,
    begun: FirstResponse,
    ending: ResultSink,
  ): void {
    const { link, first } = begun;
    if (first instanceof GatewayError || first.kind === 'error' || !isPlain(first.parsedResult)) {
      ending.follow(this.#call(exchange, upstream, to, begun));
      return;
    }
    upstream.onCallEnd(link);
    exchange.releaseSlot();
    let answer;
    try {
      answer = this.#toClient(exchange, { upstream: upstream.id, isModern: true, source: to.source }, first);
    } catch (thrown) {
      ending.reject(thrown);
      return;
    }
    ending.resolve(answer);
  }

  /**
   * Whoever calls it has a place at the upstream, which is given back at the end.
   *
   * @param begun where a modern upstream was asked already.
   */
  async #call(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    to: Found,
    begun?: FirstResponse,
  ): Promise<Answer> {
    const { holder } = exchange;
    const { params, source } = to;
    const { links } = this.#parts;
    try {
      for (let attempt = 1; ; attempt++) {
        const first = attempt === 1 ? begun?.first : undefined;
        const ready = first === undefined ? links.ready(holder, upstream.id) : begun?.link;
        const link = ready ?? (await exchange.unlessCancelled(links.open(holder, upstream.id)));
        try {
          if (first instanceof GatewayError) throw first;
          if (link.era === 'modern') return await this.#converse(exchange, upstream, link, to, first);
          if (exchange.client.logLevel !== undefined)
            await links.ensureLogLevel(holder, link, exchange.client.logLevel);
          const isModern = exchange.client.caller.revision === MODERN;
          const bare = isModern ? withoutEnvelope(params) : params;
          const sent = paramsKnownTo(exchange.request.method, link.hello.revision, bare);
          const { taskCalls } = this.#parts;
          const plan = taskCalls.planOf(exchange, upstream, link, sent, source);
          let answer: Answer;
          if (plan === 'plain') {
            answer = await this.#sender.send(exchange, upstream, link, { params: sent.with('task', undefined) }).answer;
          } else {
            const called = await taskCalls.call(plan, exchange, upstream, link, sent);
            if (called.isDone) return called.answer;
            answer = called.answer;
          }
          if (answer.kind === 'error' && answer.error.code === NEEDS_URL && isModern) {
            throw new UrlRequiredError(readUrlElicitations(upstream.id, exchange, answer.error));
          }
          return this.#toClient(exchange, { upstream: upstream.id, isModern: false, source }, answer);
        } catch (thrown) {
          if (attempt > 1 || !wasNeverSeen(thrown)) throw thrown;
          // A process that ended is known to be gone only a moment after it takes nothing any more.
          if (links.ready(holder, upstream.id) === link) await sleep(RESEND_MS);
        } finally {
          upstream.onCallEnd(link);
        }
      }
    } finally {
      exchange.releaseSlot();
    }
  }

  /**
   * Asks a modern upstream, which decides on tasks itself.
   *
   * @param ended told before whoever waits for the answer.
   */
  #askModern(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    link: Link<Exchange, ConnectionHolder>,
    { params, source }: Pick<Found, 'params' | 'source'>,
    ended?: (first: Answer | GatewayError) => void,
  ): Call<Exchange> {
    const asked = exchange.request.method === 'tools/call' ? params.with('task', undefined) : params;
    return this.#sender.send(exchange, upstream, link, { params: asked, headers: headersOf(source, params), ended });
  }

  /** The answer in the words of the client, with the loss of the upstream's state where that is not reported yet. */
  #toClient(exchange: OpenExchange, given: UpstreamResult, answer: Answer): Answer {
    return withStateLoss(exchange.holder, given.upstream, this.#parts.translator.toClient(exchange, given, answer));
  }

  /**
   * A modern upstream may answer with questions, and is then asked again.
   *
   * @param first what it answered already.
   */
  async #converse(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    link: Link<Exchange, ConnectionHolder>,
    { params, source: listed }: Found,
    first: Answer | undefined,
  ): Promise<Answer> {
    const { method } = exchange.request;
    const { resourceCache } = this.#parts;
    const isRead = method === 'resources/read';
    let source = listed;
    const { holder } = exchange;
    const audience = `${holder.principal} ${holder.capabilityKey}`;
    // The answer may depend on the principal, except where one connection serves all.
    const publicAudience = upstream.config.isolation === 'shared' ? '' : holder.principal;
    const read = { upstream: upstream.id, audience, publicAudience };
    const cached = isRead ? resourceCache.find({ ...read, params }, performance.now()) : undefined;
    if (cached !== undefined) {
      return this.#parts.translator.toClient(exchange, { upstream: upstream.id, isModern: true, source }, cached);
    }
    const version = isRead ? resourceCache.versionOf(upstream.id) : 0;
    let sent = params;
    let hasRefreshed = false;
    for (let round = 1; round <= MAX_ROUNDS; round++) {
      const isFirst = round === 1 && first !== undefined;
      const given = isFirst ? first : await this.#askModern(exchange, upstream, link, { params: sent, source }).answer;
      const answer = given.kind === 'result' ? parsed(given) : given;
      if (answer.kind === 'error' && answer.error.code === HEADER_MISMATCH && !hasRefreshed) {
        // It refused before it ran anything: the schemas in the catalog are old.
        hasRefreshed = true;
        await upstream.relist(exchange.holder.era, upstream.isPersonal ? exchange.holder : NO_FEATURES);
        this.#parts.listRefresher.bringUpToDate(exchange.holder);
        source = sourceAfterRelist(exchange) ?? source;
        continue;
      }
      const asked =
        answer.kind === 'result' ? readInputRequired(upstream.id, exchange, answer.parsedResult) : undefined;
      if (asked instanceof RawObject) {
        return await this.#parts.taskCalls.onCreated(exchange, upstream, link, asked, source);
      }
      if (asked === undefined) {
        if (isRead) {
          resourceCache.store({ ...read, params: sent }, version, answer, performance.now());
        }
        return this.#toClient(exchange, { upstream: upstream.id, isModern: true, source }, answer);
      }
      if (exchange.client.caller.revision === MODERN) {
        for (const request of asked.inputRequests) mustBeDeclared(upstream.id, exchange, request);
        throw new InputRequiredError(asked);
      }
      const retry = await this.#collectInput(exchange, upstream, asked);
      if (!('requestState' in retry)) return retry;
      sent = withRetry(params, retry);
      exchange.releaseSlot();
      await exchange.acquireSlot(upstream.limiter);
    }
    const message = `upstream "${upstream.id}" asked ${MAX_ROUNDS} times and is not done`;
    throw new GatewayError('upstream-protocol', { upstream: upstream.id, message });
  }

  /** What the client said, or how the call ends where it would not. */
  async #collectInput(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    asked: InputRequired,
  ): Promise<Retry | Answer> {
    try {
      return await collectInput(exchange, upstream.id, asked);
    } catch (thrown) {
      const isRefusal = thrown instanceof GatewayError && thrown.code === 'client-unreachable';
      if (!isRefusal || exchange.request.method !== 'tools/call') throw thrown;
      return toolFailure(thrown.message);
    }
  }
}

/** Parameters without what an upstream of this revision does not know. */
function paramsKnownTo(method: string, revision: Revision, params: RawObject): RawObject {
  const isStrange = method === 'completion/complete' && revision < '2025-06-18';
  return isStrange ? params.with('context', undefined) : params;
}

/** Only what the request declared may be asked about it. @throws {GatewayError} `missing-capability`, `upstream-protocol` */
function mustBeDeclared(
  upstream: string,
  { client }: Exchange,
  { method, params = RawObject.EMPTY }: InputRequest,
): void {
  if (canBeAsked(client.clientCapabilities, method, params)) return;
  const requiredCapabilities = capabilitiesFor(method, params);
  if (requiredCapabilities === undefined) {
    const message = `upstream "${upstream}" asks for ${method}, which no client can be asked for`;
    throw new GatewayError('upstream-protocol', { upstream, message });
  }
  const say = `upstream "${upstream}" asks for ${method}`;
  throw new GatewayError('missing-capability', {
    upstream,
    executed: 'unknown',
    message: say,
    data: { requiredCapabilities },
  });
}

const NO_HEADERS: readonly Header[] = [];

/** `Mcp-Param-…` of a call, by the schema of the tool. */
function headersOf(source: Source | undefined, params: RawObject): readonly Header[] {
  if (source === undefined || source.headerParams.length === 0) return NO_HEADERS;
  return paramHeaders(source.headerParams, params.object('arguments'));
}

function sourceAfterRelist({ client: { catalog }, tool }: OpenExchange): Source | undefined {
  const owner = tool === undefined ? undefined : catalog.tools.get(tool);
  return owner === undefined ? undefined : sourceOf(catalog, owner);
}

/** @throws {GatewayError} `missing-capability`, `upstream-protocol` */
function readUrlElicitations(
  upstream: string,
  exchange: Exchange,
  { message, data }: RpcError,
): readonly UrlElicitation[] {
  const { client, request } = exchange;
  const listed: unknown = typeof data === 'object' && data !== null && 'elicitations' in data ? data.elicitations : [];
  const pages = (Array.isArray(listed) ? listed : []).flatMap((one: unknown) => (isUrlElicitation(one) ? [one] : []));
  if (pages.length === 0 || !mayAsk(request.method)) {
    const what = pages.length === 0 ? 'names none' : `${request.method} cannot wait for that`;
    const say = `upstream "${upstream}" wants pages opened, and ${what}: ${message}`;
    throw new GatewayError('upstream-protocol', { upstream, executed: 'no', message: say });
  }
  if (client.clientCapabilities.object('elicitation')?.raw('url') === undefined) {
    const requiredCapabilities = { elicitation: { url: {} } };
    throw new GatewayError('missing-capability', { upstream, message, data: { requiredCapabilities } });
  }
  return pages;
}

function isUrlElicitation(one: unknown): one is UrlElicitation {
  return (
    typeof one === 'object' &&
    one !== null &&
    ['elicitationId', 'url', 'message'].every(
      (key) => typeof Object.getOwnPropertyDescriptor(one, key)?.value === 'string',
    )
  );
}

/** The questions in a result, or the task, if that is what it is. @throws {GatewayError} `upstream-protocol` */
function readInputRequired(
  upstream: string,
  { request, client }: Exchange,
  result: RawObject,
): InputRequired | RawObject | undefined {
  const { method } = request;
  const reading = readResult(result);
  const broke = (why: string) =>
    new GatewayError('upstream-protocol', { upstream, message: `upstream "${upstream}" answered with ${why}` });
  switch (reading.kind) {
    case 'complete':
    case 'absent':
      return undefined;
    case 'input-required':
      if (!mayAsk(method)) throw broke(`questions, which ${method} may not be answered with`);
      return reading.asked;
    case 'task':
      if (method !== 'tools/call' || !declaresTasks(modernCapabilities(client))) {
        throw broke('a task, which nobody asked for');
      }
      return reading.result;
    case 'unknown':
      throw broke(`a result of type ${reading.resultType}, which nobody declared`);
    case 'malformed':
      throw broke(`a result that ${reading.why}`);
  }
}

/** Only what the upstream said it did not take may be sent again. */
function wasNeverSeen(thrown: unknown): boolean {
  if (!(thrown instanceof GatewayError)) return false;
  const executed = thrown.detail.executed ?? thrown.row.executed;
  return executed === 'no' && (thrown.code === 'upstream-session-lost' || thrown.code === 'upstream-lost');
}
