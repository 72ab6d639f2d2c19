import type { ClientSession } from '../../gateway/front/front.ts';
import { LIMITS } from '../../limits.ts';
import type { OnEventLimit, StoredStream } from '../../store/event-store.ts';
import type { SessionRef } from '../../store/session-store.ts';
import { within } from '../../store/within.ts';
import { ByteBudget } from '../memory/byte-budget.ts';
import {
  type EventLog,
  type FollowedEvents,
  type OpenEventLog,
  type RecoveredStream,
  type StreamEvent,
  textBytes,
} from './event-log.ts';
import { EventOutbox, type OutboxParts } from './event-outbox.ts';
import type { MemoryEventLog, memoryEventLogs } from './memory-event-log.ts';

/** The longest time that a client which resumes a stream waits for the store. */
const WAIT_MS = 500;

/** A stream in the store, as far as this process knows it. */
interface StoredState {
  readonly isEndless: boolean;
  /** The name by which this process writes it; undefined if it does not. */
  writer: string | undefined;
  /** True if the store knows the stream, or soon does. */
  isOpen: boolean;
  /** True if nothing more is written. */
  isFinished: boolean;
  /** The highest number of an event that the store has, or soon gets. */
  added: number;
}

interface FoundStream {
  readonly found: StoredStream | undefined;
  /** The name by which this process writes it from now on; undefined if it does not. */
  readonly writer: string | undefined;
}

/**
 * Keeps the events of one session in memory, where this process reads them. It keeps them in a store too, where other processes read them
 * if this one is lost. An event is in the store before it is written to the client, unless the store cannot be reached.
 */
class StoredEventLog implements EventLog {
  readonly #session: SessionRef;
  readonly #parts: StoredEventLogsParts;
  readonly #memory: MemoryEventLog;
  readonly #outbox: EventOutbox;
  readonly #streams = new Map<string, StoredState>();
  #isClosed = false;

  constructor(
    session: Pick<ClientSession, 'ref' | 'caller'>,
    parts: StoredEventLogsParts,
    outbox: OutboxParts,
    onRemoved: (stream: string) => void,
  ) {
    this.#session = session.ref;
    this.#parts = parts;
    this.#memory = parts.openInMemory(session, (stream) => {
      // The events of an unfinished stream without room in memory are still stored.
      if (this.#streams.get(stream)?.isFinished !== false) this.#streams.delete(stream);
      onRemoved(stream);
    });
    this.#outbox = new EventOutbox(session.ref, outbox, (streams) => {
      for (const stream of streams) this.#streams.delete(stream);
    });
  }

  open(stream: string, isEndless: boolean): void {
    const writer = this.#parts.store.writerOf(this.#session);
    this.#streams.set(stream, { isEndless, writer, isOpen: false, isFinished: false, added: 0 });
    this.#memory.open(stream, isEndless);
  }

  append(stream: string, streamEvent: StreamEvent): Promise<boolean> | undefined {
    this.#memory.append(stream, streamEvent);
    const state = this.#streams.get(stream);
    const { seq, text } = streamEvent;
    if (state?.writer === undefined) return undefined;
    const { writer, isEndless, isFinished } = state;
    const mayWrite = (refused: ReadonlySet<string>) => !refused.has(stream);
    // An event that was read and is appended again may still be on its way to the store.
    if (seq <= state.added) return this.#outbox.settled?.then(mayWrite);
    state.added = seq;
    if (Buffer.byteLength(text) > LIMITS.storedEventBytes) {
      this.#parts.onLimit('storedEventBytes');
      return undefined;
    }
    if (!state.isOpen) {
      state.isOpen = true;
      void this.#outbox.add({ kind: 'open', stream, writer, isEndless });
    }
    const reopen = isFinished ? undefined : isEndless ? 'endless' : 'ending';
    return this.#outbox.add({ kind: 'add', stream, writer, seq, text, reopen }).then(mayWrite);
  }

  finish(stream: string, nowMs: number, last: number): void {
    const state = this.#streams.get(stream);
    if (state !== undefined) {
      const { writer, isOpen } = state;
      // A stream without a stored event was written to a client that cannot resume it.
      if (writer !== undefined && isOpen) void this.#outbox.add({ kind: 'finish', stream, writer, last });
      state.isFinished = true;
    }
    this.#memory.finish(stream, nowMs);
  }

  hasAfter(stream: string, seq: number): boolean {
    return this.#memory.hasAfter(stream, seq);
  }

  takeAfter(stream: string, seq: number): readonly StreamEvent[] {
    return this.#memory.takeAfter(stream, seq);
  }

  async recover(stream: string): Promise<RecoveredStream | undefined> {
    // A stream that is taken although nobody waits for it any more is found by the next attempt.
    const { found, writer } = await within(this.#findSettled(stream), this.#parts.waitMs ?? WAIT_MS);
    if (found === undefined || this.#streams.has(stream) || this.#isClosed) return undefined;
    const { isEndless, lastAdded, last, events } = found;
    const isFinished = hasEnded(found);
    this.#streams.set(stream, { isEndless, writer, isOpen: true, isFinished, added: lastAdded });
    this.#memory.open(stream, isEndless);
    for (const each of events.map(streamEventOf)) this.#memory.append(stream, each);
    // Without room in memory, an answer cannot be read from here.
    if (isFinished && !this.#memory.has(stream)) return undefined;
    if (isFinished) this.#memory.finish(stream, performance.now());
    return {
      isEndless,
      isFinished,
      seq: isFinished ? (last ?? 0) : lastAdded,
      isFollowed: !isFinished && writer === undefined,
    };
  }

  /** Finds a stream after all that this process has written is in the store. */
  async #findSettled(stream: string): Promise<FoundStream> {
    await this.#outbox.settled;
    return await this.#find(stream);
  }

  /** Reads a stream, and takes it unless it has ended or another process still writes its answer. */
  async #find(stream: string): Promise<FoundStream> {
    const { store } = this.#parts;
    const found = await store.read(this.#session, stream);
    if (found === undefined || hasEnded(found) || (found.isWritten && !found.isEndless))
      return { found, writer: undefined };
    const writer = store.writerOf(this.#session);
    if (writer === undefined) return { found: undefined, writer };
    return { found: await store.take(this.#session, stream, writer), writer };
  }

  async follow(stream: string): Promise<FollowedEvents | undefined> {
    const { found, writer } = await this.#find(stream);
    const state = this.#streams.get(stream);
    if (found === undefined || state === undefined) return undefined;
    const events = found.events.filter(({ seq }) => seq > state.added).map(streamEventOf);
    state.added = Math.max(state.added, found.lastAdded);
    state.writer = writer;
    return { events, state: hasEnded(found) ? 'finished' : writer === undefined ? 'running' : 'orphaned' };
  }

  remove(stream: string): void {
    this.#streams.delete(stream);
    this.#memory.remove(stream);
  }

  expire(nowMs: number): void {
    this.#memory.expire(nowMs);
  }

  close(): void {
    this.#isClosed = true;
    this.#outbox.close();
    this.#memory.close();
  }
}

/** Returns whether a stream has ended, and its last event is kept: not if that was too large, or waits for a slow reader. */
function hasEnded({ last, events }: StoredStream): boolean {
  return last !== undefined && (events.at(-1)?.seq ?? 0) >= last;
}

function streamEventOf({ seq, text }: StoredStream['events'][number]): StreamEvent {
  return { seq, text, bytes: textBytes(text), atMs: performance.now() };
}

export interface StoredEventLogsParts extends Omit<OutboxParts, 'budget'> {
  readonly openInMemory: ReturnType<typeof memoryEventLogs>;
  readonly onLimit: OnEventLimit;
  /** The longest time that a client which resumes a stream waits for the store, in ms. Default: 500. */
  readonly waitMs?: number;
}

/** Keeps events where other processes can read them too. */
export function storedEventLogs(parts: StoredEventLogsParts): OpenEventLog {
  const { store, onLimit, onRefused, onError } = parts;
  const limits = { totalBytes: LIMITS.unstoredEventBytes, principalBytes: LIMITS.unstoredEventBytes };
  const budget = new ByteBudget(limits, () => onLimit('unstoredEventBytes'));
  const outbox: OutboxParts = { store, onRefused, onError, budget };
  return (session, onRemoved) => new StoredEventLog(session, parts, outbox, onRemoved);
}
