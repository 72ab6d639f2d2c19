import type { AuditEvent } from './audit-event.ts';
import { recordText } from './record-text.ts';

/** The most events without a text. */
const LATE_EVENTS = 128;
/** Texts of a larger request are not kept: an event would hold the whole of it. */
const LATE_CHARS = 4_096;

interface LateEvent {
  readonly event: AuditEvent;
  readonly timeMs: number;
}

/**
 * Makes the texts of records, of many events at a time. Between calls, the code for it would have left the caches of the processor, and
 * take several times as long.
 */
export class RecordTexts {
  readonly #limitBytes: number;
  readonly #now: () => number;
  /** In their order. Texts are those of events that hold too much. */
  #late: (LateEvent | string)[] = [];
  #timeMs = Number.NaN;
  #timeText = '';

  /** @param limitBytes of one record. @param now returns the time, ms since the epoch. */
  constructor(limitBytes: number, now: () => number = Date.now) {
    this.#limitBytes = limitBytes;
    this.#now = now;
  }

  /** True if events wait for their texts. */
  get hasLate(): boolean {
    return this.#late.length > 0;
  }

  /** Adds an event of now. Returns whether {@link take} is due. */
  add(event: AuditEvent): boolean {
    const timeMs = this.#now();
    this.#late.push(isSmall(event) ? { event, timeMs } : this.#textOf(event, timeMs));
    return this.#late.length >= LATE_EVENTS;
  }

  /** Returns the texts of the added events: for each the members of its record after its number, as JSON without braces. */
  take(): readonly string[] {
    const late = this.#late;
    this.#late = [];
    return late.map((each) => (typeof each === 'string' ? each : this.#textOf(each.event, each.timeMs)));
  }

  /** Returns the text of an event of now. */
  of(event: AuditEvent): string {
    return this.#textOf(event, this.#now());
  }

  #textOf(event: AuditEvent, timeMs: number): string {
    // Records of one millisecond share the text of the time.
    if (timeMs !== this.#timeMs) {
      this.#timeMs = timeMs;
      this.#timeText = new Date(timeMs).toISOString();
    }
    return recordText(event, this.#timeText, this.#limitBytes);
  }
}

/** Returns whether the message of an event is small. Its texts may be parts of the message, and hold all of it. */
function isSmall({ bytesIn = 0, requestId = '', method = '', argumentsText = '' }: AuditEvent): boolean {
  return bytesIn + requestId.length + method.length + argumentsText.length <= LATE_CHARS;
}
