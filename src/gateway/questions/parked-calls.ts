import type { SharedParts } from '../records/shared-parts.ts';
import { randomUUID } from 'node:crypto';
import type { Settings } from '../../config/values/config.ts';
import { GatewayError } from '../../errors.ts';
import { inputRequiredResult } from '../../protocol/input-required.ts';
import type { RawObject } from '../../json/json.ts';
import { jsonOf } from '../../json/record.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import type { Level } from '../../telemetry/metrics.ts';
import { endOfStep } from '../../telemetry/tracing/mcp-spans.ts';
import { FairPool } from '../../upstream/quota/fair-pool.ts';
import type { Span } from '../../telemetry/tracing/tracing.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import { upstreamItem, type UpstreamRoute } from '../exchange/route.ts';
import { sealState } from '../handles/request-state.ts';
import type { InputRounds } from '../exchange/input-rounds.ts';
import type { Sealer } from '../handles/sealer.ts';
import { EndedCalls, RETAIN_MS } from './ended-calls.ts';
import { answerText, type ReadAnswer, readAnswer } from '../exchange/answer-text.ts';
import { isUpstreamError } from '../records/audit-recorder.ts';
import type { OutcomeStore } from '../../store/outcome-store.ts';

/** The longest name or URI in a state, which the client sends back. A request with a longer one does not outlive its upstream's removal. */
const ITEM_CHARS = 4_096;

/** A call at a legacy upstream that outlives its first request: it waits for the client's answers. */
interface ParkedCall {
  readonly id: string;
  readonly exchange: OpenExchange;
  readonly upstream: string;
  /** Of a prompt or resource: the name or URI that the upstream got, unless it is very long. */
  readonly item: string | undefined;
  readonly principal: string;
  readonly rounds: InputRounds;
  /** The final answer in the client's revision. Never rejects. */
  readonly work: Promise<Answer>;
  round: number;
  /** The last answered round, and what followed it, so that a repeated retry gets the same answer. */
  answered: { readonly round: number; readonly outcome: Promise<Answer> } | undefined;
  /** Runs when another retry takes the place of the last one. */
  onReplaced: (() => void) | undefined;
  /** True if the client has not retried in time, so that its questions were cancelled. */
  isAbandoned: boolean;
  /** The time when the call expires; monotonic ms. Infinite while a request of the client waits for it. */
  dueMs: number;
  sweepCount: number;
  /** The span of the current wait for the client; undefined if there is none, or calls are not traced. */
  wait: Span | undefined;
}

export interface ParkedCallsParts extends Pick<SharedParts, 'log' | 'shares' | 'counters' | 'onLimit'> {
  readonly sealer: Sealer;
  /** The name of this process, for retries that reach another one; see `Owners.name`. */
  readonly process: string;
  /** Stores the ends of calls for other processes; undefined if there are none. */
  readonly outcomes: OutcomeStore | undefined;
  readonly gauge: Level;
  readonly settings: Settings<'sessions' | 'limits'>;
  /** Adds the name of the gateway to results. */
  readonly translator: { stamp(result: RawObject): RawObject };
}

/**
 * Attaches the retry to the exchange, so that it gets the messages and the answer of the call.
 *
 * @param ended resolves when the call has ended, or has another retry: the exchange keeps the request until then.
 */
type Attach = (exchange: OpenExchange, rounds: InputRounds, ended: Promise<unknown>) => void;

/** The content of the sealed state of a parked call. */
interface ParkedState {
  readonly park: string;
  readonly round: number;
}

const SWEEP_MS = 1_000;
/** Sweeps from one report of progress to the next, to upstreams that wait for answers. SDKs give up after 60 s. */
const SWEEPS_PER_KEEP_ALIVE = 10;
/** The time that an upstream has to end the call after its questions were cancelled. */
const GRACE_MS = 5_000;

function counterOf(principal: string): string {
  return `parked ${principal}`;
}

function tooMany(upstream: string, calls: string, rest?: string): GatewayError {
  const message = `${calls} wait for answers already${rest === undefined ? '' : `, and ${rest}`}`;
  return new GatewayError('overloaded', { upstream, executed: 'unknown', retryable: false, message });
}

/** Returns the answer that has ended the call of an exchange, with whose error it is. */
function endIn(exchange: OpenExchange, answer: Answer): ReadAnswer {
  const isUpstreams = answer.kind === 'error' && exchange.failure === undefined && isUpstreamError(exchange);
  return { answer, isUpstreams };
}

/** The parked calls of this process, in the order of parking. */
export class ParkedCalls {
  readonly #parts: ParkedCallsParts;
  /** Those that have not ended. */
  readonly #calls = new Map<string, ParkedCall>();
  readonly #ended: EndedCalls;
  /** The places of calls, by upstream. */
  readonly #pools = new Map<string, FairPool>();
  #sweeping: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(parts: ParkedCallsParts) {
    this.#parts = parts;
    this.#ended = new EndedCalls(parts.onLimit);
  }

  /** Yields the calls that wait for the answers of their clients, in the order of parking. */
  waiting(): Iterable<{ readonly exchange: OpenExchange; readonly upstream: string; readonly dueMs: number }> {
    return this.#calls.values();
  }

  /**
   * Returns the answer to the first request of a call: the call's result, or its questions.
   *
   * @param work the final answer; it never rejects.
   * @throws {GatewayError} `overloaded`: too many calls are parked.
   */
  async follow(exchange: OpenExchange, to: UpstreamRoute, rounds: InputRounds, work: Promise<Answer>): Promise<Answer> {
    // Open questions cannot be answered after the call has ended.
    void work.then(() => rounds.cancelAll('the call is over'));
    const first = await Promise.race([work, rounds.nextQuestions()]);
    if (first !== 'asked') return first;
    const { upstream } = to;
    const refused = await this.#enter(exchange, upstream);
    if (refused !== undefined) {
      rounds.cancelAll('the client cannot be asked now');
      exchange.cancel('too many calls wait for their clients');
      throw refused;
    }
    const id = randomUUID();
    const item = upstreamItem(exchange.request.method, to);
    const call: ParkedCall = {
      id,
      exchange,
      upstream,
      item: item === undefined || item.length > ITEM_CHARS ? undefined : item,
      principal: exchange.client.caller.principal.key,
      rounds,
      work: this.#parts.outcomes === undefined ? work : this.#stored(id, exchange, work),
      round: 0,
      answered: undefined,
      onReplaced: undefined,
      isAbandoned: false,
      dueMs: Infinity,
      sweepCount: 0,
      wait: undefined,
    };
    this.#calls.set(call.id, call);
    this.#parts.gauge.add();
    this.#startSweeping();
    void call.work.then((answer) => this.#onEnd(call, answer));
    return await this.#park(call);
  }

  /** A function of its own: the timer keeps what is in scope here. */
  #startSweeping(): void {
    this.#sweeping ??= setInterval(() => this.#sweep(), SWEEP_MS).unref();
  }

  /** Takes a place among the parked calls of the principal, in all processes, and of the upstream. Returns the refusal if there is none. */
  async #enter({ client }: OpenExchange, upstream: string): Promise<GatewayError | undefined> {
    const { settings, shares, counters } = this.#parts;
    const { parkedPerPrincipal, parkedPerUpstream } = settings().limits;
    const { key } = client.caller.principal;
    let ofPrincipal = 0;
    for (const call of this.#calls.values()) if (call.principal === key) ofPrincipal++;
    if (ofPrincipal >= parkedPerPrincipal) return tooMany(upstream, `${ofPrincipal} calls of yours`);
    const pool = this.#pools.get(upstream) ?? new FairPool(shares, parkedPerUpstream);
    pool.setCapacity(parkedPerUpstream);
    if (!pool.hasRoomFor(key)) {
      if (!pool.hasFree) return tooMany(upstream, `${pool.used} calls at upstream "${upstream}"`);
      shares.onRefused('parked');
      const rest = `the rest of ${parkedPerUpstream} (gateway.limits.parkedPerUpstream) is kept for other clients`;
      return tooMany(upstream, `${pool.usedBy(key)} calls of yours at upstream "${upstream}"`, rest);
    }
    pool.take(key);
    this.#pools.set(upstream, pool);
    if (counters === undefined || (await counters.acquire(counterOf(key), parkedPerPrincipal))) return undefined;
    this.#leave(upstream, key);
    return tooMany(upstream, `${parkedPerPrincipal} calls of yours`);
  }

  #leave(upstream: string, principal: string): void {
    const pool = this.#pools.get(upstream);
    pool?.release(principal);
    if (pool?.isUnused === true) this.#pools.delete(upstream);
  }

  /**
   * Continues a parked call with the responses of a retry. A repeated retry of the last answered round gets the same answer. Returns undefined if the
   * call has ended; see {@link endOf}.
   *
   * @throws {GatewayError} `invalid-state`; `outcome-unknown` if this process stops; `invalid-params` if a response is not a valid answer.
   *   Then the call stays parked, and the same `requestState` accepts corrected responses.
   */
  resume(state: ParkedState, responses: RawObject | undefined, attach: Attach): Promise<Answer> | undefined {
    const call = this.#calls.get(state.park);
    if (call === undefined) return undefined;
    if (state.round === call.answered?.round) {
      if (state.round === call.round) attachTo(call, attach);
      return call.answered.outcome;
    }
    if (state.round !== call.round) {
      const message = 'the questions of this state and later ones are answered; continue with the last state';
      throw new GatewayError('invalid-state', { message });
    }
    call.rounds.assertValid(responses, call.upstream, 'call');
    call.wait?.end(endOfStep(call.upstream));
    attachTo(call, attach);
    call.dueMs = Infinity;
    // The questions of an abandoned call are closed, and it goes on without the answers.
    call.isAbandoned = false;
    call.rounds.answer(responses);
    const outcome = this.#next(call);
    call.answered = { round: state.round, outcome };
    return outcome;
  }

  async #next(call: ParkedCall): Promise<Answer> {
    const next = await Promise.race([call.work, call.rounds.nextQuestions()]);
    return next === 'asked' ? await this.#park(call) : next;
  }

  async #park(call: ParkedCall): Promise<Answer> {
    const { exchange, rounds } = call;
    const { client, request } = exchange;
    const { sealer, settings, translator } = this.#parts;
    const { parkMs } = settings().sessions;
    // Each retry declares its own capabilities.
    const refused = rounds.refuseBeyond(client.clientCapabilities);
    if (refused !== undefined) {
      client.onUnsupportedRequest(refused.method, refused.params, exchange);
      return await call.work;
    }
    const inputRequests = rounds.openQuestions();
    // The upstream has withdrawn the questions meanwhile.
    if (inputRequests.length === 0) return await this.#next(call);
    call.round++;
    call.dueMs = performance.now() + parkMs;
    call.wait = exchange.span?.child('internal', `parked ${call.upstream}`);
    exchange.detach();
    const place = { upstream: call.upstream, tool: exchange.upstreamTool, item: call.item };
    const waiting = { kind: 'park', owner: this.#parts.process, park: call.id, round: call.round, ...place } as const;
    // Valid a little longer than the call waits, so that a late client gets the right error.
    const state = await sealState(sealer, waiting, client.caller, request, Date.now() + parkMs + RETAIN_MS);
    const result = translator.stamp(inputRequiredResult({ inputRequests, requestState: JSON.stringify(state) }));
    return { kind: 'result', result: result.toString() };
  }

  /** Replaces a call by its answer. */
  #onEnd(call: ParkedCall, answer: Answer): void {
    if (this.#calls.delete(call.id)) {
      this.#ended.add(call.id, call.principal, endIn(call.exchange, answer), performance.now());
    }
    // Has no effect if the client has come back, or has not in time.
    call.wait?.end(endOfStep(call.upstream, 'cancelled'));
    this.#parts.gauge.remove();
    this.#leave(call.upstream, call.principal);
    this.#parts.counters?.release(counterOf(call.principal));
  }

  /** Resolves with the answer of a call once it is stored for other processes. So no client knows an end that they do not. */
  async #stored(id: string, exchange: OpenExchange, work: Promise<Answer>): Promise<Answer> {
    const answer = await work;
    const { outcomes, settings, log } = this.#parts;
    try {
      const { isUpstreams } = endIn(exchange, answer);
      await outcomes?.settle(id, answerText(answer, isUpstreams), settings().sessions.parkMs + RETAIN_MS);
    } catch (thrown) {
      log.debug({ err: thrown }, 'the end of a parked call is not stored for other replicas');
    }
    return answer;
  }

  /**
   * Returns the kept end of a call that does not run here any more.
   *
   * @param lostUpstream the upstream of a call whose process is gone; undefined for a call of this process.
   * @throws {GatewayError} `outcome-unknown` if a process that is gone or stops may have cancelled it, or if its answer is not kept any more.
   */
  async endOf(park: string, lostUpstream?: string): Promise<ReadAnswer> {
    const ended = this.#ended.find(park, performance.now());
    if (ended !== undefined) return ended;
    const text = await this.#parts.outcomes?.find(park);
    const stored = text === undefined ? undefined : readAnswer(jsonOf(text));
    if (stored !== undefined) return stored;
    if (lostUpstream === undefined && !this.#isClosed) {
      const message = 'the answer of this call is not kept any more; check what the call did before you make it again';
      throw new GatewayError('outcome-unknown', { message });
    }
    const [end, at] = lostUpstream === undefined ? ['stops', {}] : ['is gone', { upstream: lostUpstream }];
    const message = `the process that made this call ${end}; check what the call did before you make it again`;
    throw new GatewayError('outcome-unknown', { ...at, message });
  }

  #sweep(): void {
    const nowMs = performance.now();
    for (const call of this.#calls.values()) {
      if (nowMs >= call.dueMs) this.#expire(call);
      else if (call.dueMs !== Infinity) {
        call.sweepCount++;
        if (call.sweepCount % SWEEPS_PER_KEEP_ALIVE !== 0) continue;
        call.rounds.reportWaiting();
      }
    }
    this.#ended.removeExpired(nowMs);
    if (this.#calls.size > 0 || this.#ended.size > 0) return;
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
  }

  #expire(call: ParkedCall): void {
    // The first time, cancels the questions; the second time, after a grace period, cancels the call.
    call.dueMs = performance.now() + GRACE_MS;
    if (call.isAbandoned) call.exchange.cancel('the client did not come back');
    call.isAbandoned = true;
    call.wait?.end(endOfStep(call.upstream, 'client-timeout'));
    call.rounds.cancelAll('the client did not come back');
  }

  /** Cancels every call. */
  close(): void {
    this.#isClosed = true;
    clearInterval(this.#sweeping);
    for (const call of this.#calls.values()) {
      call.rounds.cancelAll('the gateway stops');
      call.exchange.cancel('the gateway stops');
    }
    this.#calls.clear();
  }
}

function attachTo(call: ParkedCall, attach: Attach): void {
  call.onReplaced?.();
  const { promise, resolve } = Promise.withResolvers<void>();
  call.onReplaced = resolve;
  attach(call.exchange, call.rounds, Promise.race([call.work, promise]));
}
