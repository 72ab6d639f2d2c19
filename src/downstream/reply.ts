import type { ServerResponse } from 'node:http';
import type { Outlet } from '../gateway/front.ts';
import type { Id } from '../protocol/jsonrpc.ts';
import type { Shape } from './accept.ts';
import type { Pulse } from './pulse.ts';
import type { SessionStreams } from './session-streams.ts';
import type { EventStream } from './stream.ts';

/** Written to the Node response itself: a web `Response` in between would double what a small answer costs. */
export function writeJson(response: ServerResponse, text: string, sessionId?: string): void {
  const bytes = Buffer.byteLength(text);
  const headers: Record<string, string | number> = { 'content-type': 'application/json', 'content-length': bytes };
  if (sessionId !== undefined) headers['mcp-session-id'] = sessionId;
  response.writeHead(200, headers);
  // As many bytes as characters is ASCII, which needs no encoding, only copying.
  response.end(text, bytes === text.length ? 'latin1' : 'utf8');
}

export interface ReplyOptions {
  readonly shape: Shape;
  /** The one request it answers; undefined for a batch. */
  readonly request: Id | undefined;
  /** How many answers make it complete. */
  readonly expected: number;
}

/**
 * What one POST is answered with: a JSON body where the answer is the first thing said and comes soon, else events.
 */
export class Reply implements Outlet {
  readonly startedMs: number = performance.now();
  readonly #response: ServerResponse;
  readonly #options: ReplyOptions;
  readonly #pulse: Pulse;
  readonly #streams: () => SessionStreams | undefined;
  #answers: string[] = [];
  #answered = 0;
  #stream: EventStream | undefined;

  /** @param streams asked for when events are needed, which most replies do not. Undefined when the session is over. */
  constructor(
    response: ServerResponse,
    options: ReplyOptions,
    pulse: Pulse,
    streams: () => SessionStreams | undefined,
  ) {
    this.#response = response;
    this.#options = options;
    this.#pulse = pulse;
    this.#streams = streams;
    if (options.shape !== 'json') pulse.decideLater(this);
  }

  send(text: string): boolean {
    if (this.#answered === this.#options.expected || this.#options.shape === 'json') return false;
    if (this.#stream === undefined) this.commit();
    return this.#stream?.send(text) ?? false;
  }

  /** One of the expected answers; the last one ends the reply. */
  answer(text: string): void {
    const { expected, request, shape } = this.#options;
    const isLast = ++this.#answered === expected;
    if (isLast) this.#pulse.decided(this);
    if (isLast && shape === 'events' && this.#stream === undefined) this.commit();

    if (this.#stream !== undefined) {
      if (isLast) this.#stream.finish(text);
      else this.#stream.send(text);
      return;
    }
    if (request === undefined) this.#answers.push(text);
    // The legacy era has no use for a disconnect: the request ran, and its answer has nowhere to go.
    if (!isLast || this.#response.destroyed) return;
    writeJson(this.#response, request === undefined ? `[${this.#answers.join(',')}]` : text);
  }

  commit(): void {
    this.#pulse.decided(this);
    if (this.#stream !== undefined || this.#response.destroyed) return;
    this.#stream = this.#streams()?.open(this.#response, this.#options.request);
    for (const answer of this.#answers) this.#stream?.send(answer);
    this.#answers = [];
  }
}
