import { askable, spelledScopes } from '../../policy/scopes-on-demand.ts';
import type { Document } from '../document/document.ts';
import type { Faults } from '../document/faults.ts';
import { type Path, problemLine } from '../document/problem.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import type { UpstreamConfig } from '../values/upstream-config.ts';
import type { EntryPath } from '../upstreams/client-file.ts';
import { upstreamId } from '../upstreams/upstream-id.ts';
import { NO_TOKENS } from './selector-faults.ts';

/** Judges settings of authentication that contradict each other. */
export function judgeAuth(
  { auth, operatorKeys, redis }: Pick<GatewaySettings, 'auth' | 'operatorKeys' | 'redis'>,
  faults: Faults,
): void {
  const base = ['gateway', 'auth'];
  if (auth.keysInRedis === true && redis === undefined)
    faults.refuse([...base, 'keysInRedis'], 'needs gateway.redis', 'key');
  if (auth.keysInRedis === true && auth.keyFile !== undefined) {
    const message = 'keys are either in a file or in Redis; remove keyFile or keysInRedis';
    faults.refuse([...base, 'keyFile'], message, 'key');
  }
  const issuers = new Set<string>();
  for (const [index, { issuer }] of auth.jwt.entries()) {
    const message = 'this issuer has an entry already; put all its audiences into one';
    if (issuers.has(issuer)) faults.refuse([...base, 'jwt', index, 'issuer'], message);
    issuers.add(issuer);
  }
  const prefixes = new Set<string>();
  for (const [index, { issuer, tokenPrefix }] of auth.introspection.entries()) {
    const path = [...base, 'introspection', index];
    if (issuers.has(issuer)) faults.refuse([...path, 'issuer'], 'this issuer has an entry already');
    issuers.add(issuer);
    const message = 'another entry has the tokens of this beginning; a token is shown to one issuer only';
    if (prefixes.has(tokenPrefix)) faults.refuse([...path, 'tokenPrefix'], message);
    prefixes.add(tokenPrefix);
  }
  for (const { path, scope, advertised, before } of onDemandIn(auth)) {
    if (before.includes(scope)) {
      const message =
        'is named already; requiredScopes are in every token, and scopesOnDemand are those that only some have';
      faults.refuse(path, message);
    } else if (askable([scope, advertised]).length < 2) {
      faults.refuse(path, 'is for refresh tokens: clients themselves decide whether they request it');
    }
  }
  judgeKeys([...base, 'apiKeys'], auth.apiKeys, faults);
  judgeKeys(['gateway', 'operatorKeys'], operatorKeys, faults);
}

const UNSPELLED =
  'is requested by another name, but the issuer has no advertisedScopes; the challenge then also names the scopes in the spelling of tokens';

interface PlacedScope {
  readonly path: Path;
  readonly scope: string;
  /** As clients request it. */
  readonly advertised: string;
  /** True if requests of its issuer have another spelling of the scopes that every token has. */
  readonly isSpelled: boolean;
  /** The required scopes of its issuer, and those on demand before it. */
  readonly before: readonly string[];
}

/** Returns the scopes that clients may get when a request needs them. */
function onDemandIn(auth: GatewaySettings['auth']): readonly PlacedScope[] {
  return (['jwt', 'introspection'] as const).flatMap((kind) =>
    auth[kind].flatMap(({ scopesOnDemand, requiredScopes, advertisedScopes }, index) => {
      const scopes = spelledScopes(scopesOnDemand);
      return scopes.map((one, i) => {
        const path = ['gateway', 'auth', kind, index, 'scopesOnDemand', i];
        const before = [...requiredScopes, ...scopes.slice(0, i).map(({ scope }) => scope)];
        return { ...one, path, isSpelled: advertisedScopes !== undefined, before };
      });
    }),
  );
}

/** Adds a warning for each scope on demand that nothing of the access policy can need, or whose challenge the issuer may not know. */
export function warnOfScopes({ auth, access }: GatewaySettings, faults: Faults): void {
  const granted = (access?.grants ?? []).flatMap(({ scopes = [] }) => scopes);
  const rules = Object.values(access?.roles ?? {}).flatMap((role) => [role, ...role.deny]);
  // It may read them in any way, such as by their beginning.
  const isRead = rules.some(({ when = '' }) => /\bscopes\b/.test(when));
  const unneeded = 'no grant of gateway.access names this scope, and no condition reads scopes, so no request needs it';
  const all = onDemandIn(auth);
  for (const { path, scope } of all) if (!isRead && !granted.includes(scope)) faults.warn(path, unneeded);
  for (const { path, scope, advertised, isSpelled } of all)
    if (scope !== advertised && !isSpelled) faults.warn(path, UNSPELLED);
}

/** Judges API keys: nobody could say which entry holds for a key that is in the list twice. */
function judgeKeys(
  list: Path,
  keys: readonly { readonly name: string; readonly sha256: string }[],
  faults: Faults,
): void {
  for (const [index, { sha256 }] of keys.entries()) {
    const other = keys.findIndex((key) => key.sha256 === sha256);
    if (other === index) continue;
    const message = `the key of ${JSON.stringify(keys[other]?.name)} is the same one; make another, or remove one entry`;
    faults.refuse([...list, index, 'sha256'], message);
  }
}

/** The upstreams of a file, each with its place in it. */
interface Entries {
  readonly document: Document;
  readonly map: { readonly entries: readonly EntryPath[] };
}

/** Returns a warning for each upstream that needs tokens of callers, if no caller can have one. */
export function exchangeWarnings(
  { document, map }: Entries,
  { jwt, introspection }: GatewaySettings['auth'],
  upstreams: readonly UpstreamConfig[],
): string[] {
  if (jwt.length + introspection.length > 0) return [];
  const exchanging = upstreams.filter(({ target }) => target.kind !== 'stdio' && target.auth?.kind === 'exchange');
  const ids = new Set(exchanging.map(({ id }) => id));
  const message = `${NO_TOKENS}; add one, or every call fails`;
  return map.entries
    .filter(({ key }) => ids.has(upstreamId(key)))
    .map(({ path }) => problemLine(document.problem([...path, 'auth', 'kind'], message)));
}
