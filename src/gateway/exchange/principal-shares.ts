import { setLatest } from '../../map-entries.ts';
import { isAuthRequired } from '../../config/auth-required.ts';
import type { Config } from '../../config/values/config.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import type { SharedPool, Shares } from '../../upstream/quota/fair-pool.ts';

export interface PrincipalSharesParts {
  readonly config: Pick<Config, 'auth'>;
  readonly onRefused: (pool: SharedPool) => void;
  readonly onLimit: (limit: LimitName) => void;
}

/** The weights by which principals share pools, as their roles give them. */
export class PrincipalShares implements Shares {
  /** False if clients need no credentials, so that all are one principal. */
  isOn: boolean;
  readonly onRefused: (pool: SharedPool) => void;
  readonly #onLimit: (limit: LimitName) => void;
  /** Weights other than 1, by the key of the principal; the principal of the latest request is last. */
  readonly #weights = new Map<string, number>();

  constructor({ config, onRefused, onLimit }: PrincipalSharesParts) {
    this.isOn = isAuthRequired(config.auth);
    this.onRefused = onRefused;
    this.#onLimit = onLimit;
  }

  /** Applies another config. Weights are set again by the next request of each principal. */
  setConfig({ auth }: Pick<Config, 'auth'>): void {
    this.isOn = isAuthRequired(auth);
    this.#weights.clear();
  }

  weightOf(principal: string): number {
    return this.#weights.get(principal) ?? 1;
  }

  /** Sets the weight of a principal for the pools that it uses from now on. */
  setWeight(principal: string, weight: number): void {
    if (weight === 1) this.#weights.delete(principal);
    else if (setLatest(this.#weights, principal, weight, LIMITS.principalWeights)) this.#onLimit('principalWeights');
  }
}
