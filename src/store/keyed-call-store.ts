import type { LimitName } from '../limits.ts';

/** A call that its client has named by an idempotency key. */
export interface KeyedCall {
  /** Key of the principal. */
  readonly principal: string;
  /** A text that is equal for equal calls of the principal, and for no others. */
  readonly name: string;
}

/**
 * The answer to a claim.
 *
 * - `claimed`: nobody has made the call; the claimant must make it and write its end, or release it.
 * - `running`: another claim holds the call.
 * - `ended`: the call was made. `outcome` is undefined if its text is not kept.
 * - `full`: the limit does not allow another call.
 */
export type ClaimAnswer =
  | { readonly kind: 'claimed' }
  | { readonly kind: 'running'; readonly claim: string }
  | { readonly kind: 'ended'; readonly outcome: string | undefined }
  | { readonly kind: 'full'; readonly limit: KeyedCallCount };

type KeyedCallCount = Extract<LimitName, 'keyedCalls' | 'keyedCallsPerPrincipal'>;
type KeyedOutcomeBytes = Extract<
  LimitName,
  'keyedOutcomeBytes' | 'keyedOutcomesBytes' | 'keyedOutcomesBytesPerPrincipal'
>;

/** The bounds of a store: those of `LIMITS`. Others are for tests. */
export type KeyedCallBounds = Readonly<Record<KeyedCallCount | KeyedOutcomeBytes, number>>;

/** Called with the name of a limit that refuses a call, or removes an outcome. */
export type OnKeyedCallLimit = (limit: KeyedCallCount | KeyedOutcomeBytes) => void;

/**
 * Stores calls with idempotency keys, so that each is made once by all processes. A call is forgotten only when its time is over. Beyond
 * the bounds in bytes the store removes outcomes, and keeps the fact that their calls have ended. Beyond those in calls it refuses new
 * ones.
 */
export interface KeyedCallStore {
  /**
   * Claims a call. A claim that holds the call already is answered with `claimed` again, so that a lost reply can be repeated.
   *
   * @param claim a text that no other attempt uses.
   * @param keepMs the longest time until {@link end}.
   */
  claim(call: KeyedCall, claim: string, keepMs: number): Promise<ClaimAnswer>;
  /**
   * Stores the end of a call, if the claim holds it.
   *
   * @param outcome undefined, or longer than `keyedOutcomeBytes`: only the fact that the call has ended is kept.
   * @param keepMs the time that it is kept from now on.
   */
  end(call: KeyedCall, claim: string, outcome: string | undefined, keepMs: number): Promise<void>;
  /** Lets the call be claimed again, if the claim holds it: it was not made. This claim must not be made again; one that arrives late holds nothing. */
  release(call: KeyedCall, claim: string): Promise<void>;
}
