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
  /** Makes a process known by a name that is unguessable and never used again. */
  join(name: string, owner: CallOwner): void;
  leave(name: string): void;
  /** Resolves with undefined when there is no process of this name any more. */
  find(name: string): Promise<CallOwner | undefined>;
}

/** Those of this process. */
export class LocalCallOwners implements CallOwners {
  readonly #callOwners = new Map<string, CallOwner>();

  join(name: string, owner: CallOwner): void {
    this.#callOwners.set(name, owner);
  }

  leave(name: string): void {
    this.#callOwners.delete(name);
  }

  async find(name: string): Promise<CallOwner | undefined> {
    return this.#callOwners.get(name);
  }
}
