import type { ClientResponse } from '../gateway/front/client-http.ts';
import type { ModernCall, ModernCaller, ModernSink } from '../gateway/front/front.ts';
import { jsonEventText } from '../protocol/framing/event-stream.ts';
import { type Answer, type Request, responseText } from '../protocol/jsonrpc.ts';
import { isModernRevision } from '../protocol/revisions.ts';
import { RPC } from '../protocol/rpc-codes.ts';
import type { RunningBody } from './memory/running-bodies.ts';
import type { AnswerForm } from './admission/accept.ts';
import type { DisconnectWatcher, InFlightRequests } from './streams/disconnect-watcher.ts';
import type { StreamWriter } from './streams/stream-writer.ts';
import type { StreamsParts } from './streams/session-streams.ts';
import { writeAnswer, writeChallenge } from './reply.ts';
import { holdUnsent } from './streams/unsent-answer.ts';
import { openWriter } from './streams/event-stream.ts';

/** Longer than in sessions: a modern stream cannot be resumed, and an error in it has no HTTP status. */
const DECIDE_MODERN_MS = 2_000;

/** The request without an end of its own: the client or the gateway ends it. Its stream keeps no text of it after the acknowledgement. */
export const LISTEN = 'subscriptions/listen';

const DISCONNECTED = 'the client disconnected';

/** HTTP status of errors that are the whole response, by their codes: those of upstreams have it too. Legacy clients get that of `errors.ts`. */
const STATUS: ReadonlyMap<number, number> = new Map([
  [RPC.methodNotFound, 404],
  [RPC.headerMismatch, 400],
  [RPC.missingCapability, 400],
  [RPC.unsupportedVersion, 400],
]);

export interface ModernReplyParts extends Pick<StreamsParts, 'timers' | 'metrics' | 'memory'> {
  readonly disconnects: DisconnectWatcher;
  /** Returns the value of `WWW-Authenticate` of an answer; undefined for nearly all. */
  challengeOf(answer: Answer, view: string): string | undefined;
  /** Called after the answer was written. */
  onReplied(reply: ModernReply): void;
  /** Called if the answer could not be written. */
  onFailed(thrown: unknown, response: ClientResponse): void;
}

/**
 * Answers one modern request: with a JSON body if the answer is the first message and comes soon, else with events. A
 * modern stream cannot be resumed, so a disconnect cancels the request.
 */
export class ModernReply implements ModernSink {
  readonly receivedMs: number = performance.now();
  readonly request: Request;
  /** Key of the principal that made the request. */
  readonly principal: string;
  readonly #response: ClientResponse;
  readonly #view: string;
  /** True if errors have a status of their own. Clients before 2026-07-28 take 404 for the end of a session. */
  readonly #hasStatus: boolean;
  readonly #form: AnswerForm;
  readonly #parts: ModernReplyParts;
  readonly #inFlight: InFlightRequests;
  readonly #body: RunningBody | undefined;
  /** Starts the event stream when the answer does not come soon. */
  #deciding: NodeJS.Timeout | undefined;
  #writer: StreamWriter | undefined;
  #isFinished = false;
  #isDisconnected = false;
  #call: ModernCall | undefined;

  /** @param body of the request, if it is large; released with the answer, or the acknowledgement. */
  constructor(
    response: ClientResponse,
    request: Request,
    { principal, view, revision }: ModernCaller,
    form: AnswerForm,
    parts: ModernReplyParts,
    body: RunningBody | undefined,
  ) {
    this.#response = response;
    this.request = request;
    this.principal = principal.key;
    this.#view = view;
    this.#hasStatus = isModernRevision(revision);
    this.#form = form;
    this.#parts = parts;
    this.#body = body;
    if (form !== 'json') this.#deciding = setTimeout(() => this.commit(), DECIDE_MODERN_MS).unref();
    this.#inFlight = parts.disconnects.watch(response.req.socket, this);
  }

  /** Sets the call whose answer this is. The call may have answered already. */
  bind(call: ModernCall): void {
    this.#call = call;
    if (this.#isDisconnected) call.cancel(DISCONNECTED);
  }

  /** Cancels the call of a client that disconnected. */
  onDisconnect(): void {
    clearTimeout(this.#deciding);
    if (this.#isFinished) return;
    this.#isFinished = true;
    this.#isDisconnected = true;
    this.#call?.cancel(DISCONNECTED);
  }

  /** Closes a call that has no end of its own. */
  close(): void {
    this.#call?.close();
  }

  keepText(until: Promise<unknown>): void {
    this.#body?.keepUntil(until);
  }

  answer(answer: Answer): void {
    this.#body?.release();
    this.#inFlight.delete(this);
    this.#parts.onReplied(this);
    if (this.#isFinished) return;
    try {
      this.#write(answer);
    } catch (thrown) {
      this.#parts.onFailed(thrown, this.#response);
    }
  }

  #write(answer: Answer): void {
    const { id } = this.request;
    clearTimeout(this.#deciding);
    const challenge = this.#writer === undefined ? this.#parts.challengeOf(answer, this.#view) : undefined;
    if (this.#form === 'events' && challenge === undefined) this.#begin();
    this.#isFinished = true;
    if (this.#writer === undefined) {
      const status = this.#hasStatus && answer.kind === 'error' ? STATUS.get(answer.error.code) : undefined;
      if (challenge === undefined) writeAnswer(this.#response, id, answer, undefined, status);
      else writeChallenge(this.#response, id, answer, challenge);
      holdUnsent(this.#response, this.#parts.memory.unsent, this.principal);
      return;
    }
    this.#writeEvent(responseText(id, answer));
    this.#writer.end();
  }

  send(text: string): boolean {
    if (this.request.method === LISTEN) this.#body?.release();
    if (this.#isFinished || this.#form === 'json') return false;
    this.#begin();
    this.#writeEvent(text);
    return true;
  }

  #writeEvent(text: string): void {
    this.#writer?.writeText(jsonEventText({ data: text }), text);
  }

  commit(): void {
    this.#begin();
    this.#response.flushHeaders();
  }

  /** Starts the event stream. */
  #begin(): void {
    const { timers, metrics, memory } = this.#parts;
    clearTimeout(this.#deciding);
    if (this.#writer !== undefined || this.#isFinished) return;
    const shared = { timers, metrics, unsent: memory.unsent, principal: this.principal };
    this.#writer = openWriter(this.#response, 'post', shared, { onGone: () => undefined });
  }
}
