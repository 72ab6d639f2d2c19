import { setTimeout as sleep } from 'node:timers/promises';
import type { AuditConfig } from '../config/values/config.ts';
import { settlesWithin } from '../deadline.ts';
import { GatewayError } from '../errors.ts';
import type { AuditEvent } from './audit-event.ts';
import type { AuditWriter } from './audit-writer.ts';
import { type ChainedBatch, type ChainEvents, ChainWriter, type ChainWriterParts } from './chain-writer.ts';
import { RecordTexts } from './record-texts.ts';

/** The longest time that a record waits before it is written. The death of the process loses younger ones. */
export const GATHER_MS = 50;
/** Records of this size together are written at once. */
export const GATHER_BYTES = 65_536;
/** One write, so that the MACs of many records do not block the process. */
const BATCH_BYTES = 262_144;
const BATCH_RECORDS = 512;
/** The interval of syncs and heads. */
const UPKEEP_MS = 1_000;
/** The longest time that a call waits for its record. */
export const COMMIT_MS = 5_000;
const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 10_000;
/** The longest time that the end of the process waits for writes to begin. */
export const CLOSE_MS = 10_000;
/** The time after that in which the last write may end. */
const LAST_WRITE_MS = 1_000;

/** The settings of an {@link AuditLog}. */
export type AuditLogSettings = Pick<AuditConfig, 'sync' | 'queueBytes' | 'recordBytes'>;

/** Learns what becomes of records. */
export interface AuditLogEvents extends ChainEvents {
  /** Records that found no room in the queue. */
  onDropped(count: number): void;
  /** A write that failed, or that lasts too long. Its records are written later. */
  onFailed(): void;
  /** Runs when writing begins to fail. */
  onFailing(error: unknown): void;
  /** Runs when everything is written again. @param dropped records that are lost. */
  onRecovered(dropped: number): void;
  /** Runs at the end, if records could not be written. They are lost, or, if they were being written, may be. */
  onLost(count: number): void;
}

export interface AuditLogParts extends ChainWriterParts {
  readonly settings: AuditLogSettings;
  readonly events: AuditLogEvents;
}

interface Entry {
  readonly text: string;
  readonly bytes: number;
  /** Resolves with the number of the record when it is written. */
  waiter: PromiseWithResolvers<number> | undefined;
  /** True if its call was refused while it was being written. */
  isRefused: boolean;
}

/**
 * Writes records in the order of their arrival, in batches and without blocking. {@link ChainWriter} chains them.
 *
 * If the sink fails, records wait in a bounded queue and are written later. Records beyond it are dropped, and one record says how many.
 */
export class AuditLog implements AuditWriter {
  readonly #parts: AuditLogParts;
  readonly #texts: RecordTexts;
  readonly #chain: ChainWriter;
  #queue: Entry[] = [];
  #queuedBytes = 0;
  /** The number of records at the beginning of the queue that are being written. */
  #writing = 0;
  #dropped = 0;
  /** Those of the failure that lasts. */
  #droppedInAll = 0;
  #failure: unknown;
  #retryMs = FIRST_RETRY_MS;
  #timer: NodeJS.Timeout | undefined;
  /** The wait of the timer in milliseconds. */
  #timerMs = 0;
  #working: Promise<void> | undefined;
  #lateness: NodeJS.Timeout | undefined;
  #upkeptMs = 0;
  #isClosed = false;
  /** No write begins after it, by {@link performance.now}. */
  #lastWriteMs = Number.POSITIVE_INFINITY;

  private constructor(parts: AuditLogParts) {
    this.#parts = parts;
    this.#texts = new RecordTexts(parts.settings.recordBytes);
    this.#chain = new ChainWriter(parts);
  }

  /** Continues the chain of the sink. If the first record cannot be written within 5 s, it is written later. */
  static async open(parts: AuditLogParts): Promise<AuditLog> {
    const log = new AuditLog(parts);
    await settlesWithin(
      log.#run(() => log.#begin()),
      COMMIT_MS,
    );
    return log;
  }

  /** Number of the last record. */
  get seq(): number {
    return this.#chain.seq;
  }

  /** MAC of the last record. */
  get mac(): string {
    return this.#chain.mac;
  }

  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  get isFailing(): boolean {
    return this.#failure !== undefined;
  }

  async #begin(): Promise<void> {
    try {
      await this.#chain.begin();
      await this.#upkeep();
    } catch (thrown) {
      this.#fail(thrown);
    }
  }

  /** Adds a record. Drops and counts it if the queue is full. Never throws. */
  record(event: AuditEvent): void {
    const isDue = this.#texts.add(event);
    if (isDue || this.#failure !== undefined || this.#isClosed) this.#addTexts();
    this.#wakeSoon();
  }

  /** Adds a record as {@link RecordTexts} makes it. Drops and counts it if the queue is full. Never throws. */
  addText(text: string): void {
    this.#addTexts();
    this.#addOrDrop(text);
    this.#wakeSoon();
  }

  /** Makes the texts of events that wait for them. */
  #addTexts(): void {
    for (const text of this.#texts.take()) this.#addOrDrop(text);
  }

  #addOrDrop(text: string): void {
    const entry = entryOf(text);
    if (this.#fits(entry)) this.#add(entry);
    else this.#countDropped(1);
  }

  #wakeSoon(): void {
    if (this.#queuedBytes >= GATHER_BYTES && this.#failure === undefined) this.#wake();
    else this.#wakeIn(GATHER_MS);
  }

  /**
   * Adds a record, and waits until it is written, and synced if the settings say so. Resolves with its number.
   *
   * @throws {GatewayError} `audit-unavailable` if that fails, or takes longer than 5 s.
   */
  async commit(event: AuditEvent): Promise<number> {
    return await this.commitText(this.#texts.of(event));
  }

  /**
   * Adds a record as {@link RecordTexts} makes it, and waits until it is written. Resolves with its number.
   *
   * @throws {GatewayError} `audit-unavailable` if that fails, or takes longer than `waitMs`.
   */
  async commitText(text: string, waitMs: number = COMMIT_MS): Promise<number> {
    this.#addTexts();
    const entry = entryOf(text);
    if (this.#isClosed || !this.#fits(entry)) throw unavailable();
    const waiter = Promise.withResolvers<number>();
    entry.waiter = waiter;
    this.#add(entry);
    this.#wake();
    const timer = setTimeout(() => {
      entry.waiter = undefined;
      entry.isRefused = true;
      this.#withdraw(entry);
      waiter.reject(unavailable());
    }, waitMs);
    try {
      return await waiter.promise;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Counts records that found no room in another process. A record says how many are missing. */
  drop(count: number): void {
    this.#countDropped(count);
    this.#wakeIn(GATHER_MS);
  }

  #fits({ bytes }: Entry): boolean {
    return !this.#isClosed && this.#queuedBytes + bytes <= this.#parts.settings.queueBytes;
  }

  #add(entry: Entry): void {
    this.#queue.push(entry);
    this.#queuedBytes += entry.bytes;
  }

  /** Removes a record of the queue, unless it is being written. */
  #withdraw(entry: Entry): void {
    const index = this.#queue.indexOf(entry);
    if (index < this.#writing) return;
    this.#queue.splice(index, 1);
    this.#queuedBytes -= entry.bytes;
  }

  #countDropped(count: number): void {
    this.#dropped += count;
    this.#parts.events.onDropped(count);
  }

  #wakeIn(ms: number): void {
    if (this.#isClosed || this.#working !== undefined) return;
    const waitMs = this.#failure === undefined ? ms : this.#retryMs;
    // A record does not wait for the upkeep.
    if (this.#timer !== undefined && this.#timerMs <= waitMs) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#wake(), waitMs).unref();
    this.#timerMs = waitMs;
  }

  #wake(): void {
    if (this.#isClosed) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    void this.#run(() => this.#work());
  }

  /** Runs steps that write, unless others run, and wakes up later if something is left. */
  #run(steps: () => Promise<void>): Promise<void> {
    if (this.#working !== undefined) return this.#working;
    this.#beginRound();
    return (this.#working = steps().finally(() => {
      clearTimeout(this.#lateness);
      this.#working = undefined;
      if (this.#queue.length > 0 || this.#texts.hasLate || this.#failure !== undefined) this.#wakeIn(GATHER_MS);
      else if (this.#chain.isDirty) this.#wakeIn(UPKEEP_MS);
    }));
  }

  /** Reports a round of writes that lasts so long that calls are refused. One that hangs does not fail by itself. */
  #beginRound(): void {
    clearTimeout(this.#lateness);
    const late = () => this.#report(new Error('a write has not ended for 5 s: its destination stands still'));
    this.#lateness = setTimeout(late, COMMIT_MS).unref();
  }

  /** Writes all records of the queue, one batch after the other. Never rejects. */
  async #work(): Promise<void> {
    this.#addTexts();
    try {
      do {
        if (performance.now() >= this.#lastWriteMs) return;
        this.#beginRound();
        if (this.#chain.inDoubt !== undefined) await this.#writeAgain(this.#chain.inDoubt);
        if (this.#queue.length > 0 || this.#dropped > 0 || this.#chain.isSegmentDue) await this.#writeBatch();
        // Under load the queue is never empty. A failed upkeep is not over before it succeeds.
        const isUpkeepDue = this.#failure !== undefined || performance.now() - this.#upkeptMs >= UPKEEP_MS;
        if (this.#chain.isDirty && isUpkeepDue) await this.#upkeep();
      } while (this.#queue.length > 0);
      if (this.#failure !== undefined) this.#recover();
    } catch (thrown) {
      this.#fail(thrown);
    }
  }

  async #writeBatch(): Promise<void> {
    const batch: Entry[] = [];
    let bytes = 0;
    for (const entry of this.#queue) {
      if (batch.length >= BATCH_RECORDS || bytes >= BATCH_BYTES) break;
      batch.push(entry);
      bytes += entry.bytes;
    }
    const dropped = this.#dropped;
    const lost = dropped > 0 ? [this.#droppedText(dropped)] : [];
    this.#writing = batch.length;
    try {
      await this.#chain.write([...lost, ...batch.map(({ text }) => text)], bytes);
    } catch (thrown) {
      if (this.#chain.inDoubt !== undefined) {
        this.#takeOut(batch, dropped);
        for (const { waiter } of batch) waiter?.reject(unavailable());
      }
      throw thrown;
    } finally {
      this.#writing = 0;
    }
    const firstSeq = this.#chain.seq - batch.length + 1;
    this.#takeOut(batch, dropped);
    this.#queuedBytes -= bytes;
    try {
      if (this.#parts.settings.sync === 'write') await this.#chain.sync();
    } catch (thrown) {
      for (const { waiter } of batch) waiter?.reject(unavailable());
      throw thrown;
    }
    for (const [index, { waiter }] of batch.entries()) waiter?.resolve(firstSeq + index);
  }

  /** Removes the first records of the queue, which have their place in the chain. They are counted in bytes until they are written. */
  #takeOut(batch: readonly Entry[], dropped: number): void {
    this.#queue.splice(0, batch.length);
    this.#dropped -= dropped;
    this.#droppedInAll += dropped;
  }

  #droppedText(count: number): string {
    return JSON.stringify({ time: new Date().toISOString(), kind: 'dropped', count }).slice(1, -1);
  }

  /** Writes the records again that are in doubt, and releases their part of the queue. */
  async #writeAgain({ bytes }: ChainedBatch): Promise<void> {
    await this.#chain.writeAgain();
    this.#queuedBytes -= bytes;
  }

  /** Syncs the records, and then stores the head that shows how many there must be. */
  async #upkeep(): Promise<void> {
    this.#upkeptMs = performance.now();
    if (this.#parts.settings.sync === 'second') await this.#chain.sync();
    await this.#chain.upkeep();
  }

  /** Rejects the calls that wait, and writes the other records later. */
  #fail(thrown: unknown): void {
    this.#report(thrown);
    for (const { waiter } of this.#queue) waiter?.reject(unavailable());
    this.#queue = this.#queue.filter(({ waiter, isRefused }) => waiter === undefined && !isRefused);
    this.#queuedBytes = this.#queue.reduce((sum, { bytes }) => sum + bytes, this.#chain.inDoubt?.bytes ?? 0);
    this.#retryMs = Math.min(2 * this.#retryMs, LAST_RETRY_MS);
  }

  #report(thrown: unknown): void {
    const { events } = this.#parts;
    events.onFailed();
    if (this.#failure === undefined) {
      this.#droppedInAll = 0;
      events.onFailing(thrown);
    }
    this.#failure = thrown;
  }

  #recover(): void {
    this.#failure = undefined;
    this.#retryMs = FIRST_RETRY_MS;
    this.#parts.events.onRecovered(this.#droppedInAll);
    this.#droppedInAll = 0;
  }

  /** Writes all records, a last one and the head, and tries for 10 s if that fails or hangs. Releases the sink. Never rejects. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.record({ kind: 'stopped' });
    this.#addTexts();
    this.#isClosed = true;
    this.#lastWriteMs = performance.now() + CLOSE_MS;
    clearTimeout(this.#timer);
    // The end of the process ends a write that hangs.
    await settlesWithin(this.#end(), CLOSE_MS + LAST_WRITE_MS);
    const lost = this.#queue.length + (this.#chain.inDoubt?.count ?? 0);
    if (lost > 0) this.#parts.events.onLost(lost);
  }

  async #end(): Promise<void> {
    await this.#working;
    await this.#run(() => this.#work());
    // A receiver that restarts too, or a disk that is full for a moment, takes the records later.
    while (this.#failure !== undefined && performance.now() < this.#lastWriteMs) {
      await sleep(FIRST_RETRY_MS);
      await this.#run(() => this.#work());
    }
    await this.#upkeep().catch((thrown: unknown) => this.#fail(thrown));
    await this.#chain.close();
  }
}

function entryOf(text: string): Entry {
  return { text, bytes: Buffer.byteLength(text), waiter: undefined, isRefused: false };
}

/** Returns the error of a call that cannot be recorded. */
export function unavailable(): GatewayError {
  const message = 'the audit log cannot be written, and nothing is done without a record; try again later';
  return new GatewayError('audit-unavailable', { message });
}
