import { GatewayError } from '../errors.ts';
import { type LimitName, LIMITS } from '../limits.ts';
import type { Proof } from '../policy/callers.ts';
import type { Credential, RequestCredentials } from '../upstream/http/request-credentials.ts';
import { type Actor, NeedsAuthorizationError } from '../upstream/rpc/needs-authorization-error.ts';
import { NoCredentialsError } from '../upstream/rpc/no-credentials-error.ts';
import {
  type Audience,
  charsOf,
  chosenIn,
  type Entry,
  type Failure,
  type Held,
  LAST_RETRY_MS,
  pauseOf,
  refusalOf,
  standIn,
  usableIn,
} from './credential-entry.ts';
import { NO_SCOPES, type ScopeSettings, StepUp } from './step-up.ts';
import { TokenDeniedError } from './token-request.ts';

const FIRST_RETRY_MS = 1_000;
/** Shortest time between renewals that an upstream causes by a 401. */
const RENEWAL_MS = 5_000;
/** Acquisitions that a request with further needs waits for before its own. */
const MAX_TURNS = 8;
/** A credential is renewed after this share of its life, while it is still valid. */
const FRESH_SHARE = 0.8;
/** An end of a subject that is this much later is another one. The leeway for clocks, 30 s, may be in it or not. */
const EXTENDED_MS = 45_000;
/** A credential is not used for the last part of its life, in which it could expire on its way. */
const MARGIN_SHARE = 0.05;
const MAX_MARGIN_MS = 10_000;
/** Scopes that the issuer refuses are asked for again after this time. */
const SCOPES_REFUSED_MS = 3_600_000;
/** The same after any other failure, which says nothing about the scopes. */
const SCOPES_FAILED_MS = 30_000;

/** The words that a client reads. */
const WHAT_TO_DO = {
  operator: 'an operator has to correct them',
  caller: 'the caller has to sign in again, with an access token',
  nobody: 'it does not know the caller yet; try again in a minute',
} as const satisfies Record<Actor, string>;

export interface Acquired {
  readonly credential: Credential;
  /** The time for which it is valid, in ms; Infinity if nobody says. */
  readonly lifeMs: number;
  /** The time after which the token that it was got for ends, in ms. The credential is not used then. Default: never. */
  readonly subjectLifeMs?: number;
}

export interface CredentialCacheParts {
  readonly upstream: string;
  /**
   * Gets a credential.
   *
   * @param scopes besides those of the settings.
   * @param subject undefined if it is not known.
   * @throws {NeedsAuthorizationError} if only time or a person can change it; any other error is transient.
   * @throws {TokenDeniedError} if the issuer has judged the request, and may judge it otherwise later.
   */
  readonly acquire: (audience: string, scopes: readonly string[], subject: Proof | undefined) => Promise<Acquired>;
  /** Returns the subjects of an audience, the newest first; undefined if there are none, or none is known any more. Runs for each request. */
  readonly subjectsOf?: ((audience: string) => readonly Proof[] | undefined) | undefined;
  /** Returns the time after which a subject ends now, in ms. Default: never. */
  readonly subjectLifeOf?: ((subject: Proof) => number) | undefined;
  /** By default there are none. */
  readonly scopes?: ScopeSettings;
  /** Reports each attempt, with its further scopes and its failure. */
  readonly onAttempt: (scopes: readonly string[], failure: unknown) => void;
  /** Called when a credential has further scopes for the first time. */
  readonly onExtended?: (scopes: readonly string[]) => void;
  readonly onLimit: (limit: LimitName) => void;
  /** Monotonic ms. */
  readonly clock?: () => number;
  /** In [0, 1). */
  readonly random?: () => number;
}

/**
 * Keeps the credentials of an upstream, for each audience one of each subject. That of the newest subject is used. Renews a credential before it expires, while
 * requests use the old one. All that need a credential at the same time share one request for it. docs/decisions/0091-a-credential-for-each-token.md
 */
export class CredentialCache implements RequestCredentials {
  readonly #parts: CredentialCacheParts;
  readonly #clock: () => number;
  readonly #random: () => number;
  readonly #audiences = new Map<string, Audience>();
  /** The sum over all audiences; see {@link Audience.chars}. */
  #chars = 0;

  constructor(parts: CredentialCacheParts) {
    this.#parts = parts;
    this.#clock = parts.clock ?? (() => performance.now());
    this.#random = parts.random ?? Math.random;
  }

  current(audience: string): Credential | undefined {
    const known = this.#audiences.get(audience);
    if (known === undefined) return undefined;
    const nowMs = this.#clock();
    const entry = this.#presentOf(known, nowMs);
    const own = usableIn(entry, nowMs);
    const held = own ?? standIn(entry, nowMs);
    if (held === undefined) return undefined;
    const isFresh = own !== undefined && nowMs < own.freshUntilMs && !this.#isExtended(entry, own, nowMs);
    if (!isFresh && entry.acquiring === undefined && pauseOf(entry, nowMs) === undefined) {
      // A failure is reported by onAttempt, and by requests once the credential has expired.
      this.#acquire(entry).catch(() => undefined);
    }
    return held.credential;
  }

  async acquire(audience: string): Promise<Credential> {
    const usable = this.current(audience);
    if (usable !== undefined) return usable;
    const entry = this.#find(audience);
    return await this.#orOther(entry, undefined, () => this.#acquireUnlessPaused(entry));
  }

  async renew(audience: string, refused: Credential): Promise<Credential | undefined> {
    const entry = this.#find(audience);
    const nowMs = this.#clock();
    const held = usableIn(entry, nowMs);
    if (held !== undefined && held.credential !== refused) return held.credential;
    if (held !== undefined) held.isDoubtful = true;
    const isPaused = pauseOf(entry, nowMs) !== undefined;
    if (entry.acquiring === undefined && !isPaused) {
      if (nowMs < entry.renewableAtMs) return undefined;
      entry.renewableAtMs = nowMs + RENEWAL_MS;
    }
    return await this.#orOther(entry, refused, async () => {
      try {
        return await this.#acquireUnlessPaused(entry);
      } catch (thrown) {
        // The pause after the failure bounds the renewals.
        entry.renewableAtMs = 0;
        throw thrown;
      }
    });
  }

  async extend(audience: string, refused: Credential, needed: readonly string[]): Promise<Credential | undefined> {
    const entry = this.#find(audience);
    const { stepUp } = entry.audience;
    const isCovered = (): boolean => stepUp.covers(needed, entry.held?.scopes);
    // All that wait for a credential go on at its end, and the first of them may begin to acquire another one.
    for (let turn = 0; turn < MAX_TURNS && entry.acquiring !== undefined; turn++) {
      if (turn > 0 && isCovered()) break;
      await entry.acquiring.catch(() => undefined);
    }
    if (isCovered()) {
      const acquired = await this.acquire(audience);
      return acquired === refused ? undefined : acquired;
    }
    // Another subject may have them.
    const scopes = stepUp.covers(needed) ? stepUp.held : stepUp.plan(needed, this.#clock());
    if (scopes === undefined) return undefined;
    const extended = await this.#acquire(entry, scopes);
    return extended === refused || !isCovered() ? undefined : extended;
  }

  /** Forgets all credentials and failures, after a change of the settings. */
  clear(): void {
    this.#audiences.clear();
    this.#chars = 0;
  }

  /** Returns whether the subject, which was about to end, now ends later. */
  #isExtended({ subject }: Entry, { subjectFreshUntilMs, subjectEndMs }: Held, nowMs: number): boolean {
    if (subject === undefined || nowMs < subjectFreshUntilMs) return false;
    const lifeMs = this.#parts.subjectLifeOf?.(subject) ?? 0;
    return nowMs + lifeMs > subjectEndMs + EXTENDED_MS;
  }

  #find(audience: string): Entry {
    let known = this.#audiences.get(audience);
    if (known === undefined) {
      const stepUp = new StepUp(this.#parts.scopes ?? NO_SCOPES, this.#parts.onLimit);
      known = { key: audience, stepUp, entries: new Map(), present: undefined, outage: undefined, chars: 0 };
      this.#audiences.set(audience, known);
      this.#shrink(known);
    }
    return this.#presentOf(known, this.#clock());
  }

  #presentOf(audience: Audience, nowMs: number): Entry {
    const { present } = audience;
    const subjects = this.#parts.subjectsOf?.(audience.key);
    const newest = subjects?.[0];
    const isPresent = newest === undefined || (newest === present?.subject && refusalOf(present, nowMs) === undefined);
    return present !== undefined && isPresent ? present : chosenIn(audience, subjects ?? [], nowMs);
  }

  /** Returns the credential that is asked for a subject. If that fails, one for another subject is asked for. @param refused is not returned. */
  async #orOther(entry: Entry, refused: Credential | undefined, ask: () => Promise<Credential>): Promise<Credential> {
    const { key } = entry.audience;
    try {
      return await this.#orStandIn(key, refused, ask);
    } catch (thrown) {
      const next = this.#find(key);
      if (next === entry) throw thrown;
      return await this.#orStandIn(key, refused, () => this.#acquireUnlessPaused(next));
    }
  }

  /** Returns the credential that is asked for. If that fails, returns the one that its audience uses meanwhile. */
  async #orStandIn(
    audience: string,
    refused: Credential | undefined,
    ask: () => Promise<Credential>,
  ): Promise<Credential> {
    try {
      return await ask();
    } catch (thrown) {
      const other = this.current(audience);
      if (other === undefined || other === refused) throw thrown;
      return other;
    }
  }

  /** Counts what is kept for an audience, after a change. */
  #count(audience: Audience): void {
    if (this.#audiences.get(audience.key) !== audience) return;
    const before = audience.chars;
    audience.chars = charsOf(audience);
    this.#chars += audience.chars - before;
    this.#shrink(audience);
  }

  /** Removes the audiences that were first needed longest ago while there are too many, or too much is kept for them. */
  #shrink(latest: Audience): void {
    for (const audience of this.#audiences.values()) {
      const isTooMany = this.#audiences.size > LIMITS.credentialAudiences;
      if (!isTooMany && this.#chars <= LIMITS.credentialChars) return;
      if (audience === latest) continue;
      this.#audiences.delete(audience.key);
      this.#chars -= audience.chars;
      this.#parts.onLimit(isTooMany ? 'credentialAudiences' : 'credentialChars');
    }
  }

  async #acquireUnlessPaused(entry: Entry): Promise<Credential> {
    const pause = pauseOf(entry, this.#clock());
    if (entry.acquiring === undefined && pause !== undefined) throw pause.error;
    return await this.#acquire(entry);
  }

  #acquire(entry: Entry, scopes = entry.audience.stepUp.held): Promise<Credential> {
    entry.acquiring ??= this.#acquireNow(entry, scopes).finally(() => {
      entry.acquiring = undefined;
      this.#count(entry.audience);
    });
    return entry.acquiring;
  }

  async #acquireNow(entry: Entry, scopes: readonly string[]): Promise<Credential> {
    const { audience, subject } = entry;
    const { stepUp } = audience;
    try {
      const acquired = await this.#parts.acquire(audience.key, scopes, subject);
      entry.held = this.#heldOf(acquired, scopes);
      entry.failure = audience.outage = undefined;
      if (!stepUp.covers(scopes)) this.#parts.onExtended?.(scopes);
      stepUp.granted(scopes);
      this.#parts.onAttempt(scopes, undefined);
      return acquired.credential;
    } catch (thrown) {
      this.#parts.onAttempt(scopes, thrown);
      const others = this.#withoutScopes(stepUp, scopes, thrown);
      if (others === undefined) throw this.#fail(entry, thrown);
      const held = usableIn(entry, this.#clock());
      return held === undefined || held.isDoubtful ? await this.#acquireNow(entry, others) : held.credential;
    }
  }

  #heldOf({ credential, lifeMs, subjectLifeMs = Infinity }: Acquired, scopes: readonly string[]): Held {
    const nowMs = this.#clock();
    const usableMs = lifeMs - Math.min(MAX_MARGIN_MS, lifeMs * MARGIN_SHARE);
    return {
      credential,
      scopes,
      // Replicas that started together would otherwise ask together.
      freshUntilMs: nowMs + lifeMs * (FRESH_SHARE - 0.1 * this.#random()),
      subjectFreshUntilMs: nowMs + subjectLifeMs * FRESH_SHARE,
      subjectEndMs: nowMs + subjectLifeMs,
      usableUntilMs: nowMs + Math.min(usableMs, subjectLifeMs),
      isDoubtful: false,
    };
  }

  /** Notes a failure, of one subject or of all. Returns the error for clients. */
  #fail(entry: Entry, thrown: unknown): GatewayError {
    const { audience, subject } = entry;
    const isRefused = thrown instanceof NeedsAuthorizationError;
    const kind = isRefused ? 'refused' : thrown instanceof TokenDeniedError ? 'denied' : 'unanswered';
    const isOfAll = isRefused ? thrown.actor === 'operator' : kind === 'unanswered';
    const { times = 0 } = (isOfAll ? audience.outage : entry.failure) ?? {};
    const failure: Failure = {
      error: this.#failureOf(thrown),
      kind,
      verification: entry.failure?.verification ?? subject?.verification ?? 0,
      times: times + 1,
      retryAtMs: this.#clock() + Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** times),
    };
    audience.outage = isOfAll ? failure : undefined;
    if (!isOfAll) entry.failure = failure;
    entry.isUnanswered = kind === 'unanswered';
    // A credential that upstream and issuer have refused is of no use.
    if (isRefused && entry.held?.isDoubtful === true) entry.held = undefined;
    return failure.error;
  }

  /**
   * Returns the scopes to go on with after a failure to get further ones; undefined if it was not because of them. Requests that need none of the further scopes are
   * not concerned.
   */
  #withoutScopes(stepUp: StepUp, scopes: readonly string[], thrown: unknown): readonly string[] | undefined {
    const isRefused = thrown instanceof NeedsAuthorizationError && thrown.isOfScopes;
    if (scopes.length === 0 || (scopes === stepUp.held && !isRefused)) return undefined;
    stepUp.refused(scopes, this.#clock() + (isRefused ? SCOPES_REFUSED_MS : SCOPES_FAILED_MS));
    return stepUp.held;
  }

  /** Returns the failure for clients, which learn nothing about the issuer. */
  #failureOf(thrown: unknown): GatewayError {
    if (thrown instanceof GatewayError) return thrown;
    const { upstream } = this.#parts;
    const actor = thrown instanceof NeedsAuthorizationError ? thrown.actor : undefined;
    const why = actor === undefined ? 'the issuer did not give them out; try again' : WHAT_TO_DO[actor];
    const message = `the gateway has no credentials for upstream "${upstream}": ${why}`;
    const retryable = actor === undefined || actor === 'nobody';
    const cause =
      actor === undefined
        ? new NoCredentialsError(thrown instanceof Error ? thrown.message : why, { cause: thrown })
        : thrown;
    return new GatewayError('upstream-unavailable', { upstream, message, executed: 'no', retryable }, cause);
  }
}
