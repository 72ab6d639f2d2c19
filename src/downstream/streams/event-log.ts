import type { ClientSession } from '../../gateway/front/front.ts';

/** One event of a stream, in its wire form. */
export interface StreamEvent {
  /** Counts from 1 within its stream. */
  readonly seq: number;
  readonly text: string;
  /** Memory of the text in bytes; see {@link textBytes}. */
  readonly bytes: number;
  /** Monotonic ms. */
  readonly atMs: number;
}

/** Keeps the events sent to one session, for clients that resume a stream. */
export interface EventLog {
  /** @param isEndless whether the stream has no end that a client waits for, so that its events may expire one by one. */
  open(stream: string, isEndless: boolean): void;
  /**
   * Keeps an event of an open stream. The caller appends events in the order of `seq`. An event that {@link takeAfter} has returned
   * is appended again, and kept once.
   *
   * @returns a promise if the event must not be written to the client before it is kept. It resolves with false if another process writes
   *   the stream, so that the event must not be written at all. Never rejects: an event that cannot be kept is only lost for a client that
   *   resumes.
   */
  append(stream: string, streamEvent: StreamEvent): Promise<boolean> | undefined;
  /**
   * The stream has ended. Its last events may still be appended, after a slow reader has received them.
   *
   * @param nowMs monotonic.
   * @param last number of its last event.
   */
  finish(stream: string, nowMs: number, last: number): void;
  /** Returns whether an event with a higher number is kept. */
  hasAfter(stream: string, seq: number): boolean;
  /**
   * Returns the events with a higher number, in order. The log may drop them, because the caller appends them again when it writes them.
   * Contains all events whose {@link append} has begun, since their writer may have gone before the acknowledgement.
   */
  takeAfter(stream: string, seq: number): readonly StreamEvent[];
  /**
   * Opens a stream of this session that another process has written, or that was removed from memory. Resolves with undefined if nothing of it is
   * kept. @throws {GatewayError} `store-unavailable`
   */
  recover(stream: string): Promise<RecoveredStream | undefined>;
  /**
   * Returns the events that another process has added since the last call. The caller appends them. Resolves with undefined if nothing of the
   * stream is kept any more. @throws {GatewayError} `store-unavailable`
   */
  follow(stream: string): Promise<FollowedEvents | undefined>;
  /** Removes a stream from memory. A store keeps its events for other processes until they expire. */
  remove(stream: string): void;
  /** Removes events that are too old to be resumed. @param nowMs monotonic. */
  expire(nowMs: number): void;
  /** Closes the log, as its session has left this process. A store keeps the events for other processes. */
  close(): void;
}

/** A stream that {@link EventLog.recover} has opened. */
export interface RecoveredStream {
  readonly isEndless: boolean;
  readonly isFinished: boolean;
  /** The highest number of its events. */
  readonly seq: number;
  /** True if another process still writes the stream. Its further events come from {@link EventLog.follow}. */
  readonly isFollowed: boolean;
}

/** The events that another process has added to a stream. */
export interface FollowedEvents {
  readonly events: readonly StreamEvent[];
  /** `orphaned`: its writer has gone, and this process writes it from now on. */
  readonly state: 'running' | 'finished' | 'orphaned';
}

/**
 * Opens the event log of a session.
 *
 * @param onRemoved called when nothing of a stream is kept any more, and again when such a stream ends.
 */
export type OpenEventLog = (
  session: Pick<ClientSession, 'ref' | 'caller'>,
  onRemoved: (stream: string) => void,
) => EventLog;

/**
 * Returns the memory of a text in bytes: V8 uses one byte per character for ASCII, and up to two otherwise. Also
 * flattens the text, so that it no longer retains the message that parts of it come from.
 */
export function textBytes(text: string): number {
  return Buffer.byteLength(text) === text.length ? text.length : 2 * text.length;
}
