import { createHmac, hash, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ClientResponse } from '../../gateway/front/client-http.ts';
import { GatewayError, toAnswer } from '../../errors.ts';
import type { ClientSession } from '../../gateway/front/front.ts';
import { LIMITS } from '../../limits.ts';
import type { Principal } from '../../policy/principal.ts';
import { type Id, responseText } from '../../protocol/jsonrpc.ts';
import { featuresOf } from '../../protocol/revisions.ts';
import type { Metrics, StreamKind } from '../../telemetry/metrics.ts';
import type { EdgeMemory } from '../memory/edge-memory.ts';
import { type EventId, parseEventId } from './event-id.ts';
import type { OpenEventLog } from './event-log.ts';
import type { EdgeTimers } from './edge-timers.ts';
import { EventStream, type EventStreamParts } from './event-stream.ts';

export interface StreamsParts {
  readonly openEventLog: OpenEventLog;
  readonly timers: EdgeTimers;
  readonly metrics: Metrics;
  readonly memory: EdgeMemory;
}

const MINUTE_MS = 60_000;

const OUTCOME_UNKNOWN = toAnswer(
  new GatewayError('outcome-unknown', {
    message: 'the gateway no longer has the answer to this request; check what it did before sending it again',
  }),
);

/** The interval at which events of another process are read. */
const FOLLOW_MS = 250;

const NONCE_CHARS = 8;
const MAC_CHARS = 12;

/** Returns the last messages of a stream whose process has gone. A batch has no single request to answer. */
function unknownOutcome(request: Id | undefined): readonly string[] {
  return request === undefined ? [] : [responseText(request, OUTCOME_UNKNOWN)];
}

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
  readonly #parts: EventStreamParts;
  /** Beginning of all stream names; differs after each restart. */
  readonly #namePrefix: string;
  readonly #streams = new Map<string, EventStream>();
  #opened = 0;
  /** Streams that the client opened by GET since `#opensSinceMs`. */
  #opens = 0;
  #opensSinceMs = 0;
  #resumedFrom: string | undefined;
  #listening: EventStream | undefined;
  #reader: Principal | undefined;

  constructor(session: ClientSession, { openEventLog, timers, metrics, memory }: StreamsParts) {
    this.#session = session;
    const nonce = randomBytes(6).toString('base64url');
    this.#namePrefix = `${nonce}${macOf(session.id, nonce)}`;
    const principal = session.caller.principal.key;
    const log = openEventLog(session, (stream) => this.#onRemoved(stream));
    const { priming } = featuresOf(session.caller.revision);
    this.#parts = { log, timers, metrics, unsent: memory.unsent, principal, isPriming: priming };
    timers.addExpiring(log);
    // In this turn the session cancels its requests in flight, whose answers are the last events of their streams.
    session.closed.addEventListener('abort', () => setImmediate(() => this.#close()), { once: true });
  }

  /** Opens a stream for the answers to one POST. @param request undefined for a batch. */
  open(response: ClientResponse, request?: Id): EventStream {
    const stream = this.#create(this.#nextName(), 'post', request);
    stream.attach(response);
    return stream;
  }

  /**
   * Counts a GET of the client. Returns false if there were too many within the last minute. A GET that resumes a stream
   * from another event than the previous one shows progress, and does not count. One that names no stream of this session gets a new one, and counts.
   */
  mayOpen(nowMs: number, lastEventId: string | undefined): boolean {
    // The hash is kept, because the client chooses the length of the id.
    const from = lastEventId === undefined ? undefined : hash('sha256', lastEventId);
    const id = lastEventId === undefined ? undefined : parseEventId(lastEventId);
    const isResumed =
      id !== undefined && (this.#streams.has(id.stream) || (id.request !== undefined && this.#isOwn(id.stream)));
    const isProgress = isResumed && from !== this.#resumedFrom;
    this.#resumedFrom = from;
    if (isProgress) return true;
    if (nowMs - this.#opensSinceMs > MINUTE_MS) {
      this.#opens = 0;
      this.#opensSinceMs = nowMs;
    }
    return ++this.#opens <= LIMITS.streamOpensPerMinute;
  }

  /** The principal of the GET that has the GET stream. Its credentials may be newer than those of the session. */
  get reader(): Principal {
    return this.#reader ?? this.#session.caller.principal;
  }

  /** Opens the GET stream of the session, and closes the previous one. @param reader the principal of the GET. */
  listen(response: ClientResponse, reader?: Principal): void {
    // A session with a GET stream never becomes idle, so the stream needs a connected client.
    if (response.destroyed) return;
    this.#listening?.close();
    const stream = this.#create(this.#nextName(), 'get', undefined, () => this.#session.removeSink(stream));
    this.#listening = stream;
    this.#reader = reader;
    stream.attach(response);
    this.#session.setSink(stream, reader);
  }

  /**
   * Resumes the stream of an event id. Resolves with false if the stream has ended and the client has received all of it. A stream that another
   * process has begun continues here; if its request was not answered, nobody knows whether it has run.
   *
   * A request of this session whose answer is no longer kept gets `outcome-unknown`. An event id of another session is
   * unknown here: the client gets a new stream. Not 404, because it would end the client's session.
   *
   * @param reader the principal of the GET.
   * @throws {GatewayError} `store-unavailable` if the events that another process has kept cannot be read, or the session leaves this process meanwhile.
   */
  async resume(response: ClientResponse, lastEventId: string, reader?: Principal): Promise<boolean> {
    const id = parseEventId(lastEventId);
    const own = id !== undefined && this.#isOwn(id.stream) ? id : undefined;
    const known = own && this.#streams.get(own.stream);
    const recovered = own !== undefined && known === undefined ? await this.#recover(own) : undefined;
    const stream = known ?? recovered;
    const missing = id !== undefined && stream?.isFinished === true ? stream.missingAfter(id.seq) : undefined;
    if (response.destroyed) return true;
    if (this.#session.closed.aborted) {
      throw new GatewayError('store-unavailable', { message: 'the session has just moved or ended; send this again' });
    }
    if (missing === 'nothing') {
      this.#parts.metrics.countResumption('complete');
      return false;
    }
    if (id !== undefined && stream !== undefined && missing !== 'lost') {
      this.#parts.metrics.countResumption(recovered === undefined ? 'continued' : 'recovered');
      stream.attach(response, id.seq);
      if (stream === this.#listening) this.#reader = reader;
      // The budget for slow readers may have ended the connection already.
      if (stream === this.#listening && stream.isConnected) this.#session.setSink(stream, reader);
    } else if (own?.request !== undefined) {
      this.#parts.metrics.countResumption('answer-lost');
      this.open(response, own.request).finish(responseText(own.request, OUTCOME_UNKNOWN));
    } else {
      this.#parts.metrics.countResumption('unknown');
      this.listen(response, reader);
    }
    return true;
  }

  /** Opens a stream that another process has begun. Returns undefined if nothing of it is kept, or the session has ended meanwhile. */
  async #recover({ stream: name, seq, request }: EventId): Promise<EventStream | undefined> {
    const found = await this.#parts.log.recover(name);
    // Another request of the client may have been faster.
    const known = this.#streams.get(name);
    if (known !== undefined || found === undefined || this.#session.closed.aborted) return known;
    const { isEndless, isFinished } = found;
    const recovered = { seq: Math.max(seq, found.seq), isFinished };
    if (isEndless) {
      this.#listening?.close();
      const stream = this.#create(name, 'get', undefined, () => this.#session.removeSink(stream), recovered);
      this.#listening = stream;
      return stream;
    }
    const stream = this.#create(name, 'post', request, undefined, recovered);
    if (found.isFollowed) void this.#follow(stream, request);
    else if (!isFinished) stream.finish(...unknownOutcome(request));
    return stream;
  }

  /** Passes on what another process adds to a stream, until it has ended or its process has gone. Never rejects. */
  async #follow(stream: EventStream, request: Id | undefined): Promise<void> {
    const { closed } = this.#session;
    while (!stream.isFinished) {
      try {
        await sleep(FOLLOW_MS, undefined, { signal: closed, ref: false });
        const next = await this.#parts.log.follow(stream.name);
        for (const streamEvent of next?.events ?? []) stream.relay(streamEvent);
        if (next?.state === 'finished') stream.finish();
        else if (next?.state !== 'running') stream.finish(...unknownOutcome(request));
      } catch (thrown) {
        if (closed.aborted) return;
        // The store is asked again.
        if (!(thrown instanceof GatewayError)) throw thrown;
      }
    }
  }

  /** Ends the connection of the GET stream, on which no answer is due. The client resumes it soon, at any process, or after a restart. */
  drain(isForRestart = false): void {
    this.#listening?.interrupt(isForRestart);
  }

  /** Returns whether a stream of this name belongs to this session, possibly from before a restart. */
  #isOwn(stream: string): boolean {
    const nonce = stream.slice(0, NONCE_CHARS);
    return stream.startsWith(`${nonce}${macOf(this.#session.id, nonce)}-`);
  }

  #nextName(): string {
    return `${this.#namePrefix}-${++this.#opened}`;
  }

  #create(
    name: string,
    kind: StreamKind,
    request: Id | undefined,
    onGone?: () => void,
    recovered?: { readonly seq: number; readonly isFinished: boolean },
  ): EventStream {
    const stream = new EventStream(name, kind, request, this.#parts, onGone, recovered);
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
