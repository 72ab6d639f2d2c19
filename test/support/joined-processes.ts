import { randomUUID } from 'node:crypto';
import { GONE, HERE, type Owned, type Owners } from '../../src/gateway/exchange/owners.ts';
import type { Front, Owner, Ownership } from '../../src/gateway/front.ts';

/** One of the {@link JoinedProcesses}. */
export interface JoinedProcess extends Owners {
  /** Answers requests that other processes pass on. */
  serve(front: Pick<Front, 'handleModernRequest'>, forward?: Owner['forward']): void;
  /** Ends the process: what it owned is gone, and its sessions have no owner. */
  leave(): void;
}

/** The processes of one gateway, without a network between them. */
export class JoinedProcesses {
  readonly #owners = new Map<string, Owner>();
  /** Names of processes by session. */
  readonly #sessions = new Map<string, string>();
  /** Takes every session that another process opens, or rejects with an error; undefined for neither. */
  claimant: string | Error | undefined;

  join(): JoinedProcess {
    const name = randomUUID();
    const isHere = (owner: string): Ownership => {
      if (owner === name) return HERE;
      const found = this.#owners.get(owner);
      return found === undefined ? GONE : { kind: 'elsewhere', owner: found };
    };
    return {
      name,
      // Asks as another machine would, so that callers cannot count on an answer at once.
      ownerOf: async (owned: Owned) => {
        if (owned.kind !== 'session') return isHere(owned.process);
        const claimed = this.#sessions.get(owned.id);
        if (claimed !== undefined && isHere(claimed).kind !== 'gone') return isHere(claimed);
        if (this.claimant instanceof Error) throw this.claimant;
        if (this.claimant !== undefined) return isHere(this.claimant);
        this.#sessions.set(owned.id, name);
        return HERE;
      },
      serve: (front, forward = () => Promise.reject(new Error('this process has no HTTP'))) => {
        this.#owners.set(name, {
          forward,
          handleModernRequest: (request, caller, sink) => front.handleModernRequest(request, caller, sink, undefined),
        });
      },
      leave: () => void this.#owners.delete(name),
    };
  }
}
