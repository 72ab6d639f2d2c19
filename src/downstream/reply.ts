import { ERRORS } from '../errors.ts';
import type { ClientResponse } from '../gateway/front/client-http.ts';
import type { ClientSession, MessageSink } from '../gateway/front/front.ts';
import { type Answer, type Id, responseText, tailBytes } from '../protocol/jsonrpc.ts';
import type { AnswerForm } from './admission/accept.ts';
import type { EdgeMemory } from './memory/edge-memory.ts';
import type { OpenStreams } from './streams/open-streams.ts';
import { EVENT_STREAM_HEADERS, type EventStream } from './streams/event-stream.ts';
import { holdUnsent } from './streams/unsent-answer.ts';
import { LARGE_CHARS, writable } from './streams/stream-writer.ts';

function writeHead(response: ClientResponse, status: number, bytes: number, sessionId?: string): void {
  const headers = ['content-type', 'application/json', 'content-length', String(bytes)];
  if (sessionId !== undefined) headers.push('mcp-session-id', sessionId);
  response.writeHead(status, headers);
}

/** As many bytes as characters means ASCII, which latin1 copies without encoding. */
function encodingOf(text: string, bytes: number): 'latin1' | 'utf8' {
  return bytes === text.length ? 'latin1' : 'utf8';
}

/** Writes to the Node response directly: a web `Response` in between doubles the cost of a small answer. */
function writeText(response: ClientResponse, status: number, text: string, bytes: number, sessionId?: string): void {
  writeHead(response, status, bytes, sessionId);
  const encoding = encodingOf(text, bytes);
  response.end(writable(text, encoding), encoding);
}

/**
 * Returns the bytes of a large result and the brace after it. Joined text is copied once more before it is encoded: for 8 MiB that takes
 * 18 ms instead of 2.
 */
function tailOf(result: string): Buffer {
  const bytes = Buffer.byteLength(result);
  const tail = Buffer.allocUnsafeSlow(bytes + 1);
  tail.write(result, encodingOf(result, bytes));
  tail.write('}', bytes);
  return tail;
}

/** Writes one answer as JSON. */
export function writeAnswer(response: ClientResponse, id: Id, answer: Answer, sessionId?: string, status = 200): void {
  if (answer.kind === 'error') {
    const text = responseText(id, answer);
    writeText(response, status, text, Buffer.byteLength(text), sessionId);
    return;
  }
  const head = `{"jsonrpc":"2.0","id":${id},"result":`;
  const { result } = answer;
  const tail = answer.tail ?? (result.length < LARGE_CHARS ? undefined : [tailOf(result)]);
  if (tail === undefined) {
    const bytes = Buffer.byteLength(head) + Buffer.byteLength(result) + 1;
    writeText(response, status, `${head}${result}}`, bytes, sessionId);
  } else {
    writeHead(response, status, Buffer.byteLength(head) + tailBytes(tail), sessionId);
    response.write(head);
    for (const part of tail) response.write(part);
    response.end();
  }
}

/** Writes the answer to a request that the client may repeat with another token. @param challenge value of `WWW-Authenticate`. */
export function writeChallenge(response: ClientResponse, id: Id, answer: Answer, challenge: string): void {
  const text = responseText(id, answer);
  response.writeHead(ERRORS['insufficient-scope'].http, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    'cache-control': 'no-store',
    'www-authenticate': challenge,
  });
  response.end(text);
}

/** After this wait a client gets an event stream, which shows that the request runs and can be resumed. */
const DECIDE_MS = 50;
/**
 * With more replies than this that wait for an answer, each waits longer. An event stream costs as much as a call, and would make the queue
 * longer.
 */
const MANY_UNDECIDED = 64;
const DECIDE_MANY_MS = 250;

/** A POST, and the allowed forms of its answer. */
export interface ReplyOptions {
  readonly session: ClientSession;
  readonly form: AnswerForm;
  /** The id of the request; undefined for a batch. */
  readonly request: Id | undefined;
  /** Number of answers that are due. */
  readonly expected: number;
}

export interface ReplyParts {
  readonly memory: EdgeMemory;
  /** The number of replies that are not answered yet, and may still be JSON or events. */
  undecided: number;
  /** For the few replies that need events. */
  readonly streams: Pick<OpenStreams, 'of'>;
  /** Returns the value of `WWW-Authenticate` of an answer; undefined for nearly all. */
  challengeOf(answer: Answer | undefined, view: string): string | undefined;
}

/** Answers one POST: with a JSON body if the answer is the first message and comes soon, else with events. */
export class Reply implements MessageSink {
  readonly #response: ClientResponse;
  readonly #options: ReplyOptions;
  readonly #parts: ReplyParts;
  #answers: string[] | undefined;
  #answered = 0;
  #stream: EventStream | undefined;
  #deciding: NodeJS.Timeout | undefined;

  constructor(response: ClientResponse, options: ReplyOptions, parts: ReplyParts) {
    this.#response = response;
    this.#options = options;
    this.#parts = parts;
    if (options.form === 'json') return;
    parts.undecided += 1;
    this.#deciding = setTimeout(() => this.#onWaited(), DECIDE_MS).unref();
  }

  send(text: string): boolean {
    if (this.#answered === this.#options.expected || this.#options.form === 'json') return false;
    if (this.#stream === undefined) this.commit();
    return this.#stream?.send(text) ?? false;
  }

  /**
   * Sends one of the expected answers. The last one ends the reply.
   *
   * @param answer undefined for a request that the client cancelled, which gets no response.
   */
  answer(id: Id, answer: Answer | undefined): void {
    const { expected, request, form, session } = this.#options;
    const isLast = ++this.#answered === expected;
    if (isLast) this.#stopWaiting();
    const isEmpty = answer === undefined && this.#answers === undefined;
    const isWhole = request !== undefined && this.#stream === undefined;
    const challenge = isWhole ? this.#parts.challengeOf(answer, session.caller.view) : undefined;
    const needsEvents = form === 'events' && challenge === undefined;
    if (isLast && !isEmpty && needsEvents && this.#stream === undefined) this.commit();

    if (this.#stream !== undefined) {
      const texts = answer === undefined ? [] : [responseText(id, answer)];
      if (isLast) this.#stream.finish(...texts);
      else for (const text of texts) this.#stream.send(text);
      return;
    }
    if (request === undefined && answer !== undefined) (this.#answers ??= []).push(responseText(id, answer));
    // In the legacy era a disconnect does not cancel: the request ran, and its answer has no reader.
    if (!isLast || this.#response.destroyed) return;
    if (this.#answers !== undefined) {
      const text = `[${this.#answers.join(',')}]`;
      writeText(this.#response, 200, text, Buffer.byteLength(text));
    } else if (answer !== undefined && challenge !== undefined) writeChallenge(this.#response, id, answer, challenge);
    else if (answer !== undefined) writeAnswer(this.#response, id, answer);
    else this.#endEmpty();
    holdUnsent(this.#response, this.#parts.memory.unsent, session.caller.principal.key);
  }

  commit(): void {
    this.#stopWaiting();
    if (this.#stream !== undefined || this.#response.destroyed) return;
    this.#stream = this.#parts.streams.of(this.#options.session)?.open(this.#response, this.#options.request);
    for (const answer of this.#answers ?? []) this.#stream?.send(answer);
    this.#answers = undefined;
  }

  #onWaited(): void {
    if (this.#parts.undecided <= MANY_UNDECIDED) this.commit();
    else this.#deciding = setTimeout(() => this.commit(), DECIDE_MANY_MS - DECIDE_MS).unref();
  }

  #stopWaiting(): void {
    if (this.#deciding === undefined) return;
    clearTimeout(this.#deciding);
    this.#deciding = undefined;
    this.#parts.undecided -= 1;
  }

  /** Ends without an answer. Clients do not resume an event stream without an event id. */
  #endEmpty(): void {
    if (this.#options.form === 'json') this.#response.writeHead(202, { 'content-length': 0 });
    else this.#response.writeHead(200, EVENT_STREAM_HEADERS);
    this.#response.end();
  }
}
