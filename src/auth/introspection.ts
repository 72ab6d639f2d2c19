import { messageOf } from '../thrown.ts';
import { hash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { IntrospectionResponse } from 'oauth4webapi';
import type { Logger } from 'pino';
import { shownUrl } from '../config/shown-url.ts';
import type { IntrospectionConfig } from '../config/values/config.ts';
import type { Egress } from '../egress/egress.ts';
import type { LimitName } from '../limits.ts';
import { advertisedScopes } from './challenge.ts';
import { FairSlots } from '../fair-slots.ts';
import { InactiveTokens } from './inactive-tokens.ts';
import { REPORTED_MS } from './jwks.ts';
import { introspect, UnjudgedTokenError } from './introspection-request.ts';
import { audienceFault, principalOf, type TokenVerdict } from './token-claims.ts';
import { getOrMake } from '../map-entries.ts';

/** The time that an active token is not asked about again. A revocation at the issuer holds after it. */
const ACTIVE_MS = 60_000;
/** Streams of a token end after this time, so that a client whose token was revoked at the issuer loses them. */
const STREAM_MS = 15 * 60_000;
const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 10_000;
const LEEWAY_MS = 30_000;
const SLOTS = { slots: 16, slotsPerOwner: 8, waiting: 1_024, waitingPerOwner: 256 };

export interface IntrospectionDeps {
  readonly log: Logger;
  /** Sends the requests about tokens. */
  readonly egress: Egress;
  /** Monotonic ms. */
  readonly clock: () => number;
  /** Called when the oldest inactive token is forgotten. */
  readonly onLimit?: ((limit: LimitName) => void) | undefined;
}

/**
 * Creates the issuers that are asked.
 *
 * @param before those of another config. Those with equal rules stay.
 */
export function introspectionsOf(
  configs: readonly IntrospectionConfig[] = [],
  deps: IntrospectionDeps,
  before: readonly Introspection[] = [],
): readonly Introspection[] {
  return configs.map(
    (config) => before.find((one) => isDeepStrictEqual(one.config, config)) ?? new Introspection(config, deps),
  );
}

/** An issuer that is asked about each token. docs/decisions/0063-introspection.md */
export class Introspection {
  readonly config: IntrospectionConfig;
  readonly #deps: IntrospectionDeps;
  readonly #slots = new FairSlots(SLOTS);
  readonly #inactive: InactiveTokens;
  /** Answers under way, by the hash of the token. */
  readonly #asking = new Map<string, Promise<IntrospectionResponse | undefined>>();
  #failures = 0;
  #retryMs = -Infinity;

  constructor(config: IntrospectionConfig, deps: IntrospectionDeps) {
    this.config = config;
    this.#deps = deps;
    this.#inactive = new InactiveTokens(deps.onLimit);
  }

  /** Why the issuer is not of use now, in words; undefined if nothing is known to be wrong. */
  get failure(): string | undefined {
    if (this.#failures === 0 || this.#deps.clock() >= this.#retryMs + REPORTED_MS) return undefined;
    return `the issuer ${this.config.issuer} cannot be asked; tokens that were not checked in the last minute are refused`;
  }

  /**
   * Verifies a token for one endpoint.
   *
   * @param endpoints the URIs of the endpoint.
   * @param address of the client, whose requests share a part of the slots.
   * @param nowMs ms since the epoch.
   */
  async verify(token: string, endpoints: readonly string[], address: string, nowMs: number): Promise<TokenVerdict> {
    const { clock, log } = this.#deps;
    const { requiredScopes } = this.config;
    const id = hash('sha256', token, 'base64url');
    if (this.#inactive.has(id, clock())) return this.#invalid('inactive token');
    let response: IntrospectionResponse | undefined;
    try {
      response = await this.#ask(id, token, address);
    } catch (thrown) {
      log.debug({ err: thrown, issuer: this.config.issuer }, 'token cannot be introspected');
      const isUnjudged = thrown instanceof UnjudgedTokenError;
      return { kind: 'undecided', why: isUnjudged ? 'issuer refuses to judge it' : 'issuer unreachable' };
    }
    if (response === undefined) return { kind: 'undecided', why: 'too many unknown tokens' };
    if (!response.active) {
      this.#inactive.add(id, clock());
      return this.#invalid('inactive token');
    }
    const { active, ...claims } = response;
    // Some issuers write null for what a token does not have.
    const given = { ...Object.fromEntries(Object.entries(claims).filter(([, value]) => value !== null)), active };
    const fault = faultOf(given, this.config, endpoints, nowMs);
    if (fault !== undefined) return this.#invalid(fault);
    const principal = principalOf(given, this.config.issuer, LEEWAY_MS);
    if (typeof principal === 'string') return this.#invalid(principal);
    if (!requiredScopes.every((scope) => principal.scopes.includes(scope))) {
      return { kind: 'lacking', scopes: advertisedScopes(this.config) };
    }
    const expiresAtMs = Math.min(principal.expiresAtMs ?? Infinity, nowMs + STREAM_MS);
    const expMs = (principal.expiresAtMs ?? Infinity) - LEEWAY_MS;
    return {
      kind: 'principal',
      principal: { ...principal, expiresAtMs, claims },
      cachedUntilMs: Math.min(expMs, nowMs + ACTIVE_MS),
    };
  }

  #invalid(why: string): TokenVerdict {
    return { kind: 'invalid', why, scopes: advertisedScopes(this.config) };
  }

  /** Asks the issuer; requests with the same token share one answer. Resolves with undefined if too many wait. @throws if it cannot be asked. */
  #ask(id: string, token: string, address: string): Promise<IntrospectionResponse | undefined> {
    return getOrMake(this.#asking, id, () =>
      this.#slots.run(address, () => this.#askNow(token)).finally(() => this.#asking.delete(id)),
    );
  }

  async #askNow(token: string): Promise<IntrospectionResponse> {
    const { clock, egress, log } = this.#deps;
    // Otherwise each request would wait for the timeout of an issuer that does not answer.
    if (clock() < this.#retryMs) throw new Error('the issuer has failed just now');
    const { issuer } = this.config;
    try {
      const response = await introspect(this.config, token, egress);
      if (this.#failures > 0) log.info({ issuer, failures: this.#failures }, 'issuer can be asked about tokens again');
      this.#failures = 0;
      return response;
    } catch (thrown) {
      // Else one odd token would keep all others out.
      if (thrown instanceof UnjudgedTokenError) throw thrown;
      const delayMs = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.#failures);
      this.#failures++;
      this.#retryMs = clock() + delayMs;
      const endpoint = shownUrl(new URL(this.config.endpoint));
      // The cause may quote the response, which may have claims of the token.
      const reason = messageOf(thrown);
      log.warn({ issuer, endpoint, reason, delayMs }, 'issuer cannot be asked about tokens');
      throw thrown;
    }
  }
}

/** Returns the reason why an active token is not accepted, or undefined. */
function faultOf(
  { iss, aud, exp, nbf, token_use: use, cnf }: IntrospectionResponse,
  config: IntrospectionConfig,
  endpoints: readonly string[],
  nowMs: number,
): string | undefined {
  if (iss !== undefined && iss !== config.issuer) return 'wrong iss';
  const wrongAudience = audienceFault(aud, config, endpoints);
  if (wrongAudience !== undefined) return wrongAudience;
  if (exp !== undefined && (typeof exp !== 'number' || exp * 1_000 + LEEWAY_MS <= nowMs)) return 'expired';
  if (nbf !== undefined && (typeof nbf !== 'number' || nbf * 1_000 - LEEWAY_MS > nowMs)) return 'wrong nbf';
  // Some issuers call a refresh token active too.
  if (use !== undefined && use !== 'access_token') return 'wrong type of token';
  // Whether its holder has the key cannot be checked here.
  return cnf === undefined ? undefined : 'sender-constrained token';
}
