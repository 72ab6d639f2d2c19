import type { LimitName } from '../limits.ts';

/** Identifies one session. All members are sealed into the session's id. */
export interface SessionRef {
  /** The key of the principal that the session belongs to. */
  readonly principal: string;
  /** From {@link SessionStore.nextSerial}. */
  readonly serial: number;
  /** Ms since the epoch. Afterwards the id is invalid, and the store removes the session. */
  readonly expiresMs: number;
}

/** The state of a session that changes after `initialize`. All other state is sealed into its id. */
export interface SessionRecord {
  readonly logLevel?: string;
  /** Published URIs. */
  readonly subscriptions: readonly string[];
  /** Ids of the upstreams that keep state for the session. */
  readonly upstreams?: readonly string[];
  /** Texts by which this or another process continues the session at upstreams. */
  readonly attachments?: readonly { readonly upstream: string; readonly text: string }[];
}

export type SessionChange =
  | { readonly kind: 'level'; readonly level: string }
  | { readonly kind: 'subscribe' | 'unsubscribe'; readonly uri: string }
  /** An upstream keeps state for the session from now on. */
  | { readonly kind: 'use'; readonly upstream: string }
  /** The session can be continued at an upstream with this text, which replaces an earlier one. */
  | { readonly kind: 'attach'; readonly upstream: string; readonly text: string };

/** Attachments may take this part of the space for records, since the session goes on without them. */
export const ATTACHMENTS_FRACTION = 0.5;

/** The parts of a process that shares its session store with others. A change carries the placement of its session. */
export interface Fencing {
  /** Returns the placement of a session of this process, as text; undefined if it has none. */
  readonly fenceOf: (session: SessionRef) => string | undefined;
  /** Called when a change is refused. Finds out whether the session still belongs to this process. Never rejects. */
  readonly onFenced: (session: SessionRef) => Promise<void>;
}

/**
 * Stores the session state that must survive a restart.
 *
 * A change is valid in this process at once. If it cannot be written, the store retries until it can.
 */
export interface SessionStore extends AsyncDisposable {
  /** The reason why changes cannot be written at present; undefined if they can. */
  readonly failure: string | undefined;
  /**
   * Returns the serial number of a new session. It is greater than all earlier ones, and follows the principal's last
   * one directly if possible.
   *
   * @throws {GatewayError} `overloaded` beyond the limit `sessionPrincipals`.
   */
  nextSerial(principal: string): Promise<number>;
  /** Returns the record of a session, or undefined if it has none or has ended. */
  load(session: SessionRef): Promise<SessionRecord | undefined>;
  /**
   * Changes the record of a session that has not ended. Returns undefined, or why nothing was changed. It is the limit that forbids it, or
   * `fenced` if the session does not belong to this process any more.
   */
  change(session: SessionRef, change: SessionChange): Promise<LimitName | 'fenced' | undefined>;
  /**
   * Ends a session permanently. Resolves with false if the end is not written yet, so that a restart could revive the
   * session.
   */
  end(session: SessionRef): Promise<boolean>;
  isEnded(session: SessionRef): Promise<boolean>;
}
