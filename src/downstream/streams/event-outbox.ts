import { GatewayError } from '../../errors.ts';
import type { EventChange, EventStore } from '../../store/event-store.ts';
import type { SessionRef } from '../../store/session-store.ts';
import type { ByteAccount, ByteBudget, ByteHolder } from '../memory/byte-budget.ts';
import { textBytes } from './event-log.ts';

/** The pause before changes that could not be written are written again. */
const RETRY_MS = 1_000;
/** Memory of a change besides its text. */
const CHANGE_BYTES = 160;

/** The streams of other writers, which have not changed. */
type Refused = ReadonlySet<string>;
const NONE: Refused = new Set();

/** The parts that all outboxes of a process share. */
export interface OutboxParts {
  readonly store: EventStore;
  /** Called when another process writes a stream of this session, which may belong to it. */
  readonly onRefused: (session: SessionRef) => void;
  /** Called with an error that is not the store's absence. */
  readonly onError: (thrown: unknown) => void;
  /** The bytes that wait in all outboxes. The one that has most of the principal that has most gives its streams up. */
  readonly budget: ByteBudget;
}

/**
 * Writes the changes of one session to the store, in order. Changes of one turn are one write, so that the last event of a stream and its end are
 * stored together. While the store cannot be reached, nothing waits for it, and changes are written when it can be reached again.
 */
export class EventOutbox implements ByteHolder {
  readonly #parts: OutboxParts;
  readonly #session: SessionRef;
  /** Called with the streams that lack changes in the store from now on. */
  readonly #onGivenUp: (streams: Iterable<string>) => void;
  #waiting: EventChange[] = [];
  #waitingBytes = 0;
  /** Undefined while nothing waits and nothing is being written. */
  #account: ByteAccount | undefined;
  /** Settles when the waiting changes are written. Undefined if nobody waits for that. */
  #written: PromiseWithResolvers<Refused> | undefined;
  /** Settles when the changes are written that are being written. */
  #inFlight: Promise<Refused> | undefined;
  #isWriting = false;
  /** True if the last write has failed. */
  #isFailing = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(session: SessionRef, parts: OutboxParts, onGivenUp: (streams: Iterable<string>) => void) {
    this.#session = session;
    this.#parts = parts;
    this.#onGivenUp = onGivenUp;
  }

  /** Adds a change. Resolves when it is written, refused, or cannot be written now. Never rejects. */
  add(change: EventChange): Promise<Refused> {
    this.#waiting.push(change);
    this.#hold(bytesOf(change));
    if (this.#isFailing) {
      this.#retryLater();
      return Promise.resolve(NONE);
    }
    this.#written ??= Promise.withResolvers<Refused>();
    if (!this.#isWriting) {
      this.#isWriting = true;
      queueMicrotask(() => void this.#write());
    }
    return this.#written.promise;
  }

  /** Resolves when all changes so far are written, as {@link add} does. Undefined if none waits, or they cannot be written now. */
  get settled(): Promise<Refused> | undefined {
    return this.#written?.promise ?? this.#inFlight;
  }

  /** Writes until nothing waits, or a write fails. Never rejects. */
  async #write(): Promise<void> {
    this.#isWriting = true;
    while (this.#waiting.length > 0) {
      const changes = this.#waiting;
      const bytes = this.#waitingBytes;
      const written = this.#takeWritten() ?? Promise.withResolvers<Refused>();
      this.#waiting = [];
      this.#waitingBytes = 0;
      this.#inFlight = written.promise;
      const refused = await this.#tryWrite(changes);
      this.#inFlight = undefined;
      this.#isFailing = refused === undefined;
      written.resolve(refused ?? NONE);
      if (refused !== undefined) {
        this.#account?.subtract(bytes);
        if (refused.size > 0) this.#parts.onRefused(this.#session);
        continue;
      }
      this.#waiting = [...changes, ...this.#waiting];
      this.#waitingBytes += bytes;
      this.#takeWritten()?.resolve(NONE);
      this.#retryLater();
      break;
    }
    this.#isWriting = false;
    this.#leaveIfDone();
  }

  #takeWritten(): PromiseWithResolvers<Refused> | undefined {
    const written = this.#written;
    this.#written = undefined;
    return written;
  }

  /** Returns the refused streams; undefined if the store cannot be reached. */
  async #tryWrite(changes: readonly EventChange[]): Promise<Refused | undefined> {
    try {
      return await this.#parts.store.write(this.#session, changes);
    } catch (thrown) {
      if (thrown instanceof GatewayError) return undefined;
      // These changes are lost for clients that resume elsewhere.
      this.#parts.onError(thrown);
      return NONE;
    }
  }

  #retryLater(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      if (!this.#isWriting) void this.#write();
    }, RETRY_MS).unref();
  }

  /** The bytes that wait and are not being written. */
  get heldBytes(): number {
    return this.#waitingBytes;
  }

  /** Removes the streams of the waiting changes from the store instead, so that nobody finds them with a gap. */
  shed(): void {
    const before = this.#waitingBytes;
    const writers = new Map(this.#waiting.map(({ stream, writer }) => [stream, writer]));
    this.#waiting = [...writers].map(([stream, writer]) => ({ kind: 'remove', stream, writer }));
    this.#waitingBytes = this.#waiting.length * CHANGE_BYTES;
    this.#account?.subtract(before - this.#waitingBytes);
    this.#onGivenUp(writers.keys());
  }

  #hold(bytes: number): void {
    this.#account ??= this.#parts.budget.join(this.#session.principal, this);
    this.#waitingBytes += bytes;
    this.#account.add(bytes);
  }

  #leaveIfDone(): void {
    if (this.#waiting.length > 0 || this.#isWriting) return;
    this.#account?.leave();
    this.#account = undefined;
  }

  /** Gives up changes that wait for a store that cannot be reached. Others are still written. */
  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#isFailing) return;
    this.#account?.subtract(this.#waitingBytes);
    this.#waitingBytes = 0;
    this.#waiting = [];
    this.#leaveIfDone();
  }
}

function bytesOf(change: EventChange): number {
  return CHANGE_BYTES + (change.kind === 'add' ? textBytes(change.text) : 0);
}
