import { LIMITS } from '../../limits.ts';
import type { ClaimAnswer, KeyedCall, KeyedCallBounds, KeyedCallStore, OnKeyedCallLimit } from '../keyed-call-store.ts';
import type { RedisAccess } from './access.ts';
import { CLAIM, END, RELEASE } from './scripts/keyed-call-scripts.ts';

/** Stores calls in Redis, their outcomes encrypted. */
export class RedisKeyedCallStore implements KeyedCallStore {
  readonly #redis: RedisAccess;
  readonly #onLimit: OnKeyedCallLimit;
  readonly #bounds: KeyedCallBounds;

  constructor(redis: RedisAccess, onLimit: OnKeyedCallLimit, bounds: KeyedCallBounds = LIMITS) {
    this.#redis = redis;
    this.#onLimit = onLimit;
    this.#bounds = bounds;
  }

  async claim(call: KeyedCall, claim: string, keepMs: number): Promise<ClaimAnswer> {
    const entries = this.#redis.keys.keyedCall(call);
    const args = [claim, Math.ceil(keepMs), this.#bounds.keyedCallsPerPrincipal, this.#bounds.keyedCalls];
    const reply = String(await this.#redis.connection.run(CLAIM, entries, args));
    const [state, rest] = [reply.charAt(0), reply.slice(1)];
    if (state === '+') return { kind: 'claimed' };
    if (state === 'c') return { kind: 'running', claim: rest };
    if (state === 'r')
      return { kind: 'ended', outcome: rest === '' ? undefined : this.#redis.box.open(entries[0], rest) };
    const limit = rest === 'all' ? 'keyedCalls' : 'keyedCallsPerPrincipal';
    this.#onLimit(limit);
    return { kind: 'full', limit };
  }

  async end(call: KeyedCall, claim: string, outcome: string | undefined, keepMs: number): Promise<void> {
    const isKept = outcome !== undefined && Buffer.byteLength(outcome) <= this.#bounds.keyedOutcomeBytes;
    if (outcome !== undefined && !isKept) this.#onLimit('keyedOutcomeBytes');
    const entries = this.#redis.keys.keyedCall(call);
    const sealed = isKept ? this.#redis.box.seal(entries[0], outcome) : '';
    const { keyedOutcomesBytesPerPrincipal, keyedOutcomesBytes } = this.#bounds;
    const args = [claim, sealed, Math.ceil(keepMs), keyedOutcomesBytesPerPrincipal, keyedOutcomesBytes];
    const removed = String(await this.#redis.connection.run(END, entries, args));
    if (removed.includes('p')) this.#onLimit('keyedOutcomesBytesPerPrincipal');
    if (removed.includes('a')) this.#onLimit('keyedOutcomesBytes');
  }

  async release(call: KeyedCall, claim: string): Promise<void> {
    await this.#redis.connection.run(RELEASE, this.#redis.keys.keyedCall(call), [claim]);
  }
}
