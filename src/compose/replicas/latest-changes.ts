import { z } from 'zod';
import { LOG_LEVELS, type LogLevel } from '../../config/values/config.ts';
import { type Logger, setLogLevel } from '../../telemetry/log.ts';
import type { Core } from '../core/core.ts';

export const changesRecord = z.object({
  upstreams: z.array(
    z.object({
      id: z.string(),
      /** The time of the change. Each is later than all that its process knew of. */
      at: z.number(),
      /** The reason why it is out of service; absent if it is in service again. */
      reason: z.string().optional(),
    }),
  ),
  /** Absent if no operator has set it, or a reload has set another since. */
  logLevel: z.object({ level: z.enum(LOG_LEVELS), at: z.number() }).optional(),
});

/** What operators have changed, with the times of the changes. */
type ChangesRecord = z.output<typeof changesRecord>;

/** The part of a core that operators change. */
export type ChangedCore = Pick<Core, 'upstreams' | 'upstreamChanges' | 'startUpstream'>;

/** The key of the log level among the changes. No id of an upstream is empty. */
const LOG_LEVEL = '';

/**
 * What operators have changed at this replica or through it, for replicas that join later. Of two changes of one thing the later one holds, so that
 * all replicas agree whatever order they hear of them in.
 */
export class LatestChanges {
  readonly #core: ChangedCore;
  readonly #log: Logger;
  /** The times of the latest changes, by id of the upstream. */
  readonly #times = new Map<string, number>();
  #level: LogLevel | undefined;
  #latest = 0;

  constructor(core: ChangedCore, log: Logger) {
    this.#core = core;
    this.#log = log;
  }

  /** Returns the time of a change that is made now. */
  now(): number {
    return Math.max(Date.now(), this.#latest + 1);
  }

  hasUpstream(id: string): boolean {
    return this.#core.upstreams.has(id);
  }

  isDisabled(id: string): boolean {
    return this.#core.upstreamChanges.isDisabled(id);
  }

  /**
   * Notes a change of an upstream. Returns false if a later one is known, which holds. Of two at the same time, at different replicas, the one that
   * disables holds. A change of an upstream that this replica lacks is not noted: it asks for the change when a reload adds the upstream.
   */
  noteUpstream(id: string, at: number, disables: boolean): boolean {
    this.#forgetRemoved();
    if (!this.hasUpstream(id)) return true;
    return this.#note(id, at, disables && !this.#core.upstreamChanges.isDisabled(id));
  }

  /** Notes a change of the log level. Returns false if a later one is known, which holds. */
  noteLogLevel(level: LogLevel, at: number): boolean {
    const known = this.#level === undefined ? 0 : LOG_LEVELS.indexOf(this.#level);
    if (!this.#note(LOG_LEVEL, at, LOG_LEVELS.indexOf(level) > known)) return false;
    this.#level = level;
    return true;
  }

  #note(key: string, at: number, winsTie: boolean): boolean {
    this.#latest = Math.max(this.#latest, at);
    const known = this.#times.get(key) ?? -Infinity;
    if (at < known || (at === known && !winsTie)) return false;
    this.#times.set(key, at);
    return true;
  }

  #forgetRemoved(): void {
    for (const known of this.#times.keys()) {
      if (known !== LOG_LEVEL && !this.#core.upstreams.has(known)) this.#times.delete(known);
    }
  }

  /** The changes that hold now. */
  get record(): ChangesRecord {
    const { upstreams, upstreamChanges } = this.#core;
    const known = [...this.#times].filter(([id]) => upstreams.has(id));
    const at = this.#times.get(LOG_LEVEL);
    const level = this.#level === this.#log.level ? this.#level : undefined;
    return {
      upstreams: known.map(([id, time]) => ({ id, at: time, reason: upstreamChanges.reasonOf(id) })),
      ...(at === undefined || level === undefined ? {} : { logLevel: { level, at } }),
    };
  }

  /**
   * Makes the changes of other replicas that are later than those of this one.
   *
   * @param drainMs the longest wait for calls in flight.
   */
  apply(records: readonly ChangesRecord[], drainMs: number): void {
    const { upstreams, upstreamChanges } = this.#core;
    this.#forgetRemoved();
    const latestFirst = records.flatMap((record) => record.upstreams).toSorted((a, b) => b.at - a.at);
    for (const { id, at, reason } of latestFirst) {
      if (!upstreams.has(id) || !this.noteUpstream(id, at, reason !== undefined)) continue;
      const isDisabled = upstreamChanges.isDisabled(id);
      if (isDisabled === (reason !== undefined)) continue;
      this.#log.info(
        { upstream: id, isDisabled: !isDisabled },
        'change of an operator taken over from another replica',
      );
      if (reason !== undefined) void upstreamChanges.disable(id, reason, drainMs);
      else {
        void upstreamChanges.restart(id, drainMs);
        void this.#core.startUpstream(id);
      }
    }
    for (const { logLevel } of records) {
      if (logLevel !== undefined && this.noteLogLevel(logLevel.level, logLevel.at))
        setLogLevel(this.#log, logLevel.level);
    }
  }
}
