import { randomUUID } from 'node:crypto';
import { GatewayError } from '../../errors.ts';
import type { Ownership } from '../front.ts';

/** State that lives in one process, as the text that a client sends names it. */
export type Owned =
  /** The `Mcp-Session-Id`, or the secret in the POST path of a 2024-11-05 client. */
  | { readonly kind: 'session'; readonly id: string }
  /** The name of the process that sealed the handle; see {@link Owners.name}. */
  | { readonly kind: 'parked-call' | 'task'; readonly process: string };

/**
 * Finds the process that has a session, a parked call or a task. State in a process stays there, and requests that name it go
 * there.
 */
export interface Owners {
  /** The name of this process. It cannot be guessed, and is never used again. */
  readonly name: string;
  /**
   * Returns where the owner is; a promise only if it must be looked up. A session without an owner belongs to the process that
   * asks, from then on.
   */
  ownerOf(owned: Owned): Ownership | Promise<Ownership>;
}

export const HERE: Ownership = { kind: 'here' };
export const GONE: Ownership = { kind: 'gone' };

/** Refuses a new session that another process owns. @throws {GatewayError} `internal-error` */
export function assertClaimed(ownership: Ownership): void {
  if (ownership.kind === 'here') return;
  throw new GatewayError('internal-error', { message: 'the new session belongs to another process; open another one' });
}

/** The owners of a gateway of one process. */
export class LocalOwners implements Owners {
  readonly name: string = randomUUID();

  ownerOf(owned: Owned): Ownership {
    return owned.kind === 'session' || owned.process === this.name ? HERE : GONE;
  }
}
