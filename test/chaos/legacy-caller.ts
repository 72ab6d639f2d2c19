import { setTimeout as delay } from 'node:timers/promises';
import type { Caller, OpenAttempt } from './client.ts';
import { endOfAnswer, endOfResponse } from './ends.ts';
import { exchange, type HttpExchange, type Message, parseMessage, type Response } from './http-exchange.ts';

const BOTH = 'application/json, text/event-stream';
const PAUSE_MS = 200;
/** The pause between two tries grows up to this number of pauses. */
const MOST_PAUSES = 5;
const LISTEN_PAUSE_MS = 500;
const UNKNOWN_SESSION = 404;

/** A call in flight: the stream of its answer, which may be resumed. */
interface Flight {
  readonly open: OpenAttempt;
  readonly id: string;
  session: string;
  lastId: string | undefined;
  answer: Message | undefined;
}

/** A client with a session. It listens on the GET stream, and resumes the streams of its calls. */
export class LegacyCaller implements Caller {
  readonly #url: string;
  readonly #key: string;
  readonly #revision: string;
  readonly #seen: Set<string>;
  readonly #closing = new AbortController();
  #session: Promise<string | undefined> | undefined;
  #lastId = 0;

  constructor(url: string, key: string, revision: string, seen: Set<string>) {
    this.#url = url;
    this.#key = key;
    this.#revision = revision;
    this.#seen = seen;
  }

  async prepare(signal: AbortSignal): Promise<boolean> {
    while (!signal.aborted) {
      this.#session ??= this.#initialize();
      const opening = this.#session;
      if ((await opening) !== undefined) return true;
      if (this.#session === opening) this.#session = undefined;
      await delay(PAUSE_MS);
    }
    return false;
  }

  async #initialize(): Promise<string | undefined> {
    const capabilities = this.#revision >= '2025-06-18' ? { elicitation: {} } : {};
    const clientInfo = { name: 'chaos', version: '1' };
    const params = { protocolVersion: this.#revision, capabilities, clientInfo };
    const message = { jsonrpc: '2.0', id: `i${++this.#lastId}`, method: 'initialize', params };
    const { status, sessionId } = await this.#post(message, undefined).done;
    if (status !== 200 || sessionId === undefined) return undefined;
    await this.#post({ jsonrpc: '2.0', method: 'notifications/initialized' }, sessionId).done;
    void this.#listen(sessionId);
    return sessionId;
  }

  /** Keeps a GET stream open until the session ends. */
  async #listen(session: string): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      const stream = this.#get(session, undefined, () => undefined);
      signal.addEventListener('abort', stream.reset);
      const { status } = await stream.done;
      signal.removeEventListener('abort', stream.reset);
      if (status === UNKNOWN_SESSION) return;
      await delay(LISTEN_PAUSE_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  async send(open: OpenAttempt, signal: AbortSignal): Promise<void> {
    const session = await this.#session;
    if (session === undefined) {
      open.end({ kind: 'error', claim: 'no', code: 'no session', text: 'the client has lost its session before' });
      return;
    }
    open.attempt.session = session;
    const id = `${open.call.id}.${open.attempt.number}`;
    const flight: Flight = { open, id, session, lastId: undefined, answer: undefined };
    const params = {
      name: `${open.call.upstream}__act`,
      arguments: open.arguments,
      _meta: { progressToken: `t-${id}` },
    };
    const sent = this.#post({ jsonrpc: '2.0', id, method: 'tools/call', params }, session, (message, eventId) =>
      this.#receive(flight, message, eventId),
    );
    const { resetMs } = open.call;
    const timer = resetMs === undefined ? undefined : setTimeout(sent.reset, resetMs);
    signal.addEventListener('abort', sent.reset);
    const response = await sent.done;
    signal.removeEventListener('abort', sent.reset);
    clearTimeout(timer);
    if (!response.isEvents && response.isWhole) this.#receive(flight, parseMessage(response.text), undefined);
    if (flight.answer === undefined && flight.lastId !== undefined) {
      await this.#resume(flight, signal);
      return;
    }
    this.#finish(flight, response);
  }

  /** Resumes the stream of a call until its answer, or until the gateway refuses. */
  async #resume(flight: Flight, signal: AbortSignal): Promise<void> {
    const { open, session } = flight;
    while (!signal.aborted) {
      open.resume();
      open.note(`resumes after ${flight.lastId}`);
      const stream = this.#get(session, flight.lastId, (message, id) => this.#receive(flight, message, id));
      signal.addEventListener('abort', stream.reset);
      const response = await stream.done;
      signal.removeEventListener('abort', stream.reset);
      const { status } = response;
      if (flight.answer !== undefined || (status !== undefined && status >= 400 && status < 500)) {
        this.#finish(flight, response);
        return;
      }
      open.note(`resumption ended: ${status} ${response.failure} ${response.text.slice(0, 120)}`);
      if (!open.isDue) return;
      await delay(PAUSE_MS);
    }
  }

  #finish(flight: Flight, response: Response): void {
    const { open, answer, session, lastId } = flight;
    if (response.status === UNKNOWN_SESSION) this.#forget(session);
    if (answer !== undefined) open.end(endOfAnswer(answer));
    // The refusal of a resumption says nothing about the call.
    else if (lastId !== undefined)
      open.end({ kind: 'closed', why: `not resumed: ${response.status} ${response.text}` });
    else open.end(endOfResponse(response));
  }

  #forget(session: string): void {
    const current = this.#session;
    void current?.then((value) => {
      if (value === session && this.#session === current) this.#session = undefined;
    });
  }

  #receive(flight: Flight, message: Message | undefined, eventId: string | undefined): void {
    if (eventId !== undefined) flight.lastId = eventId;
    if (message === undefined) return;
    const { open } = flight;
    if (message.method === 'notifications/progress')
      open.onProgress(message.params?.['progress'], message.params?.['message']);
    else if (message.method === 'elicitation/create' && message.id !== undefined) {
      open.note('answers the question');
      void this.#answerQuestion(flight, { jsonrpc: '2.0', id: message.id, result: { action: 'accept', content: {} } });
    } else if (message.method === undefined && message.id === flight.id) {
      if (flight.answer !== undefined) open.end({ kind: 'closed', why: 'a second answer' });
      flight.answer = message;
    }
  }

  /** Sends an answer until the gateway has accepted it: a fault may last longer than a few tries. A repeated answer is ignored by the gateway. */
  async #answerQuestion({ open, session }: Flight, answer: object): Promise<void> {
    for (let n = 1; open.isDue && !open.isEnded; n++) {
      const { status } = await this.#post(answer, session).done;
      if (status !== undefined && status < 300) return;
      open.note(`the answer to the question was refused: ${status}`);
      await delay(PAUSE_MS * Math.min(n, MOST_PAUSES));
    }
  }

  #headers(session: string | undefined): Record<string, string> {
    const version = this.#revision >= '2025-06-18' ? { 'mcp-protocol-version': this.#revision } : {};
    return {
      accept: BOTH,
      authorization: `Bearer ${this.#key}`,
      ...(session === undefined ? {} : { 'mcp-session-id': session, ...version }),
    };
  }

  #post(
    message: object,
    session: string | undefined,
    onEvent: (message: Message | undefined, id: string | undefined) => void = () => undefined,
  ): HttpExchange {
    const headers = { ...this.#headers(session), 'content-type': 'application/json' };
    const body = JSON.stringify(message);
    return exchange(this.#url, { method: 'POST', headers, body, onEvent, seen: this.#seen });
  }

  #get(
    session: string,
    lastId: string | undefined,
    onEvent: (message: Message | undefined, id: string | undefined) => void,
  ): HttpExchange {
    const last = lastId === undefined ? {} : { 'last-event-id': lastId };
    const headers = { ...this.#headers(session), accept: 'text/event-stream', ...last };
    return exchange(this.#url, { method: 'GET', headers, onEvent, seen: this.#seen });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort();
    const session = await this.#session;
    if (session !== undefined) {
      await exchange(this.#url, { method: 'DELETE', headers: this.#headers(session), seen: this.#seen }).done;
    }
  }
}
