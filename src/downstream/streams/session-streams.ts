import { createHmac, hash, randomBytes } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { GatewayError, toAnswer } from '../../errors.ts';
import type { ClientSession } from '../../gateway/front.ts';
import { LIMITS } from '../../limits.ts';
import { type Id, responseText } from '../../protocol/jsonrpc.ts';
import { featuresOf } from '../../protocol/revisions.ts';
import type { Metrics, StreamKind } from '../../telemetry/metrics.ts';
import type { EdgeMemory } from '../memory/edge-memory.ts';
import { parseEventId } from './event-id.ts';
import type { EventLogs } from './event-log.ts';
import type { EdgeTimers } from './edge-timers.ts';
import { EventStream, type StreamParts } from './event-stream.ts';

export interface StreamsParts {
  readonly eventLogs: EventLogs;
  readonly timers: EdgeTimers;
  readonly metrics: Metrics | undefined;
  readonly memory: EdgeMemory;
}

const MINUTE_MS = 60_000;

const OUTCOME_UNKNOWN = toAnswer(
  new GatewayError('outcome-unknown', {
    message: 'the gateway no longer has the answer to this request; check what it did before sending it again',
  }),
);

const NONCE_CHARS = 8;
const MAC_CHARS = 12;

/**
 * Returns a proof that a nonce belongs to this session. It stays valid after a restart, and only the client knows the
 * sealed id that is its key.
 */
function macOf(sessionId: string, nonce: string): string {
  return createHmac('sha256', sessionId).update(nonce).digest('base64url').slice(0, MAC_CHARS);
}

/** The event streams of one session, and the events kept for their resumption. No other session can reach them. */
export class SessionStreams {
  readonly #session: ClientSession;
  readonly #parts: StreamParts;
  /** Beginning of all stream names; differs after each restart. */
  readonly #namePrefix: string;
  readonly #streams = new Map<string, EventStream>();
  #opened = 0;
  /** Streams that the client opened by GET since `#opensSinceMs`. */
  #opens = 0;
  #opensSinceMs = 0;
  #resumedFrom: string | undefined;
  #listening: EventStream | undefined;

  constructor(session: ClientSession, { eventLogs, timers, metrics, memory }: StreamsParts) {
    this.#session = session;
    const nonce = randomBytes(6).toString('base64url');
    this.#namePrefix = `${nonce}${macOf(session.id, nonce)}`;
    const principal = session.caller.principal.key;
    const log = eventLogs.open(session, (stream) => this.#onRemoved(stream));
    const { priming } = featuresOf(session.caller.revision);
    this.#parts = { log, timers, metrics, unsent: memory.unsent, principal, isPriming: priming };
    timers.addExpiring(log);
    // In this turn the session cancels its requests in flight, whose answers are the last events of their streams.
    session.closed.addEventListener('abort', () => setImmediate(() => this.#close()), { once: true });
  }

  /** Opens a stream for the answers to one POST. @param request undefined for a batch. */
  open(response: ServerResponse, request?: Id): EventStream {
    const stream = this.#create('post', request);
    stream.attach(response);
    return stream;
  }

  /**
   * Counts a GET of the client. Returns false if there were too many within the last minute. A GET that resumes from a
   * later event than the previous one shows progress, and does not count.
   */
  mayOpen(nowMs: number, lastEventId: string | undefined): boolean {
    // The hash is kept, because the client chooses the length of the id.
    const from = lastEventId === undefined ? undefined : hash('sha256', lastEventId);
    const isProgress = from !== undefined && from !== this.#resumedFrom;
    this.#resumedFrom = from;
    if (isProgress) return true;
    if (nowMs - this.#opensSinceMs > MINUTE_MS) {
      this.#opens = 0;
      this.#opensSinceMs = nowMs;
    }
    return ++this.#opens <= LIMITS.streamOpensPerMinute;
  }

  /** Opens the GET stream of the session, and closes the previous one. */
  listen(response: ServerResponse): void {
    // A session with a GET stream never becomes idle, so the stream needs a connected client.
    if (response.destroyed) return;
    this.#listening?.close();
    const stream = this.#create('get', undefined, () => this.#session.removeSink(stream));
    this.#listening = stream;
    stream.attach(response);
    this.#session.setSink(stream);
  }

  /**
   * Resumes the stream of an event id. Resolves with false if the stream has ended and the client has received all of it.
   *
   * A request of this session whose answer is no longer kept gets `outcome-unknown`. An event id of another session is
   * unknown here: the client gets a new stream. Not 404, because it would end the client's session.
   */
  async resume(response: ServerResponse, lastEventId: string): Promise<boolean> {
    const id = parseEventId(lastEventId);
    const stream = id === undefined ? undefined : this.#streams.get(id.stream);
    const missing = id !== undefined && stream?.isFinished === true ? await stream.missingAfter(id.seq) : undefined;
    if (response.destroyed) return true;
    if (missing === 'nothing') {
      this.#parts.metrics?.streamResumed('complete');
      return false;
    }
    if (id !== undefined && stream !== undefined && missing !== 'lost') {
      this.#parts.metrics?.streamResumed('continued');
      stream.attach(response, id.seq);
      if (stream === this.#listening) this.#session.setSink(stream);
    } else if (id?.request !== undefined && this.#isOwn(id.stream)) {
      this.#parts.metrics?.streamResumed('answer-lost');
      this.open(response, id.request).finish(responseText(id.request, OUTCOME_UNKNOWN));
    } else {
      this.#parts.metrics?.streamResumed('unknown');
      this.listen(response);
    }
    return true;
  }

  /** Closes the GET stream, on which no answer is due. */
  drain(): void {
    this.#listening?.close();
  }

  /** Returns whether a stream of this name belongs to this session, possibly from before a restart. */
  #isOwn(stream: string): boolean {
    const nonce = stream.slice(0, NONCE_CHARS);
    return stream.startsWith(`${nonce}${macOf(this.#session.id, nonce)}-`);
  }

  #create(kind: StreamKind, request: Id | undefined, onGone?: () => void): EventStream {
    const name = `${this.#namePrefix}-${++this.#opened}`;
    const stream = new EventStream(name, kind, request, this.#parts, onGone);
    this.#streams.set(name, stream);
    return stream;
  }

  /** Removes a finished stream whose log is gone. An unfinished stream continues without its log. */
  #onRemoved(name: string): void {
    if (this.#streams.get(name)?.isFinished === true) this.#streams.delete(name);
  }

  #close(): void {
    const { timers, log } = this.#parts;
    timers.removeExpiring(log);
    for (const stream of this.#streams.values()) stream.close();
    this.#streams.clear();
    log.close();
  }
}
