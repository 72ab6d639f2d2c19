import type { ServerResponse } from 'node:http';
import type { ModernCall, ModernOutlet } from '../gateway/front.ts';
import { eventText } from '../protocol/event-stream.ts';
import { oneLine } from '../json/json.ts';
import { type Answer, type Request, responseText } from '../protocol/jsonrpc.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Shape } from './accept.ts';
import type { Departures, UnderWay } from './departures.ts';
import { Outflow } from './outflow.ts';
import type { Pulse } from './pulse.ts';
import { writeAnswer } from './reply.ts';
import { EVENT_STREAM_HEADERS, STUCK_MS } from './stream.ts';

/** A stream here is nothing to come back to, and ends the time in which an error has a status: only proof that we are alive. */
const DECIDE_MODERN_MS = 2_000;

const GONE = 'the client disconnected';

/** Errors that have a status of their own where they are the whole answer. */
const STATUS: ReadonlyMap<number, number> = new Map([
  [-32601, 404],
  [-32020, 400],
  [-32021, 400],
  [-32022, 400],
]);

export interface ModernReplyParts {
  readonly pulse: Pulse;
  readonly metrics: Metrics | undefined;
  readonly departures: Departures;
  /** Told when it is answered. */
  replied(reply: ModernReply): void;
  /** Told when the answer could not be written. */
  failed(thrown: unknown, response: ServerResponse): void;
}

/**
 * What one modern request is answered with: a JSON body where the answer is the first thing said and comes soon, else events.
 * Nothing of it can be had again, so when the client goes, the request is over.
 */
export class ModernReply implements ModernOutlet {
  readonly sinceMs: number = performance.now();
  readonly dueMs: number = this.sinceMs + DECIDE_MODERN_MS;
  readonly request: Request;
  readonly #response: ServerResponse;
  readonly #shape: Shape;
  readonly #parts: ModernReplyParts;
  readonly #underWay: UnderWay;
  #outflow: Outflow | undefined;
  #isOver = false;
  #hasGone = false;
  #call: ModernCall | undefined;

  constructor(response: ServerResponse, request: Request, shape: Shape, parts: ModernReplyParts) {
    this.#response = response;
    this.request = request;
    this.#shape = shape;
    this.#parts = parts;
    if (shape !== 'json') parts.pulse.decideLater(this);
    this.#underWay = parts.departures.watch(response.req.socket, this);
  }

  /** Whose answer it is, or is going to be. */
  standsFor(call: ModernCall): void {
    this.#call = call;
    if (this.#hasGone) call.cancel(GONE);
  }

  /** The client has gone away: that is the end of the call. */
  gone(): void {
    this.#parts.pulse.decided(this);
    if (this.#isOver) return;
    this.#isOver = true;
    this.#hasGone = true;
    this.#call?.cancel(GONE);
  }

  /** Ends what has no end of its own. */
  close(): void {
    this.#call?.close();
  }

  answer(answer: Answer): void {
    this.#underWay.delete(this);
    this.#parts.replied(this);
    if (this.#isOver) return;
    try {
      this.#write(answer);
    } catch (thrown) {
      this.#parts.failed(thrown, this.#response);
    }
  }

  #write(answer: Answer): void {
    const { id } = this.request;
    this.#parts.pulse.decided(this);
    if (this.#shape === 'events') this.#begin();
    this.#isOver = true;
    if (this.#outflow === undefined) {
      const status = answer.kind === 'error' ? STATUS.get(answer.error.code) : undefined;
      writeAnswer(this.#response, id, answer, undefined, status);
      return;
    }
    this.#event(responseText(id, answer));
    this.#outflow.end();
  }

  send(text: string): boolean {
    if (this.#isOver || this.#shape === 'json') return false;
    this.#begin();
    this.#event(text);
    return true;
  }

  #event(text: string): void {
    const event = eventText({ data: oneLine(text) });
    this.#outflow?.write({ seq: 0, text: event, bytes: Buffer.byteLength(event), atMs: 0 }, text);
  }

  commit(): void {
    this.#begin();
    this.#response.flushHeaders();
  }

  /** From here on it is events. The first of them takes the headers along. */
  #begin(): void {
    const { pulse, metrics } = this.#parts;
    pulse.decided(this);
    if (this.#outflow !== undefined || this.#isOver) return;
    const response = this.#response;
    const outflow: Outflow = new Outflow(
      response,
      {
        gone: () => {
          pulse.closed(outflow);
          metrics?.streams.post.remove();
        },
        dropped: () => metrics?.dropped('slow-client'),
      },
      { isImpatient: true, stalled: (isStalled) => response.setTimeout(isStalled ? STUCK_MS : 0) },
    );
    this.#outflow = outflow;
    metrics?.streams.post.add();
    pulse.opened(outflow);
    response.writeHead(200, EVENT_STREAM_HEADERS);
  }
}
