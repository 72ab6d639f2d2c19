import { randomUUID } from 'node:crypto';
import type { Request } from '../protocol/jsonrpc.ts';
import type { ModernCall, ModernCaller, ModernOutlet } from './front.ts';

/** A process that holds calls nobody else can go on with. */
export interface Owner {
  /** Answers a request that belongs to a call of its own, as if it had come there. */
  modern(request: Request, caller: ModernCaller, outlet: ModernOutlet): ModernCall;
}

/**
 * Where parked calls live: a port, since a client's retry may reach any of several processes. What is handed over is a request and
 * who makes it, all of it text, and where news of it goes.
 */
export interface Owners {
  /** Makes a process known. @returns its name, unguessable and never used again, and the way to forget it. */
  join(owner: Owner): { readonly name: string; readonly leave: () => void };
  /** Undefined when nobody of this name is there any more. */
  find(name: string): Owner | undefined;
}

/** Those of this process. */
export class LocalOwners implements Owners {
  readonly #owners = new Map<string, Owner>();

  join(owner: Owner): { readonly name: string; readonly leave: () => void } {
    const name = randomUUID();
    this.#owners.set(name, owner);
    return { name, leave: () => this.#owners.delete(name) };
  }

  find(name: string): Owner | undefined {
    return this.#owners.get(name);
  }
}
