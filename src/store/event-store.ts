import type { LimitName } from '../limits.ts';
import type { SessionRef } from './session-store.ts';

/** A change of one stream of a session, by its writer. */
export type EventChange = { readonly stream: string; readonly writer: string } & (
  | { readonly kind: 'open'; readonly isEndless: boolean }
  | {
      readonly kind: 'add';
      readonly seq: number;
      readonly text: string;
      /** Opens the stream again if the store has removed it; undefined for one that has ended, of which then nothing is kept. */
      readonly reopen: 'endless' | 'ending' | undefined;
    }
  /** The stream has ended with the event `last`, which may be added later. */
  | { readonly kind: 'finish'; readonly last: number }
  | { readonly kind: 'remove' }
);

/** One stream, as any process of the gateway finds it. */
export interface StoredStream {
  readonly isEndless: boolean;
  /** True if another process, which is alive, writes it. */
  readonly isWritten: boolean;
  /** The highest number of an event that was added, kept or not; 0 if there was none. */
  readonly lastAdded: number;
  /** The number of its last event; undefined if the stream has not ended. */
  readonly last: number | undefined;
  /** The kept events, in order. */
  readonly events: readonly { readonly seq: number; readonly text: string }[];
}

/**
 * Keeps the events of streams for clients that resume them at another process. Each stream has one writer: the process that has opened it,
 * until the owner of the session takes it. Bounded per session, per principal and in total. Beyond a bound, the oldest finished stream of
 * the session is removed, then its oldest event, then the sessions whose events expire first.
 *
 * Every method that returns a promise rejects with `store-unavailable` if the store cannot be reached.
 */
export interface EventStore {
  /** Returns the name by which this process writes new streams of a session; undefined if it does not have the session. */
  writerOf(session: SessionRef): string | undefined;
  /**
   * Applies changes in order. Changes that were applied before have no effect, so a write whose outcome is unknown can be repeated. Returns
   * the streams of other writers, which have not changed.
   */
  write(session: SessionRef, changes: readonly EventChange[]): Promise<ReadonlySet<string>>;
  /** Returns a stream; undefined if nothing of it is kept. */
  read(session: SessionRef, stream: string): Promise<StoredStream | undefined>;
  /**
   * Makes this process the writer of a stream, and returns it. Undefined if nothing of it is kept, or this process does not have the
   * session.
   */
  take(session: SessionRef, stream: string, writer: string): Promise<StoredStream | undefined>;
}

/** Called with the name of a limit that refuses or removes events. */
export type OnEventLimit = (limit: Extract<LimitName, `storedEvent${string}` | 'unstoredEventBytes'>) => void;
