import type { Bound, Figures } from '../sheet.ts';
import type { Place } from './stage.ts';

/** The figures of a scenario, and what else is worth keeping in the file of `--json`. */
export interface Outcome {
  readonly figures: Figures;
  readonly details: object;
}

export interface ScenarioOptions {
  readonly minutes: number;
  /** Calls a second of an overload; undefined: three times the knee, which is then measured first. */
  readonly rate: number | undefined;
  /** Other programs on the core of the gateway, in an overload. */
  readonly neighbours: number;
  /** Idle streams. */
  readonly streams: number;
}

export interface Scenario {
  readonly id: string;
  readonly title: string;
  /** The length that the requirements name. */
  readonly minutes: number;
  /** Targets. The point of each is the scenario's id. */
  readonly bounds: readonly Omit<Bound, 'point'>[];
  /** @throws {Error} if there are no figures. */
  run(place: Place, options: ScenarioOptions): Promise<Outcome>;
}
