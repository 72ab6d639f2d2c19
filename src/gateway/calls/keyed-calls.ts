import type { SharedParts } from '../records/shared-parts.ts';
import type { Settings } from '../../config/values/config.ts';
import { durationText } from '../../config/schema/units.ts';
import { GatewayError, isGatewayForm, toGatewayError, toRpcError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import { orderedText } from '../../json/ordered.ts';
import { jsonOf, memberOf } from '../../json/record.ts';
import { LIMITS } from '../../limits.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { idempotencyKeyOf, META, withoutIdempotencyKey } from '../../protocol/meta.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import type { ClaimAnswer, KeyedCall, KeyedCallStore } from '../../store/keyed-call-store.ts';
import type { KeyedCallOutcome } from '../../telemetry/call-metrics.ts';
import { answerText, type ReadAnswer, readAnswer } from '../exchange/answer-text.ts';
import { isUpstreamError } from '../records/audit-recorder.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { Owners } from '../exchange/owners.ts';
import type { UpstreamRoute } from '../exchange/route.ts';
import { ASK_LIMIT_MS } from '../clients/session.ts';
import { type CallOutcome, isAnswer } from './call-outcome.ts';
import { LateWrites } from './late-writes.ts';

export interface KeyedCallsParts extends Pick<SharedParts, 'upstreams' | 'audit' | 'onLimit'> {
  readonly store: KeyedCallStore;
  readonly owners: Pick<Owners, 'name' | 'ownerOf'>;
  readonly settings: Settings<'idempotency' | 'sessions'>;
  readonly onOutcome: (outcome: KeyedCallOutcome) => void;
}

type MakeCall = (to: UpstreamRoute) => Promise<CallOutcome>;

/** The time after which a client may ask for the answer of a call under way. */
const RETRY_MS = 1_000;

/**
 * Makes calls with idempotency keys once. A principal that sends the same key again at the same endpoint gets the answer of the first call.
 * Tool and arguments must be the same too. A call that certainly did not run, or that its upstream has answered with questions, may be made
 * again.
 */
export class KeyedCalls {
  readonly #parts: KeyedCallsParts;
  readonly #late: LateWrites;
  /** Claims of calls that this process makes. */
  readonly #inFlight = new Set<string>();
  #lastClaim = 0;

  constructor(parts: KeyedCallsParts) {
    this.#parts = parts;
    this.#late = new LateWrites(parts.store, parts.onLimit);
  }

  /**
   * Returns the idempotency key of a request; undefined if it is a request that has none.
   *
   * @throws {GatewayError} `invalid-params`: the key is no text of the right length.
   */
  keyOf({ request: { method, params } }: OpenExchange): string | undefined {
    const raw = method === 'tools/call' ? idempotencyKeyOf(params) : undefined;
    if (raw === undefined) return undefined;
    const key: unknown = JSON.parse(raw);
    if (typeof key === 'string' && key !== '') {
      if (key.length <= LIMITS.idempotencyKeyChars) return key;
      this.#parts.onLimit('idempotencyKeyChars');
    }
    const message = `"${META.idempotencyKey}" in "_meta" must be a text of 1 to ${LIMITS.idempotencyKeyChars} characters`;
    throw new GatewayError('invalid-params', { message });
  }

  /**
   * Makes a call, or returns the answer of the one that was made with its key.
   *
   * @param judge runs before a known answer is given, which may have waited for its record.
   * @throws {GatewayError} what `make` and `judge` throw; `duplicate-call`; `outcome-unknown` if the answer is not known; `store-unavailable`, `overloaded`
   *   if the key cannot be remembered.
   */
  async run(
    exchange: OpenExchange,
    to: UpstreamRoute,
    key: string,
    make: MakeCall,
    judge: () => void,
  ): Promise<CallOutcome> {
    const call = keyedCall(exchange, to, key);
    const claim = `${this.#parts.owners.name}/${++this.#lastClaim}`;
    this.#inFlight.add(claim);
    try {
      const known = await this.#claim(call, claim, to.upstream);
      if (known.kind !== 'claimed') return await this.#answerKnown(exchange, to, known, judge);
      return await this.#make(exchange, to, call, claim, make);
    } finally {
      this.#inFlight.delete(claim);
    }
  }

  close(): void {
    this.#late.close();
  }

  /** @throws {GatewayError} `store-unavailable` */
  async #claim(call: KeyedCall, claim: string, upstream: string): Promise<ClaimAnswer> {
    const { store, settings, upstreams } = this.#parts;
    const { idempotency, sessions } = settings();
    const maxMs = upstreams.get(upstream)?.config.timeouts.maxMs ?? 0;
    // The longest time of a call: each round may last, each question of it, and the wait for a page.
    const callMs = LIMITS.inputRounds * (2 * maxMs + Math.max(sessions.parkMs, ASK_LIMIT_MS));
    const keepMs = idempotency.keepMs + callMs;
    try {
      const known = await store.claim(call, claim, keepMs);
      if (known.kind !== 'running' || !this.#isLate(known.claim)) return known;
      return (await this.#late.repeat(known.claim)) ? await store.claim(call, claim, keepMs) : known;
    } catch (thrown) {
      if (!(thrown instanceof GatewayError)) throw thrown;
      this.#parts.onOutcome('unavailable');
      // The claim may have arrived without its reply.
      await this.#late.release(call, claim);
      const message =
        'a call with an idempotency key needs the shared state, which cannot be used now. The call was not made. ' +
        'Send it again later with the same key';
      throw new GatewayError('store-unavailable', { upstream, message }, thrown);
    }
  }

  /** Returns whether a claim is of this process, and of a call that is not under way any more. */
  #isLate(claim: string): boolean {
    return processOf(claim) === this.#parts.owners.name && !this.#inFlight.has(claim);
  }

  async #make(
    exchange: OpenExchange,
    to: UpstreamRoute,
    call: KeyedCall,
    claim: string,
    make: MakeCall,
  ): Promise<CallOutcome> {
    const { onOutcome, settings } = this.#parts;
    const { keepMs } = settings().idempotency;
    const { revision } = exchange.client.caller;
    const end = (answer: Answer, isUpstreams = false) =>
      this.#late.end(call, claim, `${revision} ${answerText(answer, isUpstreams)}`, keepMs);
    try {
      const outcome = await make({ ...to, params: withoutIdempotencyKey(to.params) });
      onOutcome('made');
      if (exchange.failure !== undefined) await end({ kind: 'error', error: toRpcError(exchange.failure) });
      else if (isAnswer(outcome) && !mayRepeat(exchange, outcome)) await end(outcome, isUpstreamError(exchange));
      else await this.#late.release(call, claim);
      return outcome;
    } catch (thrown) {
      if (exchange.wasSent) onOutcome('made');
      const failure = exchange.failure ?? thrown;
      if (hasNotRun(failure)) await this.#late.release(call, claim);
      else await end({ kind: 'error', error: toRpcError(failure) });
      throw thrown;
    }
  }

  /** Returns the answer to a call that was made, or that cannot be. */
  async #answerKnown(
    exchange: OpenExchange,
    { upstream, upstreamTool }: UpstreamRoute,
    known: Exclude<ClaimAnswer, { readonly kind: 'claimed' }>,
    judge: () => void,
  ): Promise<CallOutcome> {
    const { audit, onOutcome, settings } = this.#parts;
    switch (known.kind) {
      case 'running':
        if (!(await this.#isRunning(known.claim))) {
          onOutcome('lost');
          throw unknown(upstream, 'the process that made it is gone');
        }
        onOutcome('running');
        throw new GatewayError('duplicate-call', {
          upstream,
          message:
            'a call with this idempotency key is under way, and this one was not made. Send it again with the same key to get its answer',
          data: { retryAfterMs: RETRY_MS },
        });
      case 'full': {
        onOutcome('full');
        const whose = known.limit === 'keyedCalls' ? 'all clients together' : 'you';
        const within = durationText(settings().idempotency.keepMs);
        const message =
          `${whose} made ${LIMITS[known.limit]} calls with idempotency keys within ${within}, as many as are remembered. ` +
          'The call was not made. Send it again later, or without a key';
        throw new GatewayError('overloaded', { upstream, message });
      }
      case 'ended': {
        const { answer, isUpstreams } = this.#storedIn(exchange, upstream, known.outcome);
        if (audit !== undefined) await audit.begin(exchange.request, exchange.client.caller, upstream, upstreamTool);
        judge();
        if (isUpstreams) exchange.outcome = { answer, error: 'rpc_error' };
        exchange.isReplay = true;
        onOutcome('replayed');
        return answer;
      }
    }
  }

  async #isRunning(claim: string): Promise<boolean> {
    if (this.#isLate(claim)) return false;
    const { kind } = await this.#parts.owners.ownerOf({ kind: 'keyed-call', process: processOf(claim) });
    return kind !== 'gone';
  }

  /** @throws {GatewayError} `outcome-unknown` */
  #storedIn(exchange: OpenExchange, upstream: string, outcome: string | undefined): ReadAnswer {
    const { onOutcome } = this.#parts;
    const { revision } = exchange.client.caller;
    const space = outcome?.indexOf(' ') ?? 0;
    const made = outcome?.slice(0, space);
    const stored = made === revision ? readAnswer(jsonOf(outcome?.slice(space + 1) ?? '')) : undefined;
    const isUnasked = stored !== undefined && isUnaskedTask(exchange, stored.answer);
    if (stored !== undefined && !isUnasked) return stored;
    onOutcome('lost');
    if (isUnasked) throw unknown(upstream, 'its answer is a task, which this request does not ask for');
    if (made === undefined || made === revision) throw unknown(upstream, 'its answer is not kept any more');
    throw unknown(upstream, `its answer is for a client of revision ${made}`);
  }
}

function processOf(claim: string): string {
  return claim.slice(0, claim.lastIndexOf('/'));
}

/** Errors by which a gateway refuses a call before it is sent, without saying so. */
const NOT_SENT: ReadonlySet<unknown> = new Set(['unknown-tool', 'invalid-params']);

/** Returns whether a call certainly did not run. */
function hasNotRun(failure: unknown): boolean {
  const { code, executed } = toGatewayError(failure);
  return executed === 'no' || NOT_SENT.has(code);
}

/**
 * Returns whether an upstream refused a call until its client declares a capability, or opens a page, and then makes it again. Or it is a
 * gateway that did not make the call.
 */
function mayRepeat({ client }: OpenExchange, answer: Answer): boolean {
  if (answer.kind !== 'error') return false;
  const { code, data } = answer.error;
  const hasNotRun = memberOf(data, 'executed') === 'no' || NOT_SENT.has(memberOf(data, 'code'));
  if (isGatewayForm(answer.error) && hasNotRun) return true;
  // Servers before 2026-07-28 use the first code as they like.
  return code === RPC.urlElicitationRequired || (code === RPC.missingCapability && client.dialect.asksInAnswers);
}

/** Returns whether an answer is a task although its request neither asks for one nor declares tasks. */
function isUnaskedTask({ client, request }: OpenExchange, answer: Answer): boolean {
  const role = client.dialect.taskRole(client.caller.capabilities);
  if (answer.kind === 'error' || role === 'polls') return false;
  const result = RawObject.parse(answer.result);
  if (role === 'none') return result.string('resultType') === 'task';
  const isTask = result.raw('content') === undefined && result.object('task') !== undefined;
  return isTask && request.params?.raw('task') === undefined;
}

function unknown(upstream: string, why: string): GatewayError {
  const message =
    `a call with this idempotency key was made, and ${why}. It was not made again. ` +
    'Check what it did, and use another key to make it again';
  return new GatewayError('outcome-unknown', { upstream, message });
}

/** Returns the call as the store knows it. @throws {JsonTextError} if its arguments are not JSON. */
function keyedCall({ client, request }: OpenExchange, { tool, upstreamTool }: UpstreamRoute, key: string): KeyedCall {
  const { principal, view } = client.caller;
  const args = orderedText(request.params?.raw('arguments') ?? '{}');
  return { principal: principal.key, name: JSON.stringify([view, tool ?? upstreamTool ?? '', key, args]) };
}
