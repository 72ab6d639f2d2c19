import { GatewayError } from '../errors.ts';
import type { Answer, Request } from '../protocol/jsonrpc.ts';
import { progressTokenOf } from '../protocol/meta.ts';
import type { ErrorType } from '../telemetry/operation.ts';
import type { Call } from '../upstream/call.ts';
import type { Gate, Place } from '../upstream/gate.ts';
import type { Outlet } from './front.ts';
import type { Client, Exchange } from './exchange.ts';
import type { Party } from './party.ts';

const NOWHERE: Outlet = { send: () => false };

/** An exchange on its way: waiting for room, under way at its upstream, or called off. */
export class OpenExchange implements Exchange {
  client: Client;
  /** Whose connections it goes by. */
  readonly party: Party;
  request: Request;
  outlet: Outlet;
  progressToken: string | undefined;
  upstream: string | undefined;
  /** Published name of the tool that is called, for metrics. */
  tool: string | undefined;
  /** What the upstream had to say in the end, and how that counts. */
  ended: { readonly answer: Answer | GatewayError; readonly error: ErrorType | undefined } | undefined;
  /** Why it ended before the upstream did. */
  failure: GatewayError | undefined;
  #call: Call<Exchange> | undefined;
  #gate: Gate | undefined;
  #cancelled = false;
  /** Ends what is waited for besides a call. */
  #onCancel: (() => void) | undefined;
  /** The last progress told: it only ever grows, through however many calls it takes. */
  #progress = -Infinity;

  constructor(client: Client, party: Party, request: Request, outlet: Outlet) {
    this.client = client;
    this.party = party;
    this.request = request;
    this.outlet = outlet;
    this.progressToken = progressTokenOf(request.params);
  }

  /** Takes a place at the upstream; undefined when there was one at once. @throws {GatewayError} `overloaded`, `cancelled` */
  enter(gate: Gate): Promise<void> | undefined {
    this.#check();
    const place = gate.enter();
    if (place !== undefined) return this.#wait(place, gate);
    this.#gate = gate;
    return undefined;
  }

  async #wait(place: Place, gate: Gate): Promise<void> {
    this.#onCancel = () => place.giveUp(new GatewayError('cancelled', { executed: 'no' }));
    await place.entered;
    this.#gate = gate;
    if (this.#cancelled) this.leave();
    this.#check();
  }

  /** Waits for something that can be left alone at any time. @throws {GatewayError} `cancelled` */
  async unlessCancelled<T>(wanted: Promise<T>): Promise<T> {
    this.#check();
    const { promise: cancelled, reject } = Promise.withResolvers<never>();
    const executed = this.#call === undefined ? 'no' : 'unknown';
    this.#onCancel = () => reject(new GatewayError('cancelled', { executed }));
    try {
      return await Promise.race([wanted, cancelled]);
    } finally {
      this.#onCancel = undefined;
    }
  }

  #check(): void {
    if (this.#cancelled) throw new GatewayError('cancelled', { executed: 'no' });
  }

  /** Nobody is there to be told anything, until somebody takes it up again. */
  detach(): void {
    this.outlet = NOWHERE;
  }

  /** Goes on for the same request made again. */
  attach(client: Client, request: Request, outlet: Outlet): void {
    this.client = client;
    this.request = request;
    this.outlet = outlet;
    this.progressToken = progressTokenOf(request.params);
  }

  advances(progress: number): boolean {
    // What is no number does not grow.
    if (!(progress > this.#progress)) return false;
    this.#progress = progress;
    return true;
  }

  leave(): void {
    this.#gate?.leave();
    this.#gate = undefined;
  }

  /** From here on a cancel reaches the upstream. */
  begin(call: Call<Exchange>): void {
    this.#call = call;
  }

  fail(error: GatewayError): void {
    this.failure = error;
    this.cancel(error.message);
  }

  cancel(reason: string | undefined): void {
    this.#cancelled = true;
    this.#onCancel?.();
    this.#call?.cancel(reason);
  }
}
