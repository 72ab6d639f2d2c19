import type { Request } from '../../protocol/jsonrpc.ts';
import type { ModernCall, ModernCaller, ModernSink } from '../front.ts';

/** A process with parked calls that no other process can continue. */
export interface CallOwner {
  /** Handles a retry of one of its parked calls, as if the process had received it. */
  handleModernRequest(request: Request, caller: ModernCaller, sink: ModernSink): ModernCall;
}

/**
 * Finds the process of a parked call, since a retry may reach any of several processes. The handed-over data are a
 * request, its caller and a sink, so that an implementation can send them as text.
 */
export interface CallOwners {
  /** Registers a process under a name that cannot be guessed and is never used again. */
  add(name: string, owner: CallOwner): void;
  remove(name: string): void;
  /** Resolves with the process of this name; undefined if it does not exist any more. */
  find(name: string): Promise<CallOwner | undefined>;
}

/** The call owners within this process. */
export class LocalCallOwners implements CallOwners {
  readonly #callOwners = new Map<string, CallOwner>();

  add(name: string, owner: CallOwner): void {
    this.#callOwners.set(name, owner);
  }

  remove(name: string): void {
    this.#callOwners.delete(name);
  }

  async find(name: string): Promise<CallOwner | undefined> {
    return this.#callOwners.get(name);
  }
}
