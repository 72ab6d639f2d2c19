import { requestText } from '../../protocol/jsonrpc.ts';
import { nextRequestId } from '../rpc/request-ids.ts';
import type { Outgoing } from '../rpc/transport.ts';

/** The longest wait for the answer to a ping. */
const ANSWER_MS = 5_000;

/** The shortest time between two pings. Some servers always refuse certain requests. */
const PAUSE_MS = 5_000;

/** A refusal that is held back. */
interface Refusal {
  /** Our id of the request; undefined for a notification or response. */
  readonly id: number | undefined;
  /** True if the request may have run. */
  readonly mayHaveRun: boolean;
  /** Passes the refusal on, as one that is not about the session. */
  passOn(): void;
}

/**
 * Asks by `ping` whether the server still knows a session, after an answer that leaves this open. A ping that is refused for it ends the session;
 * any other outcome leaves it as it is.
 */
export class SessionCheck {
  readonly #send: (ping: Outgoing) => void;
  readonly #forget: (id: number) => void;
  #held: Refusal[] = [];
  #pingId: number | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Monotonic ms. */
  #endedMs = -Infinity;

  constructor(send: (ping: Outgoing) => void, forget: (id: number) => void) {
    this.#send = send;
    this.#forget = forget;
  }

  isPing(id: number | undefined): boolean {
    return id !== undefined && id === this.#pingId;
  }

  /** Holds a refusal back until the session was asked. Passes it on if that was just done. */
  hold(refusal: Refusal): void {
    this.#held.push(refusal);
    this.ask();
    if (this.#pingId === undefined) this.passOn();
  }

  /** Asks, unless a ping is under way or was just answered. */
  ask(): void {
    if (this.#pingId !== undefined || performance.now() - this.#endedMs < PAUSE_MS) return;
    const id = nextRequestId();
    this.#pingId = id;
    this.#timer = setTimeout(() => {
      this.#forget(id);
      this.passOn();
    }, ANSWER_MS);
    this.#send({ text: requestText(id, 'ping', undefined), id, method: 'ping' });
  }

  /** Drops the refusal of a request that nobody waits for any more. */
  forget(id: number): void {
    this.#held = this.#held.filter((refusal) => refusal.id !== id);
  }

  /** Ends the check, and passes on what was held back. */
  passOn(): void {
    for (const refusal of this.end()) refusal.passOn();
  }

  /** Ends the check. Returns what was held back. */
  end(): readonly Refusal[] {
    if (this.#pingId !== undefined) this.#endedMs = performance.now();
    clearTimeout(this.#timer);
    this.#pingId = undefined;
    const held = this.#held;
    this.#held = [];
    return held;
  }
}
