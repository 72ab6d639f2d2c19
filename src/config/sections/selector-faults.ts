import type { PrincipalSelector } from '../../policy/principal-selector.ts';
import type { Document } from '../document/document.ts';
import { type Path, type Problem, problemLine } from '../document/problem.ts';
import { didYouMean, suggest } from '../document/suggest.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';

/** The reasons why settings can never match. Most are warnings: a reload that removes a name is not refused for a rule that reads it. */
export interface Faults {
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
}

/** An API key that the config does not name: one in the key file. */
export interface KnownKey {
  readonly name: string;
  readonly groups?: readonly string[] | undefined;
}

/** The problem with a list that would match nothing. */
export const EMPTY = 'is empty, so it matches nothing; name one, or remove the list';
/** The reason why a selector of tokens, or a claim, never matches where there is no issuer. */
export const NO_TOKENS = 'no principal has a token: gateway.auth has neither jwt nor introspection';

function closedKeyNames(auth: GatewaySettings['auth']): readonly string[] | undefined {
  if (auth.keyFile !== undefined || auth.keysInRedis === true) return undefined;
  // A config without credentials may get a first key at its start.
  if (auth.apiKeys.length + auth.jwt.length + auth.introspection.length === 0) return ['first'];
  return auth.apiKeys.map(({ name }) => name);
}

function issuersOf({ jwt, introspection }: GatewaySettings['auth']): readonly string[] {
  return [...jwt, ...introspection].map(({ issuer }) => issuer);
}

/** Judges whether a principal can match the selectors of grants and rates. */
export class SelectorJudge {
  readonly #document: Document;
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
    document: Document,
    { auth, access }: Pick<GatewaySettings, 'auth' | 'access'>,
    stored: readonly KnownKey[] | undefined,
  ) {
    this.#document = document;
    this.keyNames = closedKeyNames(auth);
    this.issuers = issuersOf(auth);
    this.#apiKeys = [...auth.apiKeys, ...(stored ?? [])];
    this.#knowsKeys = this.keyNames !== undefined || stored !== undefined;
    this.#groups = groupsOf(this.#apiKeys);
    this.#hasGroupClaims = (access?.groupClaims.length ?? 0) > 0;
  }

  /** Returns the faults of the selector at a path. Those of unknown names are apart: the caller says what they are. */
  judge(path: Path, selector: PrincipalSelector): Faults & { readonly unknown: readonly Problem[] } {
    const { anyone, claims, ...lists } = selector;
    const [problems, unknown]: [Problem[], Problem[]] = [[], []];
    const add = (at: Path, message: string, part?: 'key') =>
      problems.push(this.#document.problem([...path, ...at], message, part));
    const check = (list: 'keys' | 'issuers', kind: string, known: readonly string[]) => {
      for (const [index, name] of (lists[list] ?? []).entries()) {
        if (known.includes(name)) continue;
        const message = `no such ${kind}${didYouMean(suggest(name, known))}`;
        unknown.push(this.#document.problem([...path, list, index], message));
      }
    };

    const given = [
      ...Object.entries(lists).map(([name, values]) => ({ at: [name], values })),
      ...Object.entries(claims).map(([name, values]) => ({ at: ['claims', name], values })),
    ].filter(({ values }) => values !== undefined);
    if (anyone === given.length > 0) {
      add(
        [],
        anyone ? 'is for anyone, so it names no principals' : 'names no principals; for all, write anyone: true',
        'key',
      );
      return { problems, unknown, warnings: [] };
    }
    for (const { at, values } of given) if (values?.length === 0) add(at, EMPTY);
    if (this.keyNames !== undefined) check('keys', 'API key', this.keyNames);
    check('issuers', 'issuer in auth', this.issuers);
    const ofTokens = given.filter(({ at: [name] }) => name !== 'keys' && name !== 'groups');
    if (lists.keys !== undefined && ofTokens.length > 0)
      add(['keys'], 'nobody has an API key and a token; write an entry for each', 'key');
    const withoutTokens = ofTokens
      .filter(({ at: [name] }) => this.issuers.length === 0 && name !== 'issuers')
      .map(({ at }) => problemLine(this.#document.problem([...path, ...at], NO_TOKENS, 'key')));
    const warnings = [...withoutTokens, ...this.#missingKeys(path, selector), ...this.#emptyGroups(path, selector)];
    return { problems, unknown, warnings };
  }

  /** Returns a warning for each API key that does not exist now, and may be added later. */
  #missingKeys(path: Path, { keys = [] }: PrincipalSelector): string[] {
    if (!this.#knowsKeys || this.keyNames !== undefined) return [];
    const known = this.#apiKeys.map(({ name }) => name);
    return keys.flatMap((key, index) => {
      if (known.includes(key)) return [];
      const message = `no such API key in auth or in its key file${didYouMean(suggest(key, known))}`;
      return [problemLine(this.#document.problem([...path, 'keys', index], message))];
    });
  }

  /** Returns a warning for each group that nobody can be in who matches the other lists. */
  #emptyGroups(path: Path, selector: PrincipalSelector): string[] {
    return (selector.groups ?? []).flatMap((group, index) => {
      const why = this.whyEmpty(group, selector);
      return why === undefined ? [] : [problemLine(this.#document.problem([...path, 'groups', index], why))];
    });
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
