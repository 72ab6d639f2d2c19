import type { Era } from '../../protocol/revisions.ts';
import { CONFIGURED, goesOn, type Lifecycle, type LifecycleEvent, overall, step } from './lifecycle.ts';

/** The combined state of an upstream in both eras. */
export interface OverallLifecycle extends Lifecycle {
  /** The time since which it is in this state, in ms since the epoch. The attempts to start it are one state with their failures. */
  readonly sinceMs: number;
}

/** The lifecycles of one upstream: one for each era that it is used in. */
export class Lifecycles {
  readonly #byEra: Record<Era, Lifecycle> = { legacy: CONFIGURED, modern: CONFIGURED };
  readonly #onChange: (after: Lifecycle) => void;
  #overall: OverallLifecycle = { ...CONFIGURED, sinceMs: Date.now() };

  /** @param onChange called with the overall lifecycle after its phase or reason has changed. */
  constructor(onChange: (after: Lifecycle) => void) {
    this.#onChange = onChange;
  }

  get overall(): OverallLifecycle {
    return this.#overall;
  }

  in(era: Era): Lifecycle {
    return this.#byEra[era];
  }

  step(era: Era, event: LifecycleEvent): void {
    this.#set(era, step(this.#byEra[era], event, performance.now(), Math.random()));
  }

  stepAll(event: LifecycleEvent): void {
    this.step('legacy', event);
    this.step('modern', event);
  }

  /** Resets an era that the upstream does not support any more. */
  forget(era: Era): void {
    if (this.#byEra[era].phase !== 'stopped') this.#set(era, CONFIGURED);
  }

  /**
   * Resets an era after a connection was opened in the other era in its place. Unless others are open, nobody is served in it any more.
   *
   * @param isOpen whether connections of this era are open.
   */
  reset(era: Era, isOpen: boolean): void {
    if (!isOpen || this.#byEra[era].phase === 'starting') this.forget(era);
  }

  #set(era: Era, state: Lifecycle): void {
    const before = this.#overall;
    this.#byEra[era] = state;
    const after = overall(this.#byEra.legacy, this.#byEra.modern);
    this.#overall = { ...after, sinceMs: goesOn(before.phase, after.phase) ? before.sinceMs : Date.now() };
    if (after.phase !== before.phase || after.reason !== before.reason) this.#onChange(this.#overall);
  }
}
