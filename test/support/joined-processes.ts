import { randomUUID } from 'node:crypto';
import type { GatewayError } from '../../src/errors.ts';
import { type ConnectionRef, GONE, HERE, type OwnedState, type Owners } from '../../src/gateway/exchange/owners.ts';
import type { OutcomeStore } from '../../src/store/outcome-store.ts';
import type { SessionRef } from '../../src/store/session-store.ts';
import type { Counters } from '../../src/store/shared-counters.ts';
import type { Answer } from '../../src/protocol/jsonrpc.ts';
import type { Front, Owner, Ownership } from '../../src/gateway/front/front.ts';

const nameOf = ({ principal, serial }: SessionRef) => JSON.stringify([principal, serial]);
const nameOfConnection = ({ principal, name }: ConnectionRef) => JSON.stringify([principal, name]);

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
  /** What runs if a process loses a session, by session. */
  readonly #onLost = new Map<string, () => void>();
  /** What runs if a process loses a connection, by connection. */
  readonly #onConnectionLost = new Map<string, () => void>();
  /** Takes every session that another process opens, or rejects with an error; undefined for neither. */
  claimant: string | Error | undefined;
  /** The reason why no process can pass modern requests on; undefined if all can. */
  blockage: GatewayError | undefined;
  /** The answer to all modern requests that are passed on, as if the other process had been lost; undefined if none is. */
  loss: Answer | undefined;
  /** Stores the ends of parked calls for all processes; undefined if they are not stored. */
  outcomes: OutcomeStore | undefined;
  /** Counts for all processes together; undefined if each counts for itself. */
  counters: Counters | undefined;

  /** Takes a session from its owner and tells it so, as a store does when the session ends. */
  revoke(session: SessionRef): void {
    this.#sessions.delete(nameOf(session));
    this.#onLost.get(nameOf(session))?.();
  }

  /** Takes all connections from their processes and tells them so, as a store does when a lease has lapsed. */
  revokeConnections(): void {
    for (const [name, onLost] of this.#onConnectionLost) {
      this.#sessions.delete(name);
      onLost();
    }
    this.#onConnectionLost.clear();
  }

  join(): JoinedProcess {
    const name = randomUUID();
    const isHere = (owner: string): Ownership => {
      if (owner === name) return HERE;
      const found = this.#owners.get(owner);
      return found === undefined ? GONE : { kind: 'elsewhere', owner: found };
    };
    return {
      name,
      isAlone: false,
      isCurrent: true,
      stillOwns: (session) => this.#sessions.get(nameOf(session)) === name,
      onLost: (session, listener) => {
        if (this.#sessions.get(nameOf(session)) === name) this.#onLost.set(nameOf(session), listener);
        else listener();
      },
      formerOf: () => undefined,
      holds: (ref) => this.#sessions.get(nameOfConnection(ref)) === name,
      onConnectionLost: (ref, listener) => void this.#onConnectionLost.set(nameOfConnection(ref), listener),
      releaseConnection: (ref) => {
        this.#sessions.delete(nameOfConnection(ref));
        this.#onConnectionLost.delete(nameOfConnection(ref));
      },
      successor: () => undefined,
      release: (session) => {
        this.#sessions.delete(nameOf(session));
        this.#onLost.delete(nameOf(session));
      },
      // Asks as another machine would, so that callers cannot count on an answer at once.
      ownerOf: async (owned: OwnedState) => {
        if (owned.kind !== 'session' && owned.kind !== 'connection') return isHere(owned.process);
        const key = owned.kind === 'session' ? nameOf(owned.session) : nameOfConnection(owned.ref);
        const claimed = this.#sessions.get(key);
        if (claimed !== undefined && isHere(claimed).kind !== 'gone') return isHere(claimed);
        if (this.claimant instanceof Error) throw this.claimant;
        if (this.claimant !== undefined) return isHere(this.claimant);
        this.#sessions.set(key, name);
        return HERE;
      },
      serve: (front, forward = () => Promise.reject(new Error('this process has no HTTP'))) => {
        this.#owners.set(name, {
          forward,
          handleMessage: () => Promise.resolve(),
          handleModernRequest: (request, caller, sink, onUnreachable) => {
            if (this.loss !== undefined) sink.answer(this.loss);
            else if (this.blockage === undefined) {
              const { receivedMs } = sink;
              const send = (text: string) => sink.send(text);
              const own = { receivedMs, send, answer: (answer: Answer) => sink.answer(answer, true) };
              return front.handleModernRequest(request, { ...caller, hops: (caller.hops ?? 0) + 1 }, own, undefined);
            } else onUnreachable(this.blockage);
            return { cancel: () => undefined, close: () => undefined };
          },
        });
      },
      leave: () => void this.#owners.delete(name),
    };
  }
}
