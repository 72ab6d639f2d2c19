import { hash } from 'node:crypto';
import { detach } from '../../json/kept-text.ts';
import { LIMITS } from '../../limits.ts';
import { getOrMake } from '../../map-entries.ts';
import { ExpirySteps } from './expiry-steps.ts';
import type { ClaimAnswer, KeyedCall, KeyedCallBounds, KeyedCallStore, OnKeyedCallLimit } from '../keyed-call-store.ts';

interface Stored {
  readonly principal: string;
  /** Undefined after the end of the call. */
  claim: string | undefined;
  outcome: string | undefined;
  bytes: number;
  /** Monotonic ms. */
  untilMs: number;
}

/** The calls of one principal, and their outcomes. */
interface Held {
  calls: number;
  bytes: number;
  /** Names of calls with an outcome, in the order of their ends. */
  readonly outcomes: Set<string>;
}

/** Stores calls in memory. They are forgotten at the end of the process. */
export class MemoryKeyedCallStore implements KeyedCallStore {
  readonly #onLimit: OnKeyedCallLimit;
  readonly #bounds: KeyedCallBounds;
  readonly #calls = new Map<string, Stored>();
  /** A reload may change the time that calls are kept, so later ones may expire first. */
  readonly #expiries = new ExpirySteps(performance.now());
  readonly #held = new Map<string, Held>();
  /** Names of all calls with an outcome, in the order of their ends. */
  readonly #outcomes = new Set<string>();
  #bytes = 0;

  constructor(onLimit: OnKeyedCallLimit, bounds: KeyedCallBounds = LIMITS) {
    this.#onLimit = onLimit;
    this.#bounds = bounds;
  }

  async claim(call: KeyedCall, claim: string, keepMs: number): Promise<ClaimAnswer> {
    const nowMs = performance.now();
    for (const expired of this.#expiries.takeExpired(nowMs)) this.#remove(expired);
    const name = nameOf(call);
    const known = this.#calls.get(name);
    if (known !== undefined && known.untilMs > nowMs) {
      if (known.claim === undefined) return { kind: 'ended', outcome: known.outcome };
      return known.claim === claim ? { kind: 'claimed' } : { kind: 'running', claim: known.claim };
    }
    this.#remove(name);
    const limit = this.#fullLimit(call.principal);
    if (limit !== undefined) {
      this.#onLimit(limit);
      return { kind: 'full', limit };
    }
    const principal = detach(call.principal);
    const untilMs = nowMs + keepMs;
    this.#calls.set(name, { principal, claim: detach(claim), outcome: undefined, bytes: 0, untilMs });
    this.#expiries.add(name, untilMs);
    getOrMake(this.#held, principal, () => ({ calls: 0, bytes: 0, outcomes: new Set<string>() })).calls++;
    return { kind: 'claimed' };
  }

  #fullLimit(principal: string): 'keyedCalls' | 'keyedCallsPerPrincipal' | undefined {
    if ((this.#held.get(principal)?.calls ?? 0) >= this.#bounds.keyedCallsPerPrincipal) return 'keyedCallsPerPrincipal';
    return this.#calls.size >= this.#bounds.keyedCalls ? 'keyedCalls' : undefined;
  }

  async end(call: KeyedCall, claim: string, outcome: string | undefined, keepMs: number): Promise<void> {
    const name = nameOf(call);
    const known = this.#calls.get(name);
    if (known?.claim !== claim) return;
    known.claim = undefined;
    this.#expiries.remove(name, known.untilMs);
    known.untilMs = performance.now() + keepMs;
    this.#expiries.add(name, known.untilMs);
    if (outcome === undefined) return;
    if (Buffer.byteLength(outcome) > this.#bounds.keyedOutcomeBytes) return this.#onLimit('keyedOutcomeBytes');
    this.#keep(name, known, outcome);
  }

  #keep(name: string, stored: Stored, outcome: string): void {
    const held = this.#held.get(stored.principal);
    if (held === undefined) return;
    stored.outcome = detach(outcome);
    stored.bytes = 2 * outcome.length;
    this.#outcomes.add(name);
    held.outcomes.add(name);
    this.#bytes += stored.bytes;
    held.bytes += stored.bytes;
    while (held.bytes > this.#bounds.keyedOutcomesBytesPerPrincipal) {
      this.#onLimit('keyedOutcomesBytesPerPrincipal');
      this.#dropFirst(held.outcomes);
    }
    while (this.#bytes > this.#bounds.keyedOutcomesBytes) {
      this.#onLimit('keyedOutcomesBytes');
      this.#dropFirst(this.#outcomes);
    }
  }

  #dropFirst(names: ReadonlySet<string>): void {
    const [first = ''] = names;
    const stored = this.#calls.get(first);
    if (stored !== undefined) this.#drop(first, stored);
  }

  #drop(name: string, stored: Stored): void {
    this.#outcomes.delete(name);
    this.#bytes -= stored.bytes;
    const held = this.#held.get(stored.principal);
    if (held !== undefined) {
      held.bytes -= stored.bytes;
      held.outcomes.delete(name);
    }
    stored.outcome = undefined;
    stored.bytes = 0;
  }

  async release(call: KeyedCall, claim: string): Promise<void> {
    const name = nameOf(call);
    if (this.#calls.get(name)?.claim === claim) this.#remove(name);
  }

  #remove(name: string): void {
    const stored = this.#calls.get(name);
    if (stored === undefined) return;
    this.#drop(name, stored);
    this.#calls.delete(name);
    this.#expiries.remove(name, stored.untilMs);
    const held = this.#held.get(stored.principal);
    if (held === undefined) return;
    held.calls--;
    if (held.calls === 0) this.#held.delete(stored.principal);
  }
}

function nameOf({ principal, name }: KeyedCall): string {
  return hash('sha256', JSON.stringify([principal, name]), 'base64url');
}
