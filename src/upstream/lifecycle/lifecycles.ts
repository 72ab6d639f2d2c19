import type { Era } from '../../protocol/revisions.ts';
import { CONFIGURED, type Lifecycle, type LifecycleEvent, overall, step } from './lifecycle.ts';

/** The lifecycles of one upstream: one for each era that it is used in. */
export class Lifecycles {
  readonly #byEra: Record<Era, Lifecycle> = { legacy: CONFIGURED, modern: CONFIGURED };
  readonly #onChange: (after: Lifecycle) => void;

  /** @param onChange called with the overall lifecycle after its phase or reason has changed. */
  constructor(onChange: (after: Lifecycle) => void) {
    this.#onChange = onChange;
  }

  get overall(): Lifecycle {
    return overall(this.#byEra.legacy, this.#byEra.modern);
  }

  in(era: Era): Lifecycle {
    return this.#byEra[era];
  }

  step(era: Era, event: LifecycleEvent): void {
    const before = this.overall;
    this.#byEra[era] = step(this.#byEra[era], event, performance.now(), Math.random());
    const after = this.overall;
    if (after.phase !== before.phase || after.reason !== before.reason) this.#onChange(after);
  }

  stepAll(event: LifecycleEvent): void {
    this.step('legacy', event);
    this.step('modern', event);
  }

  /** Resets an era that the upstream does not support any more. */
  forget(era: Era): void {
    if (this.#byEra[era].phase !== 'stopped') this.#byEra[era] = CONFIGURED;
  }

  /** Resets an era that is `starting`, after the connection was opened in the other era. */
  reset(era: Era): void {
    if (this.#byEra[era].phase === 'starting') this.#byEra[era] = CONFIGURED;
  }
}
