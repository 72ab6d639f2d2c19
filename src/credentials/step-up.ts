import { type LimitName, LIMITS } from '../limits.ts';

/** The scopes that the credentials of an upstream may have. */
export interface ScopeSettings {
  /** Those of every credential. */
  readonly base: readonly string[];
  /** Those that are asked for besides, once the upstream needs them. */
  readonly stepUp: readonly string[];
}

/** The credentials of `identity`, for example, have no scopes. */
export const NO_SCOPES: ScopeSettings = { base: [], stepUp: [] };

/**
 * The scopes that the credentials of one audience have besides those of the settings, because the upstream needs them. They grow to the union of all that it
 * has asked for (`A-020`), within the settings. A set that the authorization server refuses is not asked for again for some time.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#step-up-authorization-flow
 */
export class StepUp {
  readonly #settings: ScopeSettings;
  readonly #onLimit: ((limit: LimitName) => void) | undefined;
  #held: readonly string[] = [];
  /** By scope sets: monotonic ms until which they are not asked for. */
  readonly #refusedUntilMs = new Map<string, number>();

  /** @param onLimit called when further scopes are not asked for, because too many sets were refused. */
  constructor(settings: ScopeSettings, onLimit?: (limit: LimitName) => void) {
    this.#settings = settings;
    this.#onLimit = onLimit;
  }

  /** The further scopes of the next credentials. */
  get held(): readonly string[] {
    return this.#held;
  }

  /** Returns whether a credential with these further scopes has all that are needed. Default: the next credentials. */
  covers(needed: readonly string[], held = this.#held): boolean {
    return needed.every((scope) => this.#settings.base.includes(scope) || held.includes(scope));
  }

  /** Returns the further scopes to ask for; undefined if some are not allowed, or were refused lately. */
  plan(needed: readonly string[], nowMs: number): readonly string[] | undefined {
    const { base, stepUp } = this.#settings;
    const further = needed.filter((scope) => !base.includes(scope));
    if (!further.every((scope) => stepUp.includes(scope))) return undefined;
    const union = stepUp.filter((scope) => this.#held.includes(scope) || further.includes(scope));
    if (union.length === this.#held.length) return undefined;
    this.#forget(nowMs);
    if (this.#refusedUntilMs.has(union.join(' '))) return undefined;
    // An upstream can ask for each subset of the allowed scopes.
    if (this.#refusedUntilMs.size < LIMITS.refusedScopeSets) return union;
    this.#onLimit?.('refusedScopeSets');
    return undefined;
  }

  /** Notes that a credential has these further scopes. Those that another one has got meanwhile stay. */
  granted(scopes: readonly string[]): void {
    const union = this.#settings.stepUp.filter((scope) => this.#held.includes(scope) || scopes.includes(scope));
    if (union.length > this.#held.length) this.#held = union.length > scopes.length ? union : scopes;
  }

  /** Notes that no credential with these further scopes can be got for now. */
  refused(scopes: readonly string[], untilMs: number): void {
    this.#refusedUntilMs.set(scopes.join(' '), untilMs);
    if (scopes === this.#held) this.#held = [];
  }

  #forget(nowMs: number): void {
    for (const [set, untilMs] of this.#refusedUntilMs) if (untilMs <= nowMs) this.#refusedUntilMs.delete(set);
  }
}
