import { dirname, relative } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Catalog } from '../catalog/catalog.ts';
import { type OfflineGateway, openOffline } from '../compose/offline.ts';
import type { ApiKeyConfig, Config } from '../config/values/config.ts';
import { describedPrincipal } from '../config/sections/described-principal.ts';
import { rulesOf } from '../config/sections/rules.ts';
import { hintsOf } from '../gateway/exchange/gate.ts';
import type { GrantConfig } from '../policy/access-config.ts';
import { type Decision, type Item, plainItem, type Reason } from '../policy/decide.ts';
import type { Principal } from '../policy/principal.ts';
import { scopesOnDemandOf } from '../policy/scopes-on-demand.ts';
import { jsonText, print, printError } from './operator/output.ts';
import { loadForReading } from './start.ts';
import { endpointPath } from '../endpoint-path.ts';

/** The command-line options of `policy diff`. */
export interface PolicyDiffOptions {
  /** The state directory with the last good lists. Default: that of the old config, or of the new one if the old one has none. */
  readonly stateDir?: string;
  readonly json: boolean;
}

/** One item that a kind of principal may use in another way. */
interface Change {
  readonly principal: string;
  readonly endpoint: string;
  readonly item: string;
  readonly before: Decision['effect'];
  readonly after: Decision['effect'];
}

/**
 * Prints the principals that lose or gain items by another config: for each grant of either config the principals that match it alone.
 * Resolves with 1 if there are any, or if there are no lists to say so by.
 */
export async function policyDiff(oldFile: string, newFile: string, options: PolicyDiffOptions): Promise<number> {
  const { config: before } = await loadForReading({ config: oldFile });
  const { config: after } = await loadForReading({ config: newFile });
  const [old, next] = await openWithLists(before, after, options.stateDir);
  for (const doubt of new Set([old.doubt, next.doubt])) {
    if (doubt !== undefined) printError(`warning: ${doubt}\n`);
  }
  for (const { setting, of, notCompared } of NOT_COMPARED) {
    if (of(before) !== of(after)) printError(`warning: ${setting} differs; ${notCompared}\n`);
  }
  const changes = changesBetween(sideOf(before, old), sideOf(after, next));
  const isUnknown = changes.length === 0 && isBlind(before, old) && isBlind(after, next);
  if (isUnknown) printError('Cannot say who loses or gains anything: no lists of the upstreams are stored.\n');
  print(options.json ? jsonText(changes) : isUnknown ? '' : textOf(changes));
  return changes.length === 0 && !isUnknown ? 0 : 1;
}

/** Opens both configs with the same lists, those of the old one. If the old one has none, as a copy has, they are those of the new one. */
async function openWithLists(
  before: Config,
  after: Config,
  given: string | undefined,
): Promise<readonly [OfflineGateway, OfflineGateway]> {
  const old = await openOffline(before, given);
  const isElsewhere = given === undefined && isBlind(before, old);
  const stateDir = given ?? (isElsewhere ? after.stateDir : before.stateDir);
  return [isElsewhere ? await openOffline(before, stateDir) : old, await openOffline(after, stateDir)];
}

/** Settings that change what principals may use or see in a way that is not compared. `of` returns equal texts for equal ones. */
const NOT_COMPARED = [
  {
    setting: 'scopesOnDemand',
    of: scopesShownBy,
    notCompared: 'only what principals may use is compared, not what these scopes show',
  },
  {
    setting: 'claims or groupClaims',
    of: ({ access }: Config) => JSON.stringify([access?.claims, access?.groupClaims]),
    notCompared: 'principals are compared by their groups and claims, not by the tokens that these are read from',
  },
  {
    setting: 'external',
    of: ({ access }: Config) => JSON.stringify([access?.external]),
    notCompared: 'only what the rules allow is compared, not what the decision point denies',
  },
  {
    setting: 'keyFile or keysInRedis',
    of: ({ auth: { keyFile, keysInRedis = false }, file }: Config) =>
      JSON.stringify([keyFile === undefined ? undefined : relative(dirname(file), keyFile), keysInRedis]),
    notCompared: 'the keys there are not compared, only those of the config',
  },
  {
    setting: 'the list of issuers',
    of: ({ auth }: Config) =>
      JSON.stringify([...auth.jwt, ...(auth.introspection ?? [])].map(({ issuer }) => issuer).toSorted()),
    notCompared: 'what principals may use is compared, not whose tokens are accepted',
  },
] as const;

/** Returns a text that is equal for configs with the same scopes on demand. */
function scopesShownBy({ auth }: Config): string {
  const byIssuer = scopesOnDemandOf(auth).map(({ issuer, scopesOnDemand = [] }) => {
    return [issuer, scopesOnDemand.map(({ scope }) => scope)];
  });
  return JSON.stringify(byIssuer);
}

/** Returns whether the lists of all upstreams are missing. */
function isBlind({ upstreams }: Config, gateway: OfflineGateway): boolean {
  return upstreams.length > 0 && upstreams.every(({ id }) => !gateway.isListed(id));
}

interface Side {
  readonly config: Config;
  readonly gateway: OfflineGateway;
  /** The conditions of its rules, by the names of the rules. */
  readonly whens: ReadonlyMap<string, string | undefined>;
}

function sideOf(config: Config, gateway: OfflineGateway): Side {
  const rules = config.access?.roles.flatMap(rulesOf) ?? [];
  return { config, gateway, whens: new Map(rules.map(({ rule }) => [rule.name, rule.when])) };
}

type Items = ReadonlyMap<string, Item>;

function changesBetween(before: Side, after: Side): readonly Change[] {
  const known = keyNames(before.config, after.config);
  const described = new Map([...principalsOf(before.config, known), ...principalsOf(after.config, known)]);
  const principals: readonly (readonly [string, Compared])[] = [
    ...[...described].map(([name, who]) => [name, [who, who]] as const),
    ...keysOf(before.config, after.config),
  ];
  const endpoints = [...new Set([...before.gateway.views.keys(), ...after.gateway.views.keys()])];
  const both = endpoints.map((endpoint) => ({
    endpoint,
    old: itemsAt(before, endpoint),
    now: itemsAt(after, endpoint),
  }));
  return principals.flatMap(([principal, [was, is]]) =>
    both.flatMap(({ endpoint, old, now }) => {
      const [olds, news] = [usesOf(before, was, endpoint, old), usesOf(after, is, endpoint, now)];
      return [...new Set([...old.keys(), ...now.keys()])].toSorted().flatMap((item): Change[] => {
        const [one, other] = [olds.get(item) ?? DENIED, news.get(item) ?? DENIED];
        if (one.effect === other.effect && one.conditions === other.conditions) return [];
        return [{ principal, endpoint, item, before: one.effect, after: other.effect }];
      });
    }),
  );
}

function itemsAt({ gateway }: Side, endpoint: string): Items {
  const view = gateway.views.get(endpoint);
  return new Map(view === undefined ? [] : itemsOf(gateway.catalog(view)));
}

/** The decision about an item for a principal, with what it depends on. */
interface Use {
  readonly effect: Decision['effect'];
  /** The conditions that decide about each call, as one text. */
  readonly conditions: string;
}

const DENIED: Use = { effect: 'deny', conditions: '' };

/** Returns the use of each item of an endpoint. */
function usesOf({ gateway, whens }: Side, who: Principal, endpoint: string, items: Items): ReadonlyMap<string, Use> {
  const rights = gateway.gate.rightsOf(who, endpoint);
  const useOf = (item: Item): Use => {
    if (rights === undefined) return { effect: 'allow', conditions: '' };
    const reasons: Reason[] = [];
    const { effect } = rights.decide(item, reasons);
    const deciding = reasons.filter(({ outcome }) => effect === 'depends' && outcome === 'depends on the call');
    const conditions = deciding.map((reason) => {
      const when = whens.get(reason.rule) ?? '';
      // A key may have other groups in the other config, so that one text is another condition.
      const read = when.includes('groups') ? ` of ${JSON.stringify(who.groups)}` : '';
      return `${reason.effect} ${when}${read}`;
    });
    return { effect, conditions: conditions.toSorted().join('\n') };
  };
  return new Map([...items].map(([name, item]) => [name, useOf(item)]));
}

/** A principal in the old config, and in the new one. */
type Compared = readonly [was: Principal, is: Principal];

/** Returns the API keys that a grant names or whose groups differ. Each key of a name is compared by its own groups. */
function keysOf(before: Config, after: Config): ReadonlyMap<string, Compared> {
  const granted = new Set([before, after].flatMap(({ access }) => access?.grants.flatMap(({ keys = [] }) => keys)));
  const found = new Map<string, Compared>();
  for (const name of keyNames(before, after)) {
    const [olds, news] = [keysNamed(before, name), keysNamed(after, name)];
    const pairs = [
      ...olds.map((key) => [groupsOf(key), groupsOf(counterpart(key, news))] as const),
      ...news.map((key) => [groupsOf(counterpart(key, olds)), groupsOf(key)] as const),
    ];
    const distinct = new Map(pairs.map((pair) => [JSON.stringify(pair), pair]));
    for (const [was, is] of distinct.values()) {
      if (!granted.has(name) && isDeepStrictEqual(was, is)) continue;
      const change = `groups ${was.join(', ') || 'none'} → ${is.join(', ') || 'none'}`;
      const key = distinct.size === 1 ? `key ${name}` : `key ${name} (${change})`;
      const who = { key, label: name, keyName: name, scopes: [] };
      found.set(key, [
        { ...who, groups: was },
        { ...who, groups: is },
      ]);
    }
  }
  return found;
}

function keyNames(...configs: readonly Config[]): ReadonlySet<string> {
  return new Set(configs.flatMap(({ auth }) => auth.apiKeys.map(({ name }) => name)));
}

function keysNamed({ auth }: Config, name: string): readonly ApiKeyConfig[] {
  return auth.apiKeys.filter((key) => key.name === name);
}

function groupsOf(key: ApiKeyConfig | undefined): readonly string[] {
  return key?.groups?.toSorted() ?? [];
}

/** Returns the key of another config that takes the place of a key of its name: itself, or one with its groups, or any. */
function counterpart(key: ApiKeyConfig, others: readonly ApiKeyConfig[]): ApiKeyConfig | undefined {
  const same = others.find(({ sha256 }) => sha256 === key.sha256);
  return same ?? others.find((other) => isDeepStrictEqual(groupsOf(other), groupsOf(key))) ?? others[0];
}

/** Yields each item of a catalog with its kind and published name. */
function* itemsOf({ callables, resources }: Catalog): Iterable<readonly [name: string, item: Item]> {
  const { tools, prompts } = callables;
  for (const [name, target] of tools.targets) {
    yield [`tool ${name}`, { kind: 'tool', ...target, hints: hintsOf(tools.sources.get(target)) }];
  }
  for (const [name, target] of prompts.targets)
    yield [`prompt ${name}`, plainItem('prompt', target.upstream, target.name)];
  for (const { upstream, uri } of resources.origins) {
    yield [`resource ${upstream} ${uri}`, plainItem('resource', upstream, uri)];
  }
  for (const { upstream, uri } of resources.templateOrigins) {
    yield [`template ${upstream} ${uri}`, plainItem('template', upstream, uri)];
  }
}

/** Returns a principal for each value of each grant, by its description. @param known the API keys that are compared as they are. */
function principalsOf({ access }: Config, known: ReadonlySet<string>): ReadonlyMap<string, Principal> {
  const found = new Map<string, Principal>([['anyone', { key: 'anyone', label: 'anyone', scopes: [], groups: [] }]]);
  const types = new Map(access?.claims.map((claim) => [claim.name, claim]));
  for (const grant of access?.grants ?? []) {
    for (const selected of selectionsOf(grant)) {
      const name = selected.map(({ kind, value }) => `${kind} ${value}`).join(' and ');
      const valuesOf = (wanted: string) => selected.flatMap(({ kind, value }) => (kind === wanted ? [value] : []));
      const of = (kind: string) => valuesOf(kind)[0];
      const [key, subject, issuer, client] = [of('key'), of('subject'), of('issuer'), of('client')];
      if (key !== undefined && known.has(key)) continue;
      const claims = selected.flatMap(({ kind, value }): (readonly [string, unknown])[] => {
        const claim = kind.startsWith(CLAIM) ? types.get(kind.slice(CLAIM.length)) : undefined;
        if (claim === undefined) return [];
        const typed = { string: value, list: [value], number: Number(value), boolean: value === 'true' }[claim.type];
        return [[claim.path, typed]];
      });
      const [scopes, groups] = [valuesOf('scope'), valuesOf('group')];
      const described = { key, subject, issuer, client, scopes, groups, claims: Object.fromEntries(claims) };
      found.set(name, { ...describedPrincipal(described), key: name, label: subject ?? key ?? name });
    }
  }
  return found;
}

const CLAIM = 'claim ';

interface Selected {
  readonly kind: string;
  readonly value: string;
}

/** Returns the principals that a grant selects: each value of each list once, with the first values of the other lists. */
function selectionsOf({
  keys,
  groups,
  scopes,
  subjects,
  issuers,
  clients,
  claims,
}: GrantConfig): readonly Selected[][] {
  const named = { key: keys, group: groups, scope: scopes, subject: subjects, issuer: issuers, client: clients };
  const lists = [
    ...Object.entries(named),
    ...Object.entries(claims).map(([name, values]) => [`${CLAIM}${name}`, values] as const),
  ].flatMap(([kind, values]) => (values === undefined ? [] : [values.map((value) => ({ kind, value }))]));
  const firsts = lists.flatMap((list) => list.slice(0, 1));
  return lists.flatMap((list, at) => list.map((one) => firsts.map((first, i) => (i === at ? one : first))));
}

const SHOWN: Readonly<Record<Decision['effect'], string>> = { allow: 'all calls', depends: 'some calls', deny: 'none' };

function textOf(changes: readonly Change[]): string {
  if (changes.length === 0) return 'Nobody loses or gains anything that the last lists have.\n';
  // A change at several endpoints is one line.
  const byLine = Map.groupBy(changes, ({ endpoint: _at, ...change }) => JSON.stringify(change));
  const lines = [...byLine.values()].flatMap((same) => {
    const [first] = same;
    if (first === undefined) return [];
    const { principal, item, before, after } = first;
    const at = same.map(({ endpoint }) => endpointPath(endpoint)).join(', ');
    if (before === 'deny') return `+ ${principal} at ${at} gains ${item} (${SHOWN[after]})`;
    if (after === 'deny') return `- ${principal} at ${at} loses ${item}`;
    if (before === after) return `~ ${principal} at ${at}: ${item}, some calls by other conditions`;
    return `~ ${principal} at ${at}: ${item}, from ${SHOWN[before]} to ${SHOWN[after]}`;
  });
  return `${lines.join('\n')}\n`;
}
