import type { ServerResponse } from 'node:http';
import type { ModernCall, Outlet } from '../gateway/front.ts';
import { eventText } from '../protocol/event-stream.ts';
import { oneLine } from '../protocol/json.ts';
import { type Answer, type Id, responseText } from '../protocol/jsonrpc.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Shape } from './accept.ts';
import { Outflow } from './outflow.ts';
import type { Pulse } from './pulse.ts';
import { writeAnswer } from './reply.ts';
import { EVENT_STREAM_HEADERS, STUCK_MS } from './stream.ts';

/** A stream here is nothing to come back to, and ends the time in which an error has a status: only proof that we are alive. */
const DECIDE_MODERN_MS = 2_000;

/** Errors that have a status of their own where they are the whole answer. */
const STATUS: ReadonlyMap<number, number> = new Map([
  [-32601, 404],
  [-32020, 400],
  [-32021, 400],
  [-32022, 400],
]);

/**
 * What one modern request is answered with: a JSON body where the answer is the first thing said and comes soon, else events.
 * Nothing of it can be had again, so when the client goes, the request is over.
 */
export class ModernReply implements Outlet {
  readonly dueMs: number = performance.now() + DECIDE_MODERN_MS;
  readonly #response: ServerResponse;
  readonly #shape: Shape;
  readonly #pulse: Pulse;
  readonly #metrics: Metrics | undefined;
  #outflow: Outflow | undefined;
  #isOver = false;
  #call: ModernCall | undefined;

  constructor(response: ServerResponse, shape: Shape, pulse: Pulse, metrics: Metrics | undefined) {
    this.#response = response;
    this.#shape = shape;
    this.#pulse = pulse;
    this.#metrics = metrics;
    if (shape !== 'json') pulse.decideLater(this);
  }

  /** Whose answer it is going to be. */
  standsFor(call: ModernCall): void {
    this.#call = call;
  }

  /** The client has gone away: that is the end of the call. */
  gone(): void {
    this.#pulse.decided(this);
    if (this.#isOver) return;
    this.#isOver = true;
    this.#call?.cancel('the client disconnected');
  }

  answer(id: Id, answer: Answer): void {
    if (this.#isOver) return;
    this.#pulse.decided(this);
    if (this.#shape === 'events') this.#begin();
    this.#isOver = true;
    if (this.#outflow === undefined) {
      const status = answer.kind === 'error' ? STATUS.get(answer.error.code) : undefined;
      writeAnswer(this.#response, id, answer, undefined, status);
      return;
    }
    this.#write(responseText(id, answer));
    this.#outflow.end();
  }

  send(text: string): boolean {
    if (this.#isOver || this.#shape === 'json') return false;
    this.#begin();
    this.#write(text);
    return true;
  }

  #write(text: string): void {
    const event = eventText({ data: oneLine(text) });
    this.#outflow?.write({ seq: 0, text: event, bytes: Buffer.byteLength(event), atMs: 0 }, text);
  }

  commit(): void {
    this.#begin();
    this.#response.flushHeaders();
  }

  /** From here on it is events. The first of them takes the headers along. */
  #begin(): void {
    this.#pulse.decided(this);
    if (this.#outflow !== undefined || this.#isOver) return;
    const response = this.#response;
    const outflow: Outflow = new Outflow(
      response,
      {
        gone: () => {
          this.#pulse.closed(outflow);
          this.#metrics?.streams.post.remove();
        },
        dropped: () => this.#metrics?.dropped('slow-client'),
      },
      { isImpatient: true, stalled: (isStalled) => response.setTimeout(isStalled ? STUCK_MS : 0) },
    );
    this.#outflow = outflow;
    this.#metrics?.streams.post.add();
    this.#pulse.opened(outflow);
    response.writeHead(200, EVENT_STREAM_HEADERS);
  }
}
