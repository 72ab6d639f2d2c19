import type { AuditSink } from './audit-sink.ts';
import { type AuditKey, chainLine } from './chain.ts';
import { headText } from './head.ts';

/** Learns what becomes of records. */
export interface ChainEvents {
  onWritten(count: number): void;
  /** Runs when the file was removed or replaced while it was written. */
  onReplaced(): void;
}

export interface ChainWriterParts {
  readonly sink: AuditSink;
  readonly key: AuditKey;
  readonly events: ChainEvents;
  /** Members of the first record: the process, its version and its host. */
  readonly process: Readonly<Record<string, string | number>>;
}

/** Records that have their place in the chain. */
export interface ChainedBatch {
  readonly lines: string;
  /** Number and MAC of the last one. */
  readonly seq: number;
  readonly mac: string;
  readonly count: number;
  /** The part of the queue that they take up until they are written. */
  readonly bytes: number;
}

/** The record that begins a file or a process, without the state of the chain. */
interface Segment {
  readonly kind: 'started' | 'rotated';
  readonly [member: string]: string | number | boolean;
}

/**
 * Appends records to a sink as one chain. An HMAC binds each record to the one before, and a signed head names the last one. The caller
 * waits for the end of one method before it calls the next.
 */
export class ChainWriter {
  readonly #parts: ChainWriterParts;
  #seq: number;
  #mac: string;
  #oldest: number;
  /** Number of the last record that has certainly arrived. */
  #confirmed: number;
  #inDoubt: ChainedBatch | undefined;
  /** Members of the record that must come first in the file or of the process; undefined if it is written. */
  #segmentDue: Segment | undefined;
  /** True if the removal of the file is reported, and no other file is there yet. */
  #isReported = false;
  #isDirty = false;

  /** Continues the chain of the sink. */
  constructor(parts: ChainWriterParts) {
    this.#parts = parts;
    const { seq, mac, oldest, headSeq, confirmed, cutBytes, isForged } = parts.sink.found;
    // A number that was used before is never used again.
    this.#seq = Math.max(seq, headSeq);
    this.#mac = mac;
    this.#oldest = oldest;
    this.#confirmed = confirmed ?? this.#seq;
    const unconfirmed = this.#seq - this.#confirmed;
    this.#segmentDue = {
      kind: 'started',
      ...parts.process,
      ...(unconfirmed > 0 ? { unconfirmed } : {}),
      ...(cutBytes > 0 ? { cutBytes } : {}),
      ...(headSeq > seq ? { missing: headSeq - seq } : {}),
      ...(isForged ? { forged: true } : {}),
    };
  }

  /** Number of the last record. */
  get seq(): number {
    return this.#seq;
  }

  /** MAC of the last record. */
  get mac(): string {
    return this.#mac;
  }

  /** Records that may have arrived, though their write failed. They are written again before others. */
  get inDoubt(): ChainedBatch | undefined {
    return this.#inDoubt;
  }

  /** True if the first record of the file or of the process is not written yet. */
  get isSegmentDue(): boolean {
    return this.#segmentDue !== undefined;
  }

  /** True if records were written after the last head. */
  get isDirty(): boolean {
    return this.#isDirty;
  }

  /** Writes the record that says where the chain goes on. */
  async begin(): Promise<void> {
    // Records without a head have lost it, so it is there before the first one.
    if (this.#seq === 0) await this.#saveHead();
    await this.write([]);
  }

  /**
   * Writes records, and continues the chain with them if they were written, or may have been.
   *
   * @param texts the members of each record after its number, as JSON without braces.
   * @param bytes the part of the queue that they take up.
   */
  async write(texts: readonly string[], bytes = 0): Promise<void> {
    const { sink, key } = this.#parts;
    const size = texts.reduce((sum, text) => sum + text.length, 0);
    if (sink.isFull?.(size) === true) await this.#beginFile(await this.#isInPlace());
    const records = this.#segmentDue === undefined ? texts : [this.#segmentText(this.#segmentDue), ...texts];
    let [seq, mac, lines] = [this.#seq, this.#mac, ''];
    for (const text of records) {
      const chained = chainLine(key, mac, ++seq, text);
      mac = chained.mac;
      lines += `${chained.line}\n`;
    }
    const batch = { lines, seq, mac, count: records.length, bytes };
    if (sink.savesHeadFirst) await this.#saveHead(batch);
    await this.#append(batch);
  }

  /** Writes the records again that are in doubt. */
  async writeAgain(): Promise<void> {
    if (this.#inDoubt !== undefined) await this.#append(this.#inDoubt);
  }

  async sync(): Promise<void> {
    await this.#parts.sink.sync?.();
  }

  /** Stores the head that shows how many records there must be, and begins another file if somebody else has removed this one. */
  async upkeep(): Promise<void> {
    await this.#saveHead();
    this.#isDirty = false;
    if (await this.#isInPlace()) return;
    await this.#beginFile(false);
    await this.write([]);
  }

  /** Releases the sink. */
  close(): Promise<void> {
    return this.#parts.sink.close();
  }

  async #append(batch: ChainedBatch): Promise<void> {
    const { sink, events } = this.#parts;
    try {
      await sink.append(batch.lines);
    } catch (thrown) {
      if (sink.isInDoubt) {
        this.#inDoubt = batch;
        this.#goOnAfter(batch);
      }
      throw thrown;
    }
    this.#inDoubt = undefined;
    this.#confirmed = batch.seq;
    this.#goOnAfter(batch);
    events.onWritten(batch.count);
  }

  #goOnAfter({ seq, mac }: ChainedBatch): void {
    [this.#seq, this.#mac, this.#isDirty, this.#segmentDue] = [seq, mac, true, undefined];
  }

  async #isInPlace(): Promise<boolean> {
    return (await this.#parts.sink.isInPlace?.()) ?? true;
  }

  /** Begins another file. @param isInPlace false if somebody else has removed or replaced the one before. */
  async #beginFile(isInPlace: boolean): Promise<void> {
    const { sink, events } = this.#parts;
    if (!isInPlace && !this.#isReported) events.onReplaced();
    this.#isReported = !isInPlace;
    // The record of the process also begins the file. It is due even if the sink fails when the other file is there already.
    this.#segmentDue = { kind: 'rotated', ...this.#segmentDue, ...(isInPlace ? {} : { replaced: true }) };
    try {
      await sink.rotate?.(this.#seq + 1, async (oldest) => {
        this.#oldest = oldest;
        // If the process dies before the record of the new file, only the head says that these files were not taken away. A full disk needs their room.
        await this.#saveHead().catch(() => undefined);
      });
      this.#isReported = false;
    } catch (thrown) {
      this.#isReported &&= !(await this.#isInPlace().catch(() => false));
      throw thrown;
    }
  }

  #segmentText({ kind, ...more }: Segment): string {
    const time = new Date().toISOString();
    const members = { time, kind, previous: this.#mac, key: this.#parts.key.id, oldest: this.#oldest, ...more };
    return JSON.stringify(members).slice(1, -1);
  }

  /** Stores the head of the chain with its last record, or with one that is about to be written. */
  #saveHead({ seq, mac }: Pick<ChainedBatch, 'seq' | 'mac'> = { seq: this.#seq, mac: this.#mac }): Promise<void> {
    const { sink, key } = this.#parts;
    const confirmed = this.#confirmed < seq ? this.#confirmed : undefined;
    return sink.saveHead(headText(key, { seq, mac, oldest: this.#oldest, confirmed }, Date.now()));
  }
}
