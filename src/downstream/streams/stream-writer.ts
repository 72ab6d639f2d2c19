import { LIST_KINDS, listChangedMethod } from '../../catalog/offer.ts';
import type { ClientResponse } from '../../gateway/front/client-http.ts';
import { LIMITS } from '../../limits.ts';
import type { ByteAccount, ByteBudget, ByteHolder } from '../memory/byte-budget.ts';
import { type StreamEvent, textBytes } from './event-log.ts';

/** The response to a client, or the standard output of the program. */
type Output = Pick<ClientResponse, 'write' | 'end' | 'destroy' | 'writableLength' | 'on' | 'once'>;

/** Receives the outcome of the events given to a {@link StreamWriter}. */
export interface StreamWriterHandler {
  /**
   * Called before an event is written to the socket. If it returns a promise, the writer waits for it, and disconnects the reader if it resolves
   * with false.
   */
  beforeWrite?(streamEvent: StreamEvent): Promise<boolean> | undefined;
  /** Called once: the connection has ended, also by {@link StreamWriter.release}. */
  onEnd?(): void;
  /** Called once, as the last callback: the connection has ended, and these events were not written. */
  onGone(unsent: readonly StreamEvent[]): void;
  /** Called when a message is dropped because the reader is too slow. */
  onDropped(): void;
}

export interface StreamWriterOptions {
  /** Disconnects a reader whose queue is full. If false, it loses further notifications instead. */
  readonly isImpatient: boolean;
  /** The stream ends at this age, because clients may disappear unnoticed. */
  readonly maxAgeMs?: number | undefined;
  /** Bounds the queues of all readers together. If it is exceeded, the biggest reader is disconnected. */
  readonly budget?: ByteBudget;
  /** The principal whose budget the queue uses. */
  readonly principal?: string;
  /** Called when the reader stops reading, and when it has read everything. */
  onStall?(isStalled: boolean): void;
}

interface Queued {
  readonly streamEvent: StreamEvent;
  /** Method of a notification; undefined for a request or response. */
  readonly notification: string | undefined;
  /** The message of an {@link IDEMPOTENT} notification. */
  readonly repeatable?: string | undefined;
  readonly isReplay: boolean;
}

/** The start of every notification that the gateway sends. */
const NOTIFICATION = '{"jsonrpc":"2.0","method":"';

/** Notifications that may be dropped for a slow reader. */
const DROPPABLE = new Set(['notifications/progress', 'notifications/message']);

const LISTS_CHANGED = LIST_KINDS.map(listChangedMethod);

/** Notifications that a reader gets even if its queue is full. There are at most as many as of its requests, questions and lists. */
const LASTING = new Set([...LISTS_CHANGED, 'notifications/cancelled', 'notifications/subscriptions/acknowledged']);

/** Notifications that are dropped if an equal one is queued, because the second one adds nothing. */
const IDEMPOTENT = new Set([...LISTS_CHANGED, 'notifications/resources/updated']);

/** Queued memory of an event besides its text. */
const ENTRY_BYTES = 160;

function entryBytes({ bytes }: StreamEvent): number {
  return ENTRY_BYTES + bytes;
}

function isDroppable(notification: string | undefined): boolean {
  return notification !== undefined && DROPPABLE.has(notification);
}

function notificationMethod(message: string): string | undefined {
  if (!message.startsWith(NOTIFICATION)) return undefined;
  return message.slice(NOTIFICATION.length, message.indexOf('"', NOTIFICATION.length));
}

/**
 * Writes events to one reader, in order and no faster than it reads. The queue is bounded: progress and log messages
 * are dropped, oldest first. If that is not enough, the reader is disconnected, or loses other notifications.
 */
export class StreamWriter implements ByteHolder {
  readonly openedMs: number = performance.now();
  /** The part of the interval in which it gets its keep-alives; set by the timers. */
  keepAlivePart = 0;
  readonly #out: Output;
  readonly #handler: StreamWriterHandler;
  readonly #options: StreamWriterOptions;
  #queue: Queued[] = [];
  /** Number of queued messages, except replays, which the event log bounds already. */
  #waiting = 0;
  #waitingBytes = 0;
  /** Bytes of the whole queue. */
  #heldBytes = 0;
  /** Created with the first queued event, because most streams never queue one. */
  #account: ByteAccount | undefined;
  /** Bytes in the socket's buffer when it blocked. */
  #blockedBytes = 0;
  #isBlocked = false;
  /** True if the log has not acknowledged an event yet. Later events are queued. */
  #isAwaiting = false;
  #isEnding = false;
  #isGone = false;

  constructor(out: Output, handler: StreamWriterHandler, options: StreamWriterOptions) {
    this.#out = out;
    this.#handler = handler;
    this.#options = options;
    const finish = (): void => this.#finish();
    out.on('drain', () => this.#flush());
    out.once('close', finish);
    out.on('error', finish);
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  /**
   * Writes or queues an event. @param message the JSON-RPC message of the event; its method decides whether it may be
   * dropped.
   */
  write(streamEvent: StreamEvent, message: string): void {
    if (this.#isGone || this.#isEnding) return;
    if (!this.#isBlocked && !this.#isAwaiting) {
      this.#put(streamEvent);
      return;
    }
    const notification = notificationMethod(message);
    const repeatable = notification !== undefined && IDEMPOTENT.has(notification) ? message : undefined;
    if (repeatable !== undefined && this.#queue.some((queued) => queued.repeatable === repeatable)) return;
    if (!this.#hasRoom(streamEvent)) this.#dropUntilRoom(streamEvent, notification);
    const hasRoom = this.#hasRoom(streamEvent);
    if (!hasRoom && this.#mayDrop(notification)) {
      this.#handler.onDropped();
      return;
    }
    this.#waiting++;
    this.#waitingBytes += streamEvent.bytes;
    this.#enqueue({ streamEvent, notification, repeatable, isReplay: false });
    if (!hasRoom && this.#options.isImpatient) this.destroy();
  }

  /** Writes or queues an event that no log keeps. Returns false if the connection has ended. */
  writeText(text: string, message: string): boolean {
    if (this.#isGone) return false;
    this.write({ seq: 0, text, bytes: textBytes(text), atMs: 0 }, message);
    return true;
  }

  /** Writes events from the event log, before all others. Either all of them are written or the connection ends. */
  replay(streamEvents: readonly StreamEvent[]): void {
    if (this.#isGone) return;
    const replays = streamEvents.map((streamEvent) => ({ streamEvent, notification: undefined, isReplay: true }));
    // All are queued before the budget may disconnect the reader, because the event log has dropped them.
    this.#queue = [...replays, ...this.#queue];
    if (replays.length > 0) this.#hold(replays.reduce((sum, { streamEvent }) => sum + entryBytes(streamEvent), 0));
    if (!this.#isBlocked) this.#flush();
  }

  /** Writes a comment, unless events are queued or an event waits for the log. */
  comment(text: string): void {
    if (!this.#isGone && !this.#isEnding && !this.#isBlocked && !this.#isAwaiting) this.#send(text);
  }

  /** Ends the response after the queued events. */
  end(): void {
    if (this.#isGone) return;
    this.#isEnding = true;
    this.#endIfDone();
  }

  /** Ends this connection because another one replaces it, and returns the unwritten events. Does not call `onGone`. */
  release(): readonly StreamEvent[] {
    const isBlocked = this.#isBlocked;
    const unsent = this.#clear();
    if (!this.#isGone) {
      this.#isGone = true;
      this.#handler.onEnd?.();
      this.#disconnect(isBlocked);
    }
    return unsent;
  }

  /** Ends the connection without the queued events. A blocked reader would keep it open. */
  #disconnect(isBlocked: boolean): void {
    if (isBlocked) this.#out.destroy();
    else this.#out.end();
  }

  destroy(): void {
    this.#out.destroy();
    this.#finish();
  }

  shed(): void {
    this.destroy();
  }

  /** Interrupts the connection at its maximum age. */
  sweep(nowMs: number): void {
    const { maxAgeMs } = this.#options;
    if (maxAgeMs !== undefined && nowMs - this.openedMs > maxAgeMs) this.interrupt();
  }

  /** Ends the connection without the queued events. An end that waits for them goes on. */
  interrupt(): void {
    if (this.#isEnding) return;
    this.#disconnect(this.#isBlocked);
    this.#finish();
  }

  #enqueue(queued: Queued): void {
    this.#queue.push(queued);
    this.#hold(entryBytes(queued.streamEvent));
  }

  #dequeue({ streamEvent, isReplay }: Queued): void {
    if (!isReplay) {
      this.#waiting--;
      this.#waitingBytes -= streamEvent.bytes;
    }
    this.#free(entryBytes(streamEvent));
  }

  #hold(bytes: number): void {
    const { budget, principal = '' } = this.#options;
    if (budget === undefined) return;
    this.#account ??= budget.join(principal, this);
    this.#heldBytes += bytes;
    this.#account.add(bytes);
  }

  #free(bytes: number): void {
    if (this.#account === undefined) return;
    this.#heldBytes -= bytes;
    this.#account.subtract(bytes);
  }

  #clear(): readonly StreamEvent[] {
    const queue = this.#queue;
    this.#queue = [];
    for (const queued of queue) this.#dequeue(queued);
    this.#unblock();
    this.#account?.leave();
    return queue.map(({ streamEvent }) => streamEvent);
  }

  #put(streamEvent: StreamEvent): void {
    const kept = this.#handler.beforeWrite?.(streamEvent);
    if (kept === undefined) {
      this.#send(streamEvent.text);
      return;
    }
    this.#isAwaiting = true;
    void kept.then((mayWrite) => {
      this.#isAwaiting = false;
      if (this.#isGone) return;
      if (!mayWrite) {
        this.destroy();
        return;
      }
      this.#send(streamEvent.text);
      if (!this.#isBlocked) this.#flush();
    });
  }

  #endIfDone(): void {
    if (this.#isEnding && !this.#isGone && this.#queue.length === 0 && !this.#isAwaiting) this.#out.end();
  }

  #send(text: string): void {
    if (this.#out.write(writable(text))) return;
    this.#isBlocked = true;
    this.#options.onStall?.(true);
    this.#blockedBytes = this.#out.writableLength;
    this.#hold(this.#blockedBytes);
  }

  #unblock(): void {
    this.#isBlocked = false;
    this.#free(this.#blockedBytes);
    this.#blockedBytes = 0;
  }

  #flush(): void {
    if (this.#isGone) return;
    if (this.#isBlocked) this.#options.onStall?.(false);
    this.#unblock();
    while (!this.#isBlocked && !this.#isAwaiting) {
      // Removed before it is put, because the budget may then disconnect the reader, which empties the queue.
      const queued = this.#queue.shift();
      if (queued === undefined) break;
      this.#dequeue(queued);
      this.#put(queued.streamEvent);
    }
    this.#endIfDone();
  }

  #hasRoom({ bytes }: StreamEvent): boolean {
    // An empty queue accepts one message of any size, because it may be the answer.
    if (this.#waiting === 0) return true;
    const { streamQueueMessages, streamQueueBytes } = LIMITS;
    return this.#waiting < streamQueueMessages && this.#waitingBytes + bytes <= streamQueueBytes;
  }

  #mayDrop(notification: string | undefined): boolean {
    if (this.#options.isImpatient) return isDroppable(notification);
    return notification !== undefined && !LASTING.has(notification);
  }

  /** @param method of the notification that needs the room. */
  #dropUntilRoom(streamEvent: StreamEvent, method: string | undefined): void {
    while (!this.#hasRoom(streamEvent)) {
      let oldest = this.#queue.findIndex(({ notification }) => isDroppable(notification));
      // Progress and log messages take no place of what says more.
      if (oldest < 0 && !isDroppable(method))
        oldest = this.#queue.findIndex((queued) => this.#mayDrop(queued.notification));
      const [dropped] = oldest < 0 ? [] : this.#queue.splice(oldest, 1);
      if (dropped === undefined) return;
      this.#dequeue(dropped);
      this.#handler.onDropped();
    }
  }

  #finish(): void {
    if (this.#isGone) return;
    this.#isGone = true;
    this.#handler.onEnd?.();
    this.#handler.onGone(this.#clear());
  }
}

/** Node keeps a written string beside its bytes until the client has read them. From this size on, the bytes alone are written. */
export const LARGE_CHARS = 65_536;

/** Returns what is written for a text: the text, or its bytes if it is large. */
export function writable(text: string, encoding: 'latin1' | 'utf8' = 'utf8'): string | Buffer {
  return text.length < LARGE_CHARS ? text : Buffer.from(text, encoding);
}
