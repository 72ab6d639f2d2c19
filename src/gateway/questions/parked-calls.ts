import { randomUUID } from 'node:crypto';
import { GatewayError } from '../../errors.ts';
import { inputRequiredResult } from '../../protocol/input-required.ts';
import { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import type { Level } from '../../telemetry/metrics.ts';
import { endOfStep } from '../../telemetry/tracing/mcp-spans.ts';
import type { Span } from '../../telemetry/tracing/tracing.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import { sealState } from '../handles/request-state.ts';
import type { InputRounds } from '../exchange/input-rounds.ts';
import type { Sealer } from '../handles/sealer.ts';

/** A call at a legacy upstream that outlives its first request: it waits for the client's answers. */
interface ParkedCall {
  readonly id: string;
  readonly exchange: OpenExchange;
  readonly upstream: string;
  readonly principal: string;
  readonly rounds: InputRounds;
  /** The final answer in the client's revision. Never rejects. */
  readonly work: Promise<Answer>;
  /** The number of the current input round. */
  round: number;
  /** The answer after each answered round, so that a repeated retry gets the same one. */
  readonly outcomes: Map<number, Promise<Answer>>;
  hasEnded: boolean;
  /** True if the client did not retry in time, so that its questions were cancelled. */
  isAbandoned: boolean;
  /** The time when the call expires; monotonic ms. Infinite while a request of the client is attached. */
  dueMs: number;
  keepAliveCount: number;
  /** The span of the current wait for the client; undefined if there is none, or calls are not traced. */
  wait: Span | undefined;
}

export interface ParkedCallsParts {
  readonly sealer: Sealer;
  /** The name of this process, for retries that reach another one; see `Owners.name`. */
  readonly process: string;
  readonly gauge: Level;
  /** The time that a call waits for a retry. */
  readonly ttlMs: number;
  readonly perPrincipal: number;
  readonly perUpstream: number;
}

/** Attaches the retry to the exchange, so that it gets the messages and the answer of the call. */
type Attach = (exchange: OpenExchange, rounds: InputRounds) => void;

/** The content of the sealed state of a parked call. */
interface State {
  readonly park: string;
  readonly round: number;
}

const SWEEP_MS = 1_000;
/** The interval of progress for upstreams that wait for answers. SDKs give up after 60 s. */
const KEEP_ALIVE_MS = 10_000;
/** The time that the answer of a call is kept, for a client whose connection broke just then. */
const RETAIN_MS = 60_000;
/** The time that an upstream has to end the call after its questions were cancelled. */
const GRACE_MS = 5_000;

/** The parked calls of this process, in the order of parking. */
export class ParkedCalls {
  readonly #parts: ParkedCallsParts;
  readonly #calls = new Map<string, ParkedCall>();
  #sweeping: NodeJS.Timeout | undefined;

  constructor(parts: ParkedCallsParts) {
    this.#parts = parts;
  }

  /** Yields the calls that wait for the answers of their clients, in the order of parking. */
  *waiting(): Iterable<{ readonly exchange: OpenExchange; readonly upstream: string; readonly dueMs: number }> {
    for (const call of this.#calls.values()) if (!call.hasEnded) yield call;
  }

  /**
   * Returns the answer to the first request of a call: the call's result, or its questions.
   *
   * @param work the final answer; it never rejects.
   * @throws {GatewayError} `overloaded`: too many calls are parked.
   */
  async follow(exchange: OpenExchange, upstream: string, rounds: InputRounds, work: Promise<Answer>): Promise<Answer> {
    // Open questions cannot be answered after the call has ended.
    void work.then(() => rounds.cancelAll('the call is over'));
    const first = await Promise.race([work, rounds.nextQuestions()]);
    if (first !== 'asked') return first;
    const refused = this.#refusal(exchange, upstream);
    if (refused !== undefined) {
      rounds.cancelAll('the client cannot be asked now');
      exchange.cancel('too many calls wait for their clients');
      throw refused;
    }
    const call: ParkedCall = {
      id: randomUUID(),
      exchange,
      upstream,
      principal: exchange.client.caller.principal.key,
      rounds,
      work,
      round: 0,
      outcomes: new Map(),
      hasEnded: false,
      isAbandoned: false,
      dueMs: Infinity,
      keepAliveCount: 0,
      wait: undefined,
    };
    this.#calls.set(call.id, call);
    this.#parts.gauge.add();
    this.#sweeping ??= setInterval(() => this.#sweep(), SWEEP_MS).unref();
    void work.then(() => this.#onEnd(call));
    return await this.#park(call);
  }

  #refusal(exchange: OpenExchange, upstream: string): GatewayError | undefined {
    const { perPrincipal, perUpstream } = this.#parts;
    let [ofPrincipal, ofUpstream] = [0, 0];
    for (const call of this.#calls.values()) {
      if (call.hasEnded) continue;
      if (call.principal === exchange.client.caller.principal.key) ofPrincipal++;
      if (call.upstream === upstream) ofUpstream++;
    }
    if (ofPrincipal < perPrincipal && ofUpstream < perUpstream) return undefined;
    const place = ofPrincipal < perPrincipal ? `at upstream "${upstream}"` : 'of yours';
    return new GatewayError('overloaded', {
      upstream,
      executed: 'unknown',
      retryable: false,
      message: `${Math.max(ofPrincipal, ofUpstream)} calls ${place} wait for answers already`,
    });
  }

  /**
   * Continues a parked call with the responses of a retry. A repeated retry of the same round gets the same answer.
   *
   * @throws {GatewayError} `invalid-state`; `invalid-params` if a response is not a valid answer: the call stays
   *   parked, and the same `requestState` accepts corrected responses.
   */
  resume(state: State, responses: RawObject | undefined, attach: Attach): Promise<Answer> {
    const call = this.#calls.get(state.park);
    if (call === undefined || (call.isAbandoned && !call.hasEnded))
      throw new GatewayError('invalid-state', { message: 'the call is over; make it again' });
    const known = call.outcomes.get(state.round);
    if (known !== undefined) {
      if (!call.hasEnded && state.round === call.round) attach(call.exchange, call.rounds);
      return known;
    }
    const invalid = call.rounds.findInvalidResponse(responses);
    if (invalid !== undefined) {
      const message = `inputResponses.${invalid.key} is no valid answer to ${invalid.method}; the call still waits for one`;
      throw new GatewayError('invalid-params', { upstream: call.upstream, message });
    }
    call.wait?.end(endOfStep(call.upstream));
    attach(call.exchange, call.rounds);
    call.dueMs = Infinity;
    call.rounds.answer(responses);
    const outcome = this.#next(call);
    call.outcomes.set(state.round, outcome);
    return outcome;
  }

  async #next(call: ParkedCall): Promise<Answer> {
    const next = await Promise.race([call.work, call.rounds.nextQuestions()]);
    return next === 'asked' ? await this.#park(call) : next;
  }

  async #park(call: ParkedCall): Promise<Answer> {
    const { exchange, rounds } = call;
    const { sealer, ttlMs } = this.#parts;
    const inputRequests = rounds.openQuestions();
    // The upstream has withdrawn the questions meanwhile.
    if (inputRequests.length === 0) return await this.#next(call);
    call.round++;
    call.dueMs = performance.now() + ttlMs;
    call.wait = exchange.span?.child('internal', `parked ${call.upstream}`);
    exchange.detach();
    const { client, request } = exchange;
    const waiting = { kind: 'park', owner: this.#parts.process, park: call.id, round: call.round } as const;
    // Valid a little longer than the call waits, so that a late client gets the right error.
    const state = await sealState(sealer, waiting, client.caller, request, Date.now() + ttlMs + RETAIN_MS);
    const result = inputRequiredResult({ inputRequests, requestState: JSON.stringify(state) });
    return { kind: 'result', result: result.toString() };
  }

  #onEnd(call: ParkedCall): void {
    call.hasEnded = true;
    // Has no effect if the client has come back.
    call.wait?.end(endOfStep(call.upstream, call.isAbandoned ? 'client-timeout' : 'cancelled'));
    call.dueMs = performance.now() + RETAIN_MS;
    this.#parts.gauge.remove();
  }

  #sweep(): void {
    const nowMs = performance.now();
    for (const call of this.#calls.values()) {
      if (nowMs >= call.dueMs) this.#expire(call);
      else if (!call.hasEnded && call.dueMs !== Infinity && ++call.keepAliveCount % (KEEP_ALIVE_MS / SWEEP_MS) === 0) {
        call.rounds.reportProgress(RawObject.of({ progress: call.keepAliveCount, message: 'waiting for the client' }));
      }
    }
    if (this.#calls.size > 0) return;
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
  }

  #expire(call: ParkedCall): void {
    if (call.hasEnded) {
      this.#calls.delete(call.id);
      return;
    }
    // The first time, cancels the questions; the second time, after a grace period, cancels the call.
    call.dueMs = performance.now() + GRACE_MS;
    if (call.isAbandoned) call.exchange.cancel('the client did not come back');
    call.isAbandoned = true;
    call.rounds.cancelAll('the client did not come back');
  }

  /** Cancels every call. */
  close(): void {
    clearInterval(this.#sweeping);
    for (const call of this.#calls.values()) {
      if (call.hasEnded) continue;
      call.rounds.cancelAll('the gateway stops');
      call.exchange.cancel('the gateway stops');
    }
    this.#calls.clear();
  }
}
