import type { Plan, PlannedCall, UpstreamName } from './plan.ts';

/** The statement of an error about its request; undefined if it makes none. */
export type Claim = 'no' | 'yes' | 'unknown' | undefined;

/**
 * The end of a call for its client: a result, an error, a connection that was closed without an answer, or the client's own decision not to
 * wait for one.
 */
export type End = { readonly atMs: number } & (
  | {
      readonly kind: 'ok';
      readonly nonce: string | undefined;
      readonly run: string | undefined;
      /** The upstream whose lost state the answer reports; undefined if it reports none. */
      readonly lost: string | undefined;
    }
  | { readonly kind: 'error'; readonly claim: Claim; readonly code: string; readonly text: string }
  | { readonly kind: 'closed'; readonly why: string }
  | { readonly kind: 'abandoned' }
);

/** One sending of a call. A client sends a call again only after an error that claims `no`. */
export interface Attempt {
  readonly call: PlannedCall;
  readonly number: number;
  readonly sentMs: number;
  /** More than one is a violation. */
  readonly ends: End[];
  /** The numbers of the progress notifications, in the order of arrival, over all resumptions. */
  readonly progress: number[];
  /** Events that are worth reading if the call has a violation. */
  readonly notes: string[];
  resumed: number;
  /** The session in which it was sent; undefined if there is none. */
  session: string | undefined;
}

/** Everything that one client has sent and received. */
export interface History {
  readonly client: string;
  readonly attempts: Attempt[];
  /** All nonces in all bytes that were received. */
  readonly seen: Set<string>;
}

/** One execution, which the upstream has recorded before it acted. */
export interface LedgerEntry {
  readonly upstream: UpstreamName;
  readonly call: string;
  readonly attempt: number;
  readonly nonce: string;
  /** Names the execution. The answer repeats it. */
  readonly run: string;
  /** Names the connection whose state the execution has used; empty for an upstream without state. */
  readonly state: string;
  readonly atMs: number;
}

/** The time that a client needed after the last fault until an upstream answered it again; undefined if none did. */
export interface Recovery {
  readonly client: string;
  readonly upstream: UpstreamName;
  readonly tookMs: number | undefined;
  /** The last failure before. */
  readonly last: string;
}

/** The record of one trial. Times are ms since its begin. */
export interface Trial {
  readonly plan: Plan;
  readonly histories: readonly History[];
  readonly ledger: readonly LedgerEntry[];
  readonly recoveries: readonly Recovery[];
  /** Processes that outlived their replica, and replicas that ended by themselves. */
  readonly defects: readonly string[];
  /** The longest time from the end of a replica to that of its last child. */
  readonly longestChildMs: number;
}
