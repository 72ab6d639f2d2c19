import type { Writable } from 'node:stream';
import { LIMITS } from '../../limits.ts';
import type { StreamEvent } from './event-log.ts';

/** Told what became of the pieces given to an {@link StreamWriter}. */
export interface StreamWriterOwner {
  /** The piece was handed to the socket, which is no proof that it arrived. */
  onWritten?(streamEvent: StreamEvent): void;
  /** The reader is gone, and these were not written. Called once, and last. */
  onGone(unsent: readonly StreamEvent[]): void;
  /** A message was left out because the reader is too slow. */
  onDropped(): void;
}

export interface StreamWriterOptions {
  /** Whether a reader for whom too much waits is cut off. One that cannot come back is waited for. */
  readonly isImpatient: boolean;
  /** After this long the stream is ended, for a client whose end nobody heard. */
  readonly maxAgeMs?: number | undefined;
  /** Told when the reader stops taking, and when it has taken all. */
  onStall?(isStalled: boolean): void;
}

interface Queued {
  readonly streamEvent: StreamEvent;
  /** Method of a notification, which can be spared; undefined for what must arrive. */
  readonly notification: string | undefined;
  readonly isReplay: boolean;
}

/** How every notification we send begins. */
const NOTIFICATION = '{"jsonrpc":"2.0","method":"';

const SPARED = new Set(['notifications/progress', 'notifications/message']);

/** The news is that something changed, so saying it twice adds nothing. */
const REPEATABLE = new Set([
  'notifications/tools/list_changed',
  'notifications/prompts/list_changed',
  'notifications/resources/list_changed',
]);

function notificationMethod(message: string): string | undefined {
  if (!message.startsWith(NOTIFICATION)) return undefined;
  return message.slice(NOTIFICATION.length, message.indexOf('"', NOTIFICATION.length));
}

/**
 * Writes to one reader in order, and no faster than it reads. What waits is bounded: progress and log messages are dropped
 * oldest first, changes of a list are told once, and everything else arrives or the connection ends.
 */
export class StreamWriter {
  readonly openedMs: number = performance.now();
  readonly #out: Writable;
  readonly #owner: StreamWriterOwner;
  readonly #options: StreamWriterOptions;
  #queue: Queued[] = [];
  /** Of the queue without replays, which the log bounds already. */
  #waiting = 0;
  #waitingBytes = 0;
  #isBlocked = false;
  #isEnding = false;
  #isGone = false;

  constructor(out: Writable, owner: StreamWriterOwner, options: StreamWriterOptions) {
    this.#out = out;
    this.#owner = owner;
    this.#options = options;
    const gone = (): void => this.#finish();
    out.on('drain', () => this.#flush());
    out.once('close', gone);
    out.on('error', gone);
  }

  get isGone(): boolean {
    return this.#isGone;
  }

  /** @param message what the piece says, to judge whether it can be spared. */
  write(streamEvent: StreamEvent, message: string): void {
    if (this.#isGone || this.#isEnding) return;
    if (!this.#isBlocked) {
      this.#put(streamEvent);
      return;
    }
    const notification = notificationMethod(message);
    if (notification !== undefined && REPEATABLE.has(notification)) {
      if (this.#queue.some((queued) => queued.notification === notification)) return;
    }
    if (!this.#hasRoom(streamEvent)) this.#makeRoom(streamEvent);
    const hasRoom = this.#hasRoom(streamEvent);
    if (!hasRoom && notification !== undefined && SPARED.has(notification)) {
      this.#owner.onDropped();
      return;
    }
    this.#waiting++;
    this.#waitingBytes += streamEvent.bytes;
    this.#queue.push({ streamEvent, notification, isReplay: false });
    if (!hasRoom && this.#options.isImpatient) this.destroy();
  }

  /** Writes what is bounded elsewhere and must all arrive. */
  replay(streamEvents: readonly StreamEvent[]): void {
    for (const streamEvent of streamEvents) this.#queue.push({ streamEvent, notification: undefined, isReplay: true });
    if (!this.#isBlocked) this.#flush();
  }

  /** Says nothing, unless something waits to be said. */
  comment(text: string): void {
    if (!this.#isGone && !this.#isEnding && !this.#isBlocked) this.#send(text);
  }

  /** Ends once all is written. */
  end(): void {
    if (this.#isGone) return;
    this.#isEnding = true;
    if (this.#queue.length === 0) this.#out.end();
  }

  /** Ends the connection for another that takes over; returns what was not written. `gone` is not called. */
  release(): readonly StreamEvent[] {
    const unsent = this.#queue.map(({ streamEvent }) => streamEvent);
    this.#queue = [];
    if (!this.#isGone) {
      this.#isGone = true;
      // What the old reader does not take would keep its connection open.
      if (this.#isBlocked) this.#out.destroy();
      else this.#out.end();
    }
    return unsent;
  }

  destroy(): void {
    this.#out.destroy();
    this.#finish();
  }

  sweep(nowMs: number): void {
    const { maxAgeMs } = this.#options;
    if (maxAgeMs !== undefined && nowMs - this.openedMs > maxAgeMs) this.end();
  }

  #put(streamEvent: StreamEvent): void {
    this.#send(streamEvent.text);
    this.#owner.onWritten?.(streamEvent);
  }

  #send(text: string): void {
    if (this.#out.write(text)) return;
    this.#isBlocked = true;
    this.#options.onStall?.(true);
  }

  #flush(): void {
    if (this.#isGone) return;
    if (this.#isBlocked) this.#options.onStall?.(false);
    this.#isBlocked = false;
    let taken = 0;
    for (const { streamEvent, isReplay } of this.#queue) {
      taken++;
      if (!isReplay) {
        this.#waiting--;
        this.#waitingBytes -= streamEvent.bytes;
      }
      this.#put(streamEvent);
      if (this.#isBlocked) break;
    }
    this.#queue.splice(0, taken);
    if (this.#isEnding && this.#queue.length === 0) this.#out.end();
  }

  #hasRoom({ bytes }: StreamEvent): boolean {
    // One message is let in however big it is: it may be the answer.
    if (this.#waiting === 0) return true;
    const { streamQueueMessages, streamQueueBytes } = LIMITS;
    return this.#waiting < streamQueueMessages && this.#waitingBytes + bytes <= streamQueueBytes;
  }

  #makeRoom(streamEvent: StreamEvent): void {
    while (!this.#hasRoom(streamEvent)) {
      const oldest = this.#queue.findIndex(
        ({ notification }) => notification !== undefined && SPARED.has(notification),
      );
      const [dropped] = oldest < 0 ? [] : this.#queue.splice(oldest, 1);
      if (dropped === undefined) return;
      this.#waiting--;
      this.#waitingBytes -= dropped.streamEvent.bytes;
      this.#owner.onDropped();
    }
  }

  #finish(): void {
    if (this.#isGone) return;
    this.#isGone = true;
    const unsent = this.#queue.map(({ streamEvent }) => streamEvent);
    this.#queue = [];
    this.#owner.onGone(unsent);
  }
}
