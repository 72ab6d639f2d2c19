import { isDeepStrictEqual } from 'node:util';
import type { Logger } from 'pino';
import type { UpstreamAuth } from '../config/values/credentials.ts';
import type { Egress } from '../egress/egress.ts';
import type { LimitName } from '../limits.ts';
import type { Callers, Proof } from '../policy/callers.ts';
import { isOperator, LOCAL, type Principal } from '../policy/principal.ts';
import type { CredentialOutcome } from '../telemetry/upstream-metrics.ts';
import type { CredentialSource } from '../upstream/connection-key.ts';
import type { RequestCredentials } from '../upstream/http/request-credentials.ts';
import { NeedsAuthorizationError } from '../upstream/rpc/needs-authorization-error.ts';
import { type Acquired, CredentialCache } from './credential-cache.ts';
import type { IdentityKeys } from './identity-keys.ts';
import { identityToken } from './identity-token.ts';
import { NO_SCOPES } from './step-up.ts';
import { TokenSource } from './token-source.ts';

/** The credentials of one upstream, with the settings that a reload changes. */
export interface UpstreamCredentials {
  readonly requests: RequestCredentials;
  readonly source: CredentialSource;
  /** Applies other secrets of the same client. Credentials that were acquired before are not used any more. Equal settings change nothing. */
  update(auth: UpstreamAuth): void;
}

export interface CredentialParts {
  readonly egress: Egress;
  readonly callers: Callers;
  readonly identity: IdentityKeys;
  readonly log: Logger;
  readonly onLimit: (limit: LimitName) => void;
}

export interface UpstreamCredentialsParts extends CredentialParts {
  readonly upstream: string;
  readonly onAttempt: (outcome: CredentialOutcome) => void;
  /** Monotonic ms. Default: the clock of the process. */
  readonly clock?: () => number;
}

/** A way to get credentials. An audience is the key of a principal, or empty. */
interface Source {
  /** @param scopes besides those of the settings. */
  acquire(audience: string, scopes: readonly string[], subject: Proof | undefined): Promise<Acquired>;
  update(auth: UpstreamAuth): void;
}

export function upstreamCredentials(auth: UpstreamAuth, parts: UpstreamCredentialsParts): UpstreamCredentials {
  const { upstream, callers, log, onLimit, clock = () => performance.now() } = parts;
  const onAttempt = (scopes: readonly string[], failure: unknown): void => {
    parts.onAttempt(failure === undefined ? 'ok' : 'failed');
    if (failure === undefined) return;
    // The cause may quote the response, which may have a token.
    const reason = failure instanceof Error ? failure.message : 'unknown';
    const further = scopes.length === 0 ? {} : { scopes };
    log.warn({ upstream, kind: auth.kind, ...further, reason }, 'no credentials for an upstream');
  };
  const source = sourceOf(auth, parts);
  let settings = auth;
  const requests = new CredentialCache({
    upstream,
    acquire: (audience, scopes, subject) => source.acquire(audience, scopes, subject),
    subjectsOf: auth.kind === 'clientCredentials' ? undefined : (audience) => callers.find(audience)?.proofs,
    subjectLifeOf: ({ endMs }) => endMs - callers.now(),
    scopes: auth.kind === 'identity' ? NO_SCOPES : { base: auth.scopes, stepUp: auth.stepUpScopes },
    onAttempt,
    onExtended: (scopes) => log.info({ upstream, kind: auth.kind, scopes }, 'an upstream needs further scopes'),
    onLimit,
    clock,
  });
  return {
    requests,
    source: auth.kind === 'clientCredentials' ? 'gateway' : 'principal',
    update: (next) => {
      // Every reload comes here, whatever it changes.
      if (isDeepStrictEqual(settings, next)) return;
      settings = next;
      source.update(next);
      requests.clear();
    },
  };
}

function sourceOf(auth: UpstreamAuth, parts: CredentialParts): Source {
  switch (auth.kind) {
    case 'clientCredentials': {
      const tokens = new TokenSource(auth, parts.egress);
      return { acquire: (_audience, scopes) => tokens.acquire(scopes), update: (next) => tokens.update(next) };
    }
    case 'exchange': {
      const { callers, egress } = parts;
      callers.begin();
      const tokens = new TokenSource(auth, egress);
      return {
        acquire: async (_audience, scopes, subject) => {
          const acquired = await tokens.acquire(scopes, tokenOf(subject, callers.now()));
          const subjectLifeMs = (subject?.endMs ?? Infinity) - callers.now();
          // It may have ended meanwhile.
          if (subjectLifeMs <= 0) throw endedToken();
          return { ...acquired, subjectLifeMs };
        },
        update: (next) => tokens.update(next),
      };
    }
    case 'identity': {
      const { callers, identity } = parts;
      callers.begin();
      identity.begin();
      let settings = auth;
      return {
        acquire: (audience) => identityToken(settings, principalOf(callers, audience), identity),
        update: (next) => {
          if (next.kind === 'identity') settings = next;
        },
      };
    }
  }
}

/** Returns the token of a caller. @throws {NeedsAuthorizationError} if it has none, or one that has ended. */
function tokenOf(subject: Proof | undefined, nowMs: number): string {
  if (subject === undefined || subject.token === '') throw unknownCaller();
  const { token, endMs } = subject;
  if (nowMs >= endMs) throw endedToken();
  if (token !== undefined) return token;
  const why = 'the caller has an API key, which cannot be exchanged; it needs an access token';
  throw new NeedsAuthorizationError(why, { actor: 'caller' });
}

function endedToken(): NeedsAuthorizationError {
  return new NeedsAuthorizationError('the token of the caller has ended', { actor: 'caller' });
}

/** Returns the error for a caller whose credentials were verified before callers were remembered. They are verified again soon. */
function unknownCaller(): NeedsAuthorizationError {
  return new NeedsAuthorizationError('the caller is not known here yet', { actor: 'nobody' });
}

/** Returns the principal of a key. @throws {NeedsAuthorizationError} if it is not known. */
function principalOf(callers: Callers, audience: string): Principal {
  if (audience === LOCAL.key) return LOCAL;
  const operator: Principal = { key: audience, label: audience, scopes: [] };
  if (isOperator(operator)) return operator;
  const caller = callers.find(audience);
  if (caller === undefined) throw unknownCaller();
  return caller.principal;
}
