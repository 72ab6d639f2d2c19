import type { PrincipalSelector } from '../../policy/principal-selector.ts';
import type { Faults } from '../document/faults.ts';
import type { Path } from '../document/problem.ts';
import { noSuch } from '../document/suggest.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';

/** An API key that the config does not name: one in the key file. */
export interface KnownKey {
  readonly name: string;
  readonly groups?: readonly string[] | undefined;
}

/** The problem with a list that would match nothing. */
export const EMPTY = 'is empty, so it matches nothing; name one, or remove the list';
/** The reason why a selector of tokens, or a claim, never matches where there is no issuer. */
export const NO_TOKENS = 'no principal has a token: gateway.auth has neither jwt nor introspection';

/** Returns the selector of a grant or a rate, with all its lists. */
export function selectorOf(to: GatewaySettings['rates'][number]['to']): PrincipalSelector {
  const { anyone = false, keys, groups, scopes, subjects, issuers, clients, claims } = to;
  return { anyone, keys, groups, scopes, subjects, issuers, clients, claims };
}

function closedKeyNames(auth: GatewaySettings['auth']): readonly string[] | undefined {
  if (auth.keyFile !== undefined || auth.keysInRedis === true) return undefined;
  // A config without credentials may get a first key at its start.
  if (auth.apiKeys.length + auth.jwt.length + auth.introspection.length === 0) return ['first'];
  return auth.apiKeys.map(({ name }) => name);
}

function issuersOf({ jwt, introspection }: GatewaySettings['auth']): readonly string[] {
  return [...jwt, ...introspection].map(({ issuer }) => issuer);
}

/**
 * Judges whether a principal can match the selectors of grants and rates. Most faults are warnings: a reload that removes a name is not refused
 * for a rule that reads it.
 */
export class SelectorJudge {
  readonly #faults: Faults;
  /** Names of all API keys of clients; undefined if some may be added while the gateway runs. */
  readonly keyNames: readonly string[] | undefined;
  /** The issuers whose tokens are accepted. */
  readonly issuers: readonly string[];
  readonly #apiKeys: readonly KnownKey[];
  /** True if no other API keys are known to exist now. */
  readonly #knowsKeys: boolean;
  readonly #groups: ReadonlySet<string>;
  readonly #hasGroupClaims: boolean;

  /** @param stored the keys in the key file at this moment; undefined if they are not known. */
  constructor(
    faults: Faults,
    { auth, access }: Pick<GatewaySettings, 'auth' | 'access'>,
    stored: readonly KnownKey[] | undefined,
  ) {
    this.#faults = faults;
    this.keyNames = closedKeyNames(auth);
    this.issuers = issuersOf(auth);
    this.#apiKeys = [...auth.apiKeys, ...(stored ?? [])];
    this.#knowsKeys = this.keyNames !== undefined || stored !== undefined;
    this.#groups = groupsOf(this.#apiKeys);
    this.#hasGroupClaims = (access?.groupClaims.length ?? 0) > 0;
  }

  /** Judges the selector at a path. @param onUnknown says whether an unknown name is a problem or a warning. */
  judge(path: Path, selector: PrincipalSelector, onUnknown: 'refuse' | 'warn'): void {
    const { anyone, claims, ...lists } = selector;
    const given = [
      ...Object.entries(lists).map(([name, values]) => ({ at: [name], values })),
      ...Object.entries(claims).map(([name, values]) => ({ at: ['claims', name], values })),
    ].filter(({ values }) => values !== undefined);
    if (anyone === given.length > 0) {
      const message = anyone
        ? 'is for anyone, so it names no principals'
        : 'names no principals; for all, write anyone: true';
      this.#faults.refuse(path, message, 'key');
      return;
    }
    for (const { at, values } of given) if (values?.length === 0) this.#faults.refuse([...path, ...at], EMPTY);
    const check = (list: 'keys' | 'issuers', kind: string, known: readonly string[]) => {
      for (const [index, name] of (lists[list] ?? []).entries())
        if (!known.includes(name)) this.#faults[onUnknown]([...path, list, index], noSuch(kind, name, known));
    };
    if (this.keyNames !== undefined) check('keys', 'API key', this.keyNames);
    check('issuers', 'issuer in auth', this.issuers);
    const ofTokens = given.filter(({ at: [name] }) => name !== 'keys' && name !== 'groups');
    if (lists.keys !== undefined && ofTokens.length > 0)
      this.#faults.refuse([...path, 'keys'], 'nobody has an API key and a token; write an entry for each', 'key');
    for (const { at } of this.issuers.length === 0 ? ofTokens : [])
      if (at[0] !== 'issuers') this.#faults.warn([...path, ...at], NO_TOKENS, 'key');
    this.#judgeKeys(path, selector);
    for (const [index, group] of (selector.groups ?? []).entries()) {
      const why = this.whyEmpty(group, selector);
      if (why !== undefined) this.#faults.warn([...path, 'groups', index], why);
    }
  }

  /** Adds a warning for each API key that does not exist now, and may be added later. */
  #judgeKeys(path: Path, { keys = [] }: PrincipalSelector): void {
    if (!this.#knowsKeys || this.keyNames !== undefined) return;
    const known = this.#apiKeys.map(({ name }) => name);
    for (const [index, key] of keys.entries())
      if (!known.includes(key))
        this.#faults.warn([...path, 'keys', index], noSuch('API key in auth or in its key file', key, known));
  }

  /** Returns the reason why nobody who matches the other lists can be in a group; undefined if somebody may be. */
  whyEmpty(group: string, { keys, scopes, subjects, issuers, clients, claims = {} }: Partial<PrincipalSelector> = {}) {
    const ofTokens = [scopes, subjects, issuers, clients, ...Object.values(claims)];
    const mayHaveKey = ofTokens.every((list) => list === undefined);
    const mayHaveToken = keys === undefined;
    if (mayHaveKey && !this.#knowsKeys) return undefined;
    if (mayHaveToken && this.issuers.length > 0 && this.#hasGroupClaims) return undefined;
    const ofKeys =
      keys === undefined ? this.#groups : groupsOf(this.#apiKeys.filter(({ name }) => keys.includes(name)));
    if (mayHaveKey && ofKeys.has(group)) return undefined;
    const noClaim =
      this.issuers.length === 0
        ? 'gateway.auth has no issuer of tokens'
        : 'for tokens gateway.access.groupClaims names no claim';
    const whys = [
      ...(mayHaveKey ? [keys === undefined ? 'no API key names it' : 'none of these API keys names it'] : []),
      ...(mayHaveToken ? [noClaim] : []),
    ];
    return `nobody is in this group: ${whys.join(', and ')}`;
  }
}

function groupsOf(keys: readonly KnownKey[]): ReadonlySet<string> {
  return new Set(keys.flatMap(({ groups = [] }) => groups));
}
