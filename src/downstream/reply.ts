import type { ServerResponse } from 'node:http';
import type { ClientSession, MessageSink } from '../gateway/front.ts';
import { type Answer, type Id, responseText } from '../protocol/jsonrpc.ts';
import type { Shape } from './admission/accept.ts';
import { DECIDE_MS, type EdgeTimers } from './streams/edge-timers.ts';
import type { SessionStreams } from './streams/session-streams.ts';
import type { EventStream } from './streams/event-stream.ts';

function writeHead(response: ServerResponse, status: number, bytes: number, sessionId?: string): void {
  const headers = ['content-type', 'application/json', 'content-length', String(bytes)];
  if (sessionId !== undefined) headers.push('mcp-session-id', sessionId);
  response.writeHead(status, headers);
}

/** Written to the Node response itself: a web `Response` in between would double what a small answer costs. */
function writeText(response: ServerResponse, status: number, text: string, bytes: number, sessionId?: string): void {
  writeHead(response, status, bytes, sessionId);
  // As many bytes as characters is ASCII, which needs no encoding, only copying.
  response.end(text, bytes === text.length ? 'latin1' : 'utf8');
}

/** Of what stands before a result: mostly the id is a number, and then all of it is ASCII. */
function headBytes(id: Id, head: string): number {
  return id.startsWith('"') ? Buffer.byteLength(head) : head.length;
}

/**
 * Writes one answer as JSON. A big result is joined to what surrounds it as late as can be: what asks for the length of joined text
 * makes it be copied.
 */
export function writeAnswer(response: ServerResponse, id: Id, answer: Answer, sessionId?: string, status = 200): void {
  if (answer.kind === 'error') {
    const text = responseText(id, answer);
    writeText(response, status, text, Buffer.byteLength(text), sessionId);
    return;
  }
  const head = `{"jsonrpc":"2.0","id":${id},"result":`;
  const { tail } = answer;
  if (tail === undefined) {
    const { result, parsedResult } = answer;
    const resultBytes = parsedResult?.isAscii === true ? result.length : Buffer.byteLength(result);
    const bytes = headBytes(id, head) + resultBytes + 1;
    writeText(response, status, `${head}${result}}`, bytes, sessionId);
  } else {
    writeHead(response, status, headBytes(id, head) + tail.length, sessionId);
    response.write(head);
    response.end(tail);
  }
}

/** What a POST asked for, and how it can be answered. */
export interface ReplyOptions {
  readonly session: ClientSession;
  readonly shape: Shape;
  /** The one request it answers; undefined for a batch. */
  readonly request: Id | undefined;
  /** How many answers make it complete. */
  readonly expected: number;
}

export interface ReplyParts {
  readonly timers: EdgeTimers;
  /** Asked for when events are needed, which most replies do not. Undefined when the session is over. */
  streamsOf(session: ClientSession): SessionStreams | undefined;
}

/**
 * What one POST is answered with: a JSON body where the answer is the first thing said and comes soon, else events.
 */
export class Reply implements MessageSink {
  readonly dueMs: number = performance.now() + DECIDE_MS;
  readonly #response: ServerResponse;
  readonly #options: ReplyOptions;
  readonly #parts: ReplyParts;
  #answers: string[] | undefined;
  #answered = 0;
  #stream: EventStream | undefined;

  constructor(response: ServerResponse, options: ReplyOptions, parts: ReplyParts) {
    this.#response = response;
    this.#options = options;
    this.#parts = parts;
    if (options.shape !== 'json') parts.timers.scheduleDecision(this);
  }

  send(text: string): boolean {
    if (this.#answered === this.#options.expected || this.#options.shape === 'json') return false;
    if (this.#stream === undefined) this.commit();
    return this.#stream?.send(text) ?? false;
  }

  /** One of the expected answers; the last one ends the reply. */
  answer(id: Id, answer: Answer): void {
    const { expected, request, shape } = this.#options;
    const isLast = ++this.#answered === expected;
    if (isLast) this.#parts.timers.cancelDecision(this);
    if (isLast && shape === 'events' && this.#stream === undefined) this.commit();

    if (this.#stream !== undefined) {
      if (isLast) this.#stream.finish(responseText(id, answer));
      else this.#stream.send(responseText(id, answer));
      return;
    }
    if (request === undefined) (this.#answers ??= []).push(responseText(id, answer));
    // The legacy era has no use for a disconnect: the request ran, and its answer has nowhere to go.
    if (!isLast || this.#response.destroyed) return;
    if (this.#answers === undefined) {
      writeAnswer(this.#response, id, answer);
    } else {
      const text = `[${this.#answers.join(',')}]`;
      writeText(this.#response, 200, text, Buffer.byteLength(text));
    }
  }

  commit(): void {
    this.#parts.timers.cancelDecision(this);
    if (this.#stream !== undefined || this.#response.destroyed) return;
    this.#stream = this.#parts.streamsOf(this.#options.session)?.open(this.#response, this.#options.request);
    for (const answer of this.#answers ?? []) this.#stream?.send(answer);
    this.#answers = undefined;
  }
}
