import type { AuditEvent } from './audit-event.ts';
import { recordText } from './record-text.ts';

/** Makes the texts of records with the time at which they are made. */
export class RecordTexts {
  readonly #limitBytes: number;
  readonly #now: () => number;
  #timeMs = Number.NaN;
  #timeText = '';

  /** @param limitBytes of one record. @param now returns the time, ms since the epoch. */
  constructor(limitBytes: number, now: () => number = Date.now) {
    this.#limitBytes = limitBytes;
    this.#now = now;
  }

  /** Returns the members of a record after its number, as JSON without braces. */
  of(event: AuditEvent): string {
    return recordText(event, this.#time(), this.#limitBytes);
  }

  /** Returns the time in ISO 8601. Records of one millisecond share the text. */
  #time(): string {
    const nowMs = this.#now();
    if (nowMs !== this.#timeMs) {
      this.#timeMs = nowMs;
      this.#timeText = new Date(nowMs).toISOString();
    }
    return this.#timeText;
  }
}
