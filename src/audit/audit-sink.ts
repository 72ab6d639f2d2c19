import type { Head } from './head.ts';

/** The records that a sink has found from earlier processes. */
export interface FoundRecords extends Head {
  /** Bytes of an unfinished record at the end, which were removed. */
  readonly cutBytes: number;
  /** Number of the last record of the signed head. Greater than `seq` if records at the end are missing. */
  readonly headSeq: number;
  /**
   * True if a key of this gateway has not signed the last record or the head as they are. Also true if there are records without a head.
   */
  readonly isForged: boolean;
}

/** Takes the lines of an audit log, for one process at a time. Its methods are called one after the other. */
export interface AuditSink {
  readonly found: FoundRecords;
  /**
   * True if a next process cannot read the records back. The head then names them before they are written, so that their numbers are not used twice.
   */
  readonly savesHeadFirst: boolean;
  /** True if lines may have arrived although `append` rejected. Exactly these lines are written again, before any others. */
  readonly isInDoubt: boolean;
  /** Writes lines. Rejects if not all of them were written; then a later call removes or continues what was. */
  append(lines: string): Promise<void>;
  /** Forces all written lines to the disk. Absent for a sink without one. */
  sync?(): Promise<void>;
  /** Stores the signed head apart from the records. */
  saveHead(text: string): Promise<void>;
  /** Returns whether lines of this size belong into another file. Absent, as {@link rotate}, for a sink without files. */
  isFull?(bytes: number): boolean;
  /** Resolves with false if the file was removed or replaced by somebody else. Absent if that cannot be. */
  isInPlace?(): Promise<boolean>;
  /**
   * Begins another file, and removes files beyond the number to keep.
   *
   * @param firstSeq number of its first record.
   * @param beforeRemoval runs with the number of the oldest record that is kept, before files are removed.
   */
  rotate?(firstSeq: number, beforeRemoval: (oldest: number) => Promise<void>): Promise<void>;
  /** Releases the file. */
  close(): Promise<void>;
}
