import { setLatest } from '../bounded-map.ts';
import { GatewayError } from '../errors.ts';
import { type LimitName, LIMITS } from '../limits.ts';
import type { Credential, RequestCredentials } from '../upstream/http/request-credentials.ts';
import { type Actor, NeedsAuthorizationError } from '../upstream/rpc/needs-authorization-error.ts';
import { NoCredentialsError } from '../upstream/rpc/no-credentials-error.ts';
import { NO_SCOPES, type ScopeSettings, StepUp } from './step-up.ts';
import { TokenDeniedError } from './token-request.ts';

const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 30_000;
/** Shortest time between renewals that an upstream causes by a 401. */
const RENEWAL_MS = 5_000;
/** Acquisitions that a request with further needs waits for before its own. */
const MAX_TURNS = 8;
/** A credential is renewed after this share of its life, while it is still valid. */
const FRESH_SHARE = 0.8;
/** An end of a subject that is this much later is another one: the leeway for clocks, 30 s, may be in it or not. */
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

/** A credential that was just acquired. */
export interface Acquired {
  readonly credential: Credential;
  /** The time for which it is valid, in ms; Infinity if nobody says. */
  readonly lifeMs: number;
  /** The time after which the token that it was got for ends, in ms. The credential is not used then. Default: never. */
  readonly subjectLifeMs?: number;
}

/** The parts that a {@link CredentialCache} is constructed from. */
export interface CredentialCacheParts {
  readonly upstream: string;
  /**
   * Gets a credential.
   *
   * @param scopes besides those of the settings.
   * @throws {NeedsAuthorizationError} if only time or a person can change it; any other error is transient.
   * @throws {TokenDeniedError} if the issuer has judged the request, and may judge it otherwise later.
   */
  readonly acquire: (audience: string, scopes: readonly string[]) => Promise<Acquired>;
  /**
   * Returns a digest of what the credential of an audience is got for, such as the token of its caller. For another one a credential is got at
   * once, also if the last was refused. Runs for each request. Undefined if it is not known any more. Default: it never changes.
   */
  readonly subjectOf?: ((audience: string) => string | undefined) | undefined;
  /** Returns the time after which the subject of an audience ends now, in ms. Default: never. */
  readonly subjectLifeOf?: ((audience: string) => number) | undefined;
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

interface Entry {
  acquired: Acquired | undefined;
  /** The digest that `acquired` was got for. */
  subject: string | undefined;
  /** True if the upstream has refused `acquired` with 401, which may have been about one request. */
  isDoubtful: boolean;
  readonly stepUp: StepUp;
  /** Times in monotonic ms. */
  freshUntilMs: number;
  subjectFreshUntilMs: number;
  subjectEndMs: number;
  usableUntilMs: number;
  renewableAtMs: number;
  failures: number;
  retryAtMs: number;
  failure: GatewayError | undefined;
  /** True if `failure` is that the issuer could not be asked. */
  isUnanswered: boolean;
  /** The digest of the subject that was refused; undefined if another one would be refused too. */
  refused: { readonly subject: string | undefined } | undefined;
  acquiring: Promise<Credential> | undefined;
}

/**
 * Keeps the credentials of an upstream, one for each audience. Renews a credential before it expires, while requests use the old one. All
 * that need a credential at the same time share one request for it.
 */
export class CredentialCache implements RequestCredentials {
  readonly #parts: CredentialCacheParts;
  readonly #clock: () => number;
  readonly #random: () => number;
  readonly #entries = new Map<string, Entry>();

  constructor(parts: CredentialCacheParts) {
    this.#parts = parts;
    this.#clock = parts.clock ?? (() => performance.now());
    this.#random = parts.random ?? Math.random;
  }

  current(audience: string): Credential | undefined {
    const entry = this.#entries.get(audience);
    if (entry?.acquired === undefined) return undefined;
    const nowMs = this.#clock();
    if (nowMs >= entry.usableUntilMs) return undefined;
    const isOfSubject = this.#isOfSubject(audience, entry);
    // What a newer token may not do, must not be done by the credential of an older one, unless the issuer cannot be asked.
    if (!isOfSubject && !entry.isUnanswered) return undefined;
    const isFresh = isOfSubject && nowMs < entry.freshUntilMs && !this.#isExtended(audience, entry, nowMs);
    if (!isFresh && entry.acquiring === undefined && nowMs >= entry.retryAtMs) {
      // A failure is reported by onAttempt, and by requests once the credential has expired.
      this.#acquire(audience, entry).catch(() => undefined);
    }
    return entry.acquired.credential;
  }

  async acquire(audience: string): Promise<Credential> {
    const known = this.current(audience);
    if (known !== undefined) return known;
    const entry = this.#entryOf(audience);
    const { acquiring, failure, retryAtMs } = entry;
    if (acquiring !== undefined) {
      try {
        const acquired = await acquiring;
        if (this.#isOfSubject(audience, entry)) return acquired;
      } catch (thrown) {
        if (!this.#hasOtherSubject(audience, entry)) return this.#currentOr(audience, thrown);
      }
    } else if (failure !== undefined && this.#clock() < retryAtMs && !this.#hasOtherSubject(audience, entry)) {
      throw failure;
    }
    try {
      return await this.#acquire(audience, entry);
    } catch (thrown) {
      return this.#currentOr(audience, thrown);
    }
  }

  async renew(audience: string, refused: Credential): Promise<Credential | undefined> {
    const entry = this.#entryOf(audience);
    const known = entry.acquired?.credential;
    if (known !== undefined && known !== refused) return known;
    entry.isDoubtful = known !== undefined;
    if (entry.acquiring === undefined) {
      const { failure, retryAtMs, renewableAtMs } = entry;
      const nowMs = this.#clock();
      if (failure !== undefined && nowMs < retryAtMs && !this.#hasOtherSubject(audience, entry)) throw failure;
      if (nowMs < renewableAtMs) return undefined;
      entry.renewableAtMs = nowMs + RENEWAL_MS;
    }
    try {
      return await this.#acquire(audience, entry);
    } catch (thrown) {
      // The pause after the failure bounds the renewals.
      entry.renewableAtMs = 0;
      throw thrown;
    }
  }

  async extend(audience: string, refused: Credential, needed: readonly string[]): Promise<Credential | undefined> {
    const entry = this.#entryOf(audience);
    const { stepUp } = entry;
    // All that wait for a credential go on at its end, and the first of them may begin to acquire another one.
    for (let turn = 0; turn < MAX_TURNS && entry.acquiring !== undefined; turn++) {
      if (turn > 0 && stepUp.covers(needed)) break;
      await entry.acquiring.catch(() => undefined);
    }
    if (stepUp.covers(needed)) {
      const known = await this.acquire(audience);
      return known === refused ? undefined : known;
    }
    const scopes = stepUp.plan(needed, this.#clock());
    if (scopes === undefined) return undefined;
    const extended = await this.#acquire(audience, entry, scopes);
    return extended === refused || !stepUp.covers(needed) ? undefined : extended;
  }

  /** Forgets all credentials and failures, after a change of the settings. */
  clear(): void {
    this.#entries.clear();
  }

  /** Returns the credential that can still be used after a failure to get another one. @throws the failure, if there is none. */
  #currentOr(audience: string, failure: unknown): Credential {
    const known = this.current(audience);
    if (known === undefined) throw failure;
    return known;
  }

  /** Returns whether no newer subject than that of the credential is known. */
  #isOfSubject(audience: string, { subject }: Entry): boolean {
    const now = this.#parts.subjectOf?.(audience);
    return now === undefined || now === subject;
  }

  /** Returns whether the subject, which was about to end, now ends later. */
  #isExtended(audience: string, { subjectFreshUntilMs, subjectEndMs }: Entry, nowMs: number): boolean {
    if (nowMs < subjectFreshUntilMs) return false;
    const lifeMs = this.#parts.subjectLifeOf?.(audience) ?? 0;
    return nowMs + lifeMs > subjectEndMs + EXTENDED_MS;
  }

  /** Returns whether the last acquisition was refused, for another subject than a next one would be for. */
  #hasOtherSubject(audience: string, { refused }: Entry): boolean {
    return refused !== undefined && this.#parts.subjectOf?.(audience) !== refused.subject;
  }

  #entryOf(audience: string): Entry {
    let entry = this.#entries.get(audience);
    if (entry !== undefined) return entry;
    entry = {
      acquired: undefined,
      subject: undefined,
      isDoubtful: false,
      stepUp: new StepUp(this.#parts.scopes ?? NO_SCOPES, this.#parts.onLimit),
      freshUntilMs: 0,
      subjectFreshUntilMs: 0,
      subjectEndMs: 0,
      usableUntilMs: 0,
      renewableAtMs: 0,
      failures: 0,
      retryAtMs: 0,
      failure: undefined,
      isUnanswered: false,
      refused: undefined,
      acquiring: undefined,
    };
    if (setLatest(this.#entries, audience, entry, LIMITS.credentialAudiences))
      this.#parts.onLimit('credentialAudiences');
    return entry;
  }

  #acquire(audience: string, entry: Entry, scopes = entry.stepUp.held): Promise<Credential> {
    entry.acquiring ??= this.#acquireNow(audience, entry, scopes).finally(() => {
      entry.acquiring = undefined;
    });
    return entry.acquiring;
  }

  async #acquireNow(audience: string, entry: Entry, scopes: readonly string[]): Promise<Credential> {
    const subject = this.#parts.subjectOf?.(audience);
    try {
      const acquired = await this.#parts.acquire(audience, scopes);
      const { lifeMs, subjectLifeMs = Infinity } = acquired;
      const nowMs = this.#clock();
      entry.acquired = acquired;
      entry.subject = subject;
      entry.isDoubtful = false;
      if (scopes !== entry.stepUp.held) this.#parts.onExtended?.(scopes);
      entry.stepUp.granted(scopes);
      // Replicas that started together would otherwise ask together.
      entry.freshUntilMs = nowMs + lifeMs * (FRESH_SHARE - 0.1 * this.#random());
      entry.subjectFreshUntilMs = nowMs + subjectLifeMs * FRESH_SHARE;
      entry.subjectEndMs = nowMs + subjectLifeMs;
      const usableMs = lifeMs - Math.min(MAX_MARGIN_MS, lifeMs * MARGIN_SHARE);
      entry.usableUntilMs = nowMs + Math.min(usableMs, subjectLifeMs);
      entry.failures = 0;
      entry.retryAtMs = 0;
      entry.failure = undefined;
      entry.isUnanswered = false;
      entry.refused = undefined;
      this.#parts.onAttempt(scopes, undefined);
      return acquired.credential;
    } catch (thrown) {
      this.#parts.onAttempt(scopes, thrown);
      const others = this.#withoutScopes(entry, scopes, thrown);
      if (others !== undefined) {
        const { acquired, isDoubtful } = entry;
        const isUsable =
          acquired !== undefined &&
          !isDoubtful &&
          this.#clock() < entry.usableUntilMs &&
          this.#isOfSubject(audience, entry);
        return isUsable ? acquired.credential : await this.#acquireNow(audience, entry, others);
      }
      entry.retryAtMs = this.#clock() + Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** entry.failures);
      entry.failures++;
      entry.failure = this.#failureOf(thrown);
      const isFinal = thrown instanceof NeedsAuthorizationError;
      entry.isUnanswered = !isFinal && !(thrown instanceof TokenDeniedError);
      const actor = isFinal ? thrown.actor : undefined;
      entry.refused = entry.isUnanswered || actor === 'operator' ? undefined : { subject };
      // A credential that upstream and issuer have refused is of no use, and that of an older token might do more than the refused one may.
      const isOfOlder = !entry.isUnanswered && actor !== 'nobody' && subject !== entry.subject;
      if ((isFinal && entry.isDoubtful) || isOfOlder) entry.acquired = undefined;
      throw entry.failure;
    }
  }

  /**
   * Returns the scopes to go on with after a failure to get further ones; undefined if it was not because of them. Requests that need none of the further scopes are
   * not concerned.
   */
  #withoutScopes({ stepUp }: Entry, scopes: readonly string[], thrown: unknown): readonly string[] | undefined {
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
