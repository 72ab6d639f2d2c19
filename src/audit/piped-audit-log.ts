import { MAX_TIMER_MS, resultWithin, setDeadline } from '../deadline.ts';
import type { PipeMethod, PipeCalls } from '../store/piped/pipe-calls.ts';
import type { AuditEvent } from './audit-event.ts';
import { CLOSE_MS, COMMIT_MS, GATHER_BYTES, GATHER_MS, unavailable } from './audit-log.ts';
import { AUDIT, monotonicMs } from './audit-pipe.ts';
import type { AuditWriter } from './audit-writer.ts';
import { RecordTexts } from './record-texts.ts';

/** The parent gives a call up before this process does, so that no record of a refused call is written afterwards. */
const ANSWER_MS = 500;

interface Commit {
  readonly text: string;
  readonly waiter: PromiseWithResolvers<number>;
}

export interface PipedAuditLogParts {
  readonly calls: PipeCalls;
  /** Records that the parent has not taken, together. */
  readonly queueBytes: number;
  readonly recordBytes: number;
  /** Called at the end, if the parent has not taken records. */
  readonly onLost: (count: number) => void;
}

/** The audit log of the parent. Records wait in a bounded queue until the parent has taken them; those beyond it are dropped, and a record says how many. */
export class PipedAuditLog implements AuditWriter {
  /** The parent reports it for all of its workers. */
  readonly isFailing = false;
  readonly #parts: PipedAuditLogParts;
  readonly #texts: RecordTexts;
  /** Records that nobody waits for. They are sent together. */
  #gathered: string[] = [];
  #gatheredBytes = 0;
  /** Records that calls wait for. Those of one turn of the event loop are sent together. */
  #commits: Commit[] = [];
  #dropped = 0;
  /** Records that were sent, by the message. */
  readonly #sent = new Map<Promise<void>, number>();
  #queuedBytes = 0;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(parts: PipedAuditLogParts) {
    this.#parts = parts;
    this.#texts = new RecordTexts(parts.recordBytes);
  }

  /** Bytes of records that the parent has not taken. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  record(event: AuditEvent): void {
    if (this.#texts.add(event) || this.#isClosed) this.#addTexts();
    if (this.#gatheredBytes >= GATHER_BYTES) this.#send();
    else this.#timer ??= setTimeout(() => this.#send(), GATHER_MS).unref();
  }

  /** Makes the texts of events that wait for them. */
  #addTexts(): void {
    for (const text of this.#texts.take()) {
      if (this.#take(text)) {
        this.#gathered.push(text);
        this.#gatheredBytes += Buffer.byteLength(text);
      } else this.#dropped++;
    }
  }

  async commit(event: AuditEvent): Promise<number> {
    const text = this.#texts.of(event);
    if (!this.#take(text)) throw unavailable();
    const waiter = Promise.withResolvers<number>();
    if (this.#commits.length === 0) setImmediate(() => this.#send());
    this.#commits.push({ text, waiter });
    return await waiter.promise;
  }

  /** Takes room in the queue. Returns false if there is none. */
  #take(text: string): boolean {
    const bytes = Buffer.byteLength(text);
    if (this.#isClosed || this.#queuedBytes + bytes > this.#parts.queueBytes) return false;
    this.#queuedBytes += bytes;
    return true;
  }

  /** Sends all records, in the order of their arrival but for those that calls wait for, which are last. */
  #send(): void {
    this.#addTexts();
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const [texts, dropped, commits] = [this.#gathered, this.#dropped, this.#commits];
    [this.#gathered, this.#gatheredBytes, this.#dropped, this.#commits] = [[], 0, 0, []];
    if (texts.length > 0 || dropped > 0) this.#keep(texts, this.#add(texts, dropped));
    if (commits.length > 0) {
      this.#keep(
        commits.map(({ text }) => text),
        this.#commit(commits),
      );
    }
  }

  /** Frees the room of records when the parent has taken them. */
  #keep(texts: readonly string[], sending: Promise<void>): void {
    const sent = sending.finally(() => {
      this.#sent.delete(sent);
      this.#queuedBytes -= texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
    });
    this.#sent.set(sent, texts.length);
  }

  /** Never rejects. */
  async #add(texts: string[], dropped: number): Promise<void> {
    try {
      await this.#ask(AUDIT.add, { texts, dropped });
    } catch {
      // The next message tells the parent, unless it has gone.
      this.#dropped += texts.length + dropped;
    }
  }

  /** Never rejects. */
  async #commit(commits: readonly Commit[]): Promise<void> {
    const refuse = (): void => {
      for (const { waiter } of commits) waiter.reject(unavailable());
    };
    const timer = setDeadline(refuse, COMMIT_MS);
    try {
      const untilMs = monotonicMs() + COMMIT_MS - ANSWER_MS;
      const numbers = await this.#ask(AUDIT.commit, { texts: commits.map(({ text }) => text), untilMs });
      for (const [index, { waiter }] of commits.entries()) {
        const number = numbers[index] ?? undefined;
        if (number === undefined) waiter.reject(unavailable());
        else waiter.resolve(number);
      }
    } catch {
      refuse();
    } finally {
      clearTimeout(timer);
    }
  }

  #ask<Args, Result>(asked: PipeMethod<Args, Result>, args: Args): Promise<Result> {
    // The parent answers, or it has gone. Until then, the records take up room in the queue.
    return this.#parts.calls.call(asked, args, MAX_TIMER_MS);
  }

  async close(): Promise<void> {
    this.#addTexts();
    this.#isClosed = true;
    this.#send();
    await resultWithin(Promise.all(this.#sent.keys()), CLOSE_MS);
    const lost = this.#dropped + this.#sent.values().reduce((sum, count) => sum + count, 0);
    if (lost > 0) this.#parts.onLost(lost);
  }
}
