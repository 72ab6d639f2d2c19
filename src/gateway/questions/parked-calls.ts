import { randomUUID } from 'node:crypto';
import { GatewayError } from '../../errors.ts';
import { inputRequiredResult } from '../../protocol/input-required.ts';
import { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import type { Level } from '../../telemetry/metrics.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import { sealState } from '../handles/request-state.ts';
import type { InputRounds } from './input-rounds.ts';
import type { Sealer } from '../handles/sealer.ts';

/** A legacy upstream's call that outlives the request it began with: it waits for the client to come back with answers. */
interface ParkedCall {
  readonly id: string;
  readonly exchange: OpenExchange;
  readonly upstream: string;
  readonly principal: string;
  readonly rounds: InputRounds;
  /** How the call ends, in the client's words. Never rejects. */
  readonly work: Promise<Answer>;
  /** Of the questions that are out. */
  round: number;
  /** What came of each round that was answered: who comes twice hears the same twice. */
  readonly outcomes: Map<number, Promise<Answer>>;
  isOver: boolean;
  /** Nobody came in time: its questions were answered for the client. */
  isAbandoned: boolean;
  /** When nobody is waited for any longer; monotonic ms. Infinite while somebody is there. */
  dueMs: number;
  isKeptAlive: number;
}

export interface ParkedCallsParts {
  readonly sealer: Sealer;
  /** Where a retry has to go, whichever process it reaches. */
  readonly ownerName: string;
  readonly gauge: Level;
  /** How long a call waits for its client. */
  readonly ttlMs: number;
  readonly perPrincipal: number;
  readonly perUpstream: number;
}

/** Makes the request that came the one that is told of the call. */
type Attach = (exchange: OpenExchange, rounds: InputRounds) => void;

/** What the sealed state of a parked call says. */
interface State {
  readonly park: string;
  readonly round: number;
}

const SWEEP_MS = 1_000;
/** A waiting upstream that wants to hear of progress hears of it this often. SDKs give up after 60 s. */
const KEEP_ALIVE_MS = 10_000;
/** The end of a call is kept this long, for a client whose connection broke just then. */
const RETAIN_MS = 60_000;
/** An upstream whose question was cancelled may still end the call by itself. */
const GRACE_MS = 5_000;

/** The calls of modern clients at legacy upstreams that ask, in the order they were parked. */
export class ParkedCalls {
  readonly #parts: ParkedCallsParts;
  readonly #calls = new Map<string, ParkedCall>();
  #sweeping: NodeJS.Timeout | undefined;

  constructor(parts: ParkedCallsParts) {
    this.#parts = parts;
  }

  /**
   * The answer to the request that began this call: its result, or questions.
   *
   * @param work how the call ends; it never rejects.
   */
  async follow(exchange: OpenExchange, upstream: string, rounds: InputRounds, work: Promise<Answer>): Promise<Answer> {
    // What is still asked when the call is over, nobody can answer any more.
    void work.then(() => rounds.cancelAll('the call is over'));
    const first = await Promise.race([work, rounds.nextQuestions()]);
    if (first !== 'asked') return first;
    const refused = this.#refuse(exchange, upstream);
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
      isOver: false,
      isAbandoned: false,
      dueMs: Infinity,
      isKeptAlive: 0,
    };
    this.#calls.set(call.id, call);
    this.#parts.gauge.add();
    this.#sweeping ??= setInterval(() => this.#sweep(), SWEEP_MS).unref();
    void work.then(() => this.#onEnd(call));
    return await this.#park(call);
  }

  #refuse(exchange: OpenExchange, upstream: string): GatewayError | undefined {
    const { perPrincipal, perUpstream } = this.#parts;
    let [ofPrincipal, ofUpstream] = [0, 0];
    for (const call of this.#calls.values()) {
      if (call.isOver) continue;
      if (call.principal === exchange.client.caller.principal.key) ofPrincipal++;
      if (call.upstream === upstream) ofUpstream++;
    }
    if (ofPrincipal < perPrincipal && ofUpstream < perUpstream) return undefined;
    const whose = ofPrincipal < perPrincipal ? `at upstream "${upstream}"` : 'of yours';
    return new GatewayError('overloaded', {
      upstream,
      executed: 'unknown',
      retryable: false,
      message: `${Math.max(ofPrincipal, ofUpstream)} calls ${whose} wait for answers already`,
    });
  }

  /**
   * Goes on with a parked call, once per round however often the client comes.
   *
   * @throws {GatewayError} `invalid-state`; `invalid-params` when a response is no answer to its question: the call stays
   *   parked, and the same `requestState` takes the corrected response.
   */
  resume(state: State, responses: RawObject | undefined, attach: Attach): Promise<Answer> {
    const call = this.#calls.get(state.park);
    if (call === undefined || (call.isAbandoned && !call.isOver))
      throw new GatewayError('invalid-state', { message: 'the call is over; make it again' });
    const known = call.outcomes.get(state.round);
    if (known !== undefined) {
      if (!call.isOver && state.round === call.round) attach(call.exchange, call.rounds);
      return known;
    }
    const invalid = call.rounds.invalidResponse(responses);
    if (invalid !== undefined) {
      const message = `inputResponses.${invalid.key} is no valid answer to ${invalid.method}; the call still waits for one`;
      throw new GatewayError('invalid-params', { upstream: call.upstream, message });
    }
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
    // The upstream has withdrawn them meanwhile.
    if (inputRequests.length === 0) return await this.#next(call);
    call.round++;
    call.dueMs = performance.now() + ttlMs;
    exchange.detach();
    const { client, request } = exchange;
    const waiting = { kind: 'park', owner: this.#parts.ownerName, park: call.id, round: call.round } as const;
    // A little longer than the call waits, so that who is late is told what happened.
    const state = await sealState(sealer, waiting, client.caller, request, Date.now() + ttlMs + RETAIN_MS);
    const result = inputRequiredResult({ inputRequests, requestState: JSON.stringify(state) });
    return { kind: 'result', result: result.toString() };
  }

  #onEnd(call: ParkedCall): void {
    call.isOver = true;
    call.dueMs = performance.now() + RETAIN_MS;
    this.#parts.gauge.remove();
  }

  #sweep(): void {
    const nowMs = performance.now();
    for (const call of this.#calls.values()) {
      if (nowMs >= call.dueMs) this.#overdue(call);
      else if (!call.isOver && call.dueMs !== Infinity && ++call.isKeptAlive % (KEEP_ALIVE_MS / SWEEP_MS) === 0) {
        call.rounds.progress(RawObject.of({ progress: call.isKeptAlive, message: 'waiting for the client' }));
      }
    }
    if (this.#calls.size > 0) return;
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
  }

  #overdue(call: ParkedCall): void {
    if (call.isOver) {
      this.#calls.delete(call.id);
      return;
    }
    // Once to answer for the client, and once more, after a grace, to give up.
    call.dueMs = performance.now() + GRACE_MS;
    if (call.isAbandoned) call.exchange.cancel('the client did not come back');
    call.isAbandoned = true;
    call.rounds.cancelAll('the client did not come back');
  }

  /** Gives every call up. */
  close(): void {
    clearInterval(this.#sweeping);
    for (const call of this.#calls.values()) {
      if (call.isOver) continue;
      call.rounds.cancelAll('the gateway stops');
      call.exchange.cancel('the gateway stops');
    }
    this.#calls.clear();
  }
}
