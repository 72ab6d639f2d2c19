import type { Era } from '../../../protocol/revisions.ts';
import { dueMs, nextPace, type Pace } from './pace.ts';

/** Upstreams whose lists changed, with the eras they changed in. */
export type ListChanges = ReadonlyMap<string, ReadonlySet<Era>>;

/** Gathers changes of upstreams' lists and reports them together, at growing intervals while upstreams start. */
export class ChangeGatherer {
  readonly #onChanges: (changes: ListChanges) => void;
  #gathered = new Map<string, Set<Era>>();
  #pace: Pace | undefined;
  #timer: NodeJS.Timeout | undefined;
  #dueMs = Number.POSITIVE_INFINITY;

  constructor(onChanges: (changes: ListChanges) => void) {
    this.#onChanges = onChanges;
  }

  /**
   * Adds a change of an upstream's lists.
   *
   * @param isStart whether this process has not listed the upstream before.
   */
  add(upstream: string, era: Era, isStart: boolean): void {
    const eras = this.#gathered.get(upstream);
    if (eras === undefined) this.#gathered.set(upstream, new Set([era]));
    else eras.add(era);
    const nowMs = performance.now();
    const due = dueMs(this.#pace, isStart, nowMs);
    if (due >= this.#dueMs) return;
    clearTimeout(this.#timer);
    this.#dueMs = due;
    this.#timer = setTimeout(() => this.#report(), due - nowMs);
    this.#timer.unref();
  }

  /** Drops gathered and later changes. */
  close(): void {
    clearTimeout(this.#timer);
    this.#dueMs = Number.NEGATIVE_INFINITY;
  }

  #report(): void {
    this.#dueMs = Number.POSITIVE_INFINITY;
    this.#pace = nextPace(this.#pace, performance.now());
    const changes = this.#gathered;
    this.#gathered = new Map();
    this.#onChanges(changes);
  }
}
