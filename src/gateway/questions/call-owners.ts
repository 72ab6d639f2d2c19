import { randomUUID } from 'node:crypto';
import type { Request } from '../../protocol/jsonrpc.ts';
import type { ModernCall, ModernCaller, ModernSink } from '../front.ts';

/** A process that holds calls nobody else can go on with. */
export interface CallOwner {
  /** Answers a request that belongs to a call of its own, as if it had come there. */
  modern(request: Request, caller: ModernCaller, sink: ModernSink): ModernCall;
}

/**
 * Where parked calls live: a port, since a client's retry may reach any of several processes. What is handed over is a request and
 * who makes it, all of it text, and where news of it goes.
 */
export interface CallOwners {
  /** Makes a process known. @returns its name, unguessable and never used again, and the way to forget it. */
  join(owner: CallOwner): { readonly name: string; readonly leave: () => void };
  /** Undefined when nobody of this name is there any more. */
  find(name: string): CallOwner | undefined;
}

/** Those of this process. */
export class LocalCallOwners implements CallOwners {
  readonly #callOwners = new Map<string, CallOwner>();

  join(owner: CallOwner): { readonly name: string; readonly leave: () => void } {
    const name = randomUUID();
    this.#callOwners.set(name, owner);
    return { name, leave: () => this.#callOwners.delete(name) };
  }

  find(name: string): CallOwner | undefined {
    return this.#callOwners.get(name);
  }
}
