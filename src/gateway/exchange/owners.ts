import { randomUUID } from 'node:crypto';
import { GatewayError } from '../../errors.ts';
import type { Notification } from '../../protocol/jsonrpc.ts';
import type { SessionRef } from '../../store/session-store.ts';
import type { Owner, Ownership } from '../front/front.ts';

/** Names a connection of a principal to an upstream. */
export interface ConnectionRef {
  readonly principal: string;
  /** The name of the connection, unique for the principal. */
  readonly name: string;
}

/**
 * State that lives in one process. `isForwarded` is true if another process has passed the request on, because this one has the state by
 * its knowledge, which is newer.
 */
export type OwnedState =
  /** A session, as its sealed id names it. A new one belongs to the process that asks, even if it leaves. */
  | { readonly kind: 'session'; readonly session: SessionRef; readonly isNew?: boolean; readonly isForwarded?: boolean }
  /** The connection of client groups to an upstream. */
  | { readonly kind: 'connection'; readonly ref: ConnectionRef; readonly isForwarded?: boolean }
  /** The name of the process that sealed the handle, or has the stream of a 2024-11-05 client; see {@link Owners.name}. */
  | { readonly kind: 'parked-call' | 'keyed-call' | 'task' | 'stream'; readonly process: string };

/** Finds the process that has a session, a parked call or a task. State stays there: requests that name it go there. */
export interface Owners {
  /** The name of this process. It cannot be guessed, and is never used again. */
  readonly name: string;
  /** True if there is no other process, so that every session is here and nobody needs to be asked. */
  readonly isAlone: boolean;
  /** True if no other process can have claimed a session of this one, so that it may be served without asking. */
  readonly isCurrent: boolean;
  /**
   * Returns where the owner is; a promise only if it must be looked up. A session without an owner belongs to the process that
   * asks, from then on. @throws {GatewayError} `store-unavailable` if it cannot be looked up.
   */
  ownerOf(owned: OwnedState): Ownership | Promise<Ownership>;
  /** Returns whether a session of this process still belongs to it. Asks only if {@link isCurrent} is false. */
  stillOwns(session: SessionRef): boolean | Promise<boolean>;
  /** Sets the function that runs if another process gets a session of this one, or ends it; at once if that has happened already. */
  onLost(session: SessionRef, listener: () => void): void;
  /**
   * Lets other processes have a session of this one.
   *
   * @param hasRequests true if requests of the session are in flight here; see {@link formerOf}.
   */
  release(session: SessionRef, hasRequests?: boolean): void;
  /** Returns whether a connection certainly belongs to this process. */
  holds(ref: ConnectionRef): boolean;
  /** Sets the function that runs if another process gets a connection of this one. */
  onConnectionLost(ref: ConnectionRef, listener: () => void): void;
  /** Lets other processes have a connection of this one. */
  releaseConnection(ref: ConnectionRef): void;
  /** Returns the process that had a session before, and may have requests of it in flight. Never rejects. */
  formerOf(session: SessionRef): Owner | undefined | Promise<Owner | undefined>;
  /** Returns another process that accepts new requests; undefined if this one does not leave, or there is none. */
  successor(): Owner | undefined;
}

/** A request that reaches a process which leaves is passed on again, at most this often. */
export const MAX_HOPS = 2;

/** The time that a request waits for the lease of an owner that cannot be reached to lapse, or for a way to it. */
export const OWNER_WAIT_MS = 8_000;
export const OWNER_RETRY_MS = 250;

/** Says to the former process of a session that the session has ended. Clients have no such method. */
export const SESSION_ENDED: Notification = {
  kind: 'notification',
  method: 'notifications/io.linkspan/session_ended',
  params: undefined,
};

export const HERE: Ownership = { kind: 'here' };
export const GONE: Ownership = { kind: 'gone' };

/** Refuses a new session that another process owns. @throws {GatewayError} `internal-error` */
export function assertClaimed(ownership: Ownership): void {
  if (ownership.kind === 'here') return;
  throw new GatewayError('internal-error', { message: 'the new session belongs to another process; open another one' });
}

const NOTHING = (): undefined => undefined;

/** The owners of a gateway of one process: nobody else can get what it has, or asks for it. */
export class LocalOwners implements Owners {
  readonly name: string = randomUUID();
  readonly isAlone = true;
  readonly isCurrent = true;
  readonly onLost = NOTHING;
  readonly onConnectionLost = NOTHING;
  readonly release = NOTHING;
  readonly releaseConnection = NOTHING;
  readonly formerOf = NOTHING;
  readonly successor = NOTHING;

  ownerOf(owned: OwnedState): Ownership {
    return owned.kind === 'session' || owned.kind === 'connection' || owned.process === this.name ? HERE : GONE;
  }

  stillOwns(): boolean {
    return true;
  }

  holds(): boolean {
    return true;
  }
}
