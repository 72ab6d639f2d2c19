import type { LimitName } from '../limits.ts';

/** Names one session. All of it is sealed into the session's id. */
export interface SessionRef {
  /** The key of the principal that the session belongs to. */
  readonly principal: string;
  /** From {@link SessionStore.nextSerial}. */
  readonly serial: number;
  /** Ms since the epoch; from then on the id does not open, and the store forgets the session. */
  readonly expiresMs: number;
}

/** The state of a session that changes after `initialize`. Everything else about it is sealed into its id. */
export interface SessionRecord {
  readonly logLevel?: string;
  /** URIs as the client knows them. */
  readonly subscriptions: readonly string[];
  /** Ids of the upstreams that kept state for the session. */
  readonly upstreams?: readonly string[];
}

export type SessionChange =
  | { readonly kind: 'level'; readonly level: string }
  | { readonly kind: 'subscribe' | 'unsubscribe'; readonly uri: string }
  /** An upstream keeps state for the session from now on. */
  | { readonly kind: 'use'; readonly upstream: string };

/**
 * Keeps the state of sessions that outlives their time in memory.
 *
 * A change holds in this process as soon as it is made. When it cannot be written, the store retries until it can.
 */
export interface SessionStore extends AsyncDisposable {
  /** Why changes cannot be written at the moment; undefined while they can. */
  readonly failure: string | undefined;
  /**
   * Returns the serial number of a new session: greater than all before, and the next one after the principal's last where
   * that is possible.
   *
   * @throws {GatewayError} `overloaded` beyond the limit `sessionPrincipals`.
   */
  nextSerial(principal: string): Promise<number>;
  /** Returns undefined when the session has no record, or has ended. */
  load(session: SessionRef): Promise<SessionRecord | undefined>;
  /** Changes the record of a session that has not ended. Returns the limit that forbids it; then nothing has changed. */
  change(session: SessionRef, change: SessionChange): Promise<LimitName | undefined>;
  /** Ends a session for good. Resolves with false when a restart could still revive it, because it is not written yet. */
  end(session: SessionRef): Promise<boolean>;
  isEnded(session: SessionRef): Promise<boolean>;
}
