import type {
  AccessConfig,
  ClaimConfig,
  ExternalConfig,
  GrantConfig,
  RoleConfig,
  RuleConfig,
  TestedItem,
} from '../../policy/access-config.ts';
import { NO_HINTS } from '../../policy/decide.ts';
import { Policy } from '../../policy/policy.ts';
import { whenCompiler } from '../../policy/conditions/when.ts';
import type { Principal } from '../../policy/principal.ts';
import { type IssuerScopes, ScopesOnDemand } from '../../policy/scopes-on-demand.ts';
import { describedPrincipal } from './described-principal.ts';
import type { Document } from '../document/document.ts';
import { valueAt } from '../document/expanded.ts';
import type { Faults } from '../document/faults.ts';
import type { Path } from '../document/problem.ts';
import { noSuch } from '../document/suggest.ts';
import type { AccessSettings } from '../schema/access-schema.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import { conditionJudge, type JudgeCondition } from './condition-faults.ts';
import { judgeEndpoints } from './endpoint-faults.ts';
import type { Names } from './names.ts';
import { rulesOf } from './rules.ts';
import { EMPTY, NO_TOKENS, selectorOf, type SelectorJudge } from './selector-faults.ts';

type Items = Omit<AccessSettings['roles'][string], 'deny' | 'weight'>;
type Test = AccessSettings['tests'][number];

/** The warning about a glob over URIs that is the text of a template. */
const TEMPLATE = 'is a template, and rules about resources name URIs: write * in place of each {…}';

const BASE = ['gateway', 'access'] as const;
/** About a condition with the value of a variable in its text. */
const WRONG_VALUE = 'this condition is wrong with the values of its ${…}; a text needs quotes around it';

/** The parts of a file that its access policy is read from, and the place for what is wrong with it. */
interface AccessParts {
  readonly document: Document;
  readonly names: Names;
  readonly judge: SelectorJudge;
  /** The issuers whose clients may get scopes when a request needs them. */
  readonly issuers: readonly IssuerScopes[];
  readonly faults: Faults;
}

/**
 * Reads the access policy, checks every name in it, compiles its conditions, and runs its tests. Returns undefined if the config has none, or
 * one with problems.
 */
export function readAccess(settings: GatewaySettings, parts: AccessParts): AccessConfig | undefined {
  return settings.access && new AccessReader(settings, settings.access, parts).read();
}

/** Returns whether a rule has a setting. Hints without any hint are none. */
function hasSetting({ hints = {}, ...others }: Items): boolean {
  return [...Object.values(hints), ...Object.values(others)].some((value) => value !== undefined);
}

class AccessReader {
  readonly #document: Document;
  readonly #judge: SelectorJudge;
  readonly #judgeCondition: JudgeCondition;
  readonly #access: AccessSettings;
  readonly #claims: readonly ClaimConfig[];
  readonly #onDemand: ScopesOnDemand;
  readonly #names: Names;
  readonly #apiKeys: GatewaySettings['auth']['apiKeys'];
  readonly #faults: Faults;

  constructor(
    settings: GatewaySettings,
    access: AccessSettings,
    { document, names, judge, issuers, faults }: AccessParts,
  ) {
    this.#document = document;
    this.#judge = judge;
    this.#judgeCondition = conditionJudge(names, judge, faults);
    this.#access = access;
    this.#claims = Object.entries(access.claims).map(([name, claim]) =>
      typeof claim === 'string' ? { name, path: name, type: claim } : { name, ...claim },
    );
    this.#names = names;
    this.#apiKeys = settings.auth.apiKeys;
    this.#onDemand = new ScopesOnDemand(issuers);
    this.#faults = faults;
  }

  read(): AccessConfig | undefined {
    const { groupClaims, grants, tests } = this.#access;
    const { problems } = this.#faults;
    const before = problems.length;
    this.#checkClaims();
    const roles = Object.entries(this.#access.roles).map(([name, role]) => this.#role(name, role));
    const access: AccessConfig = {
      claims: this.#claims,
      groupClaims,
      roles,
      grants: grants.map((_, index) => this.#grant(index)),
      ...this.#external(),
      ...(tests.length === 0 ? {} : { tested: tests.flatMap((test, index) => this.#tested(test, index)) }),
    };
    this.#checkConditions(roles);
    if (problems.length > before) return undefined;
    judgeEndpoints(access, this.#names, this.#faults);
    this.#runTests(new Policy(access, undefined, this.#onDemand), tests);
    return problems.length > before ? undefined : access;
  }

  #external(): { readonly external?: ExternalConfig } {
    const { external } = this.#access;
    if (external === undefined) return {};
    const { timeout: timeoutMs, upstreams, ...rest } = external;
    const path = [...BASE, 'external', 'upstreams'];
    if (upstreams?.length === 0) this.#faults.refuse(path, EMPTY);
    return { external: { ...rest, timeoutMs, upstreams: this.#upstreams(path, upstreams) } };
  }

  #checkClaims(): void {
    const names = this.#claims.map(({ name }) => name);
    for (const [index, name] of this.#access.groupClaims.entries()) {
      const path = [...BASE, 'groupClaims', index];
      const type = this.#claims.find((claim) => claim.name === name)?.type;
      this.#check(path, 'claim', name, names);
      if (type === 'number' || type === 'boolean')
        this.#faults.refuse(path, `this claim is a ${type}, and groups are texts; declare it as string or list`);
    }
    if (names.length > 0 && this.#judge.issuers.length === 0)
      this.#faults.warn([...BASE, 'claims'], `${NO_TOKENS}, so no principal has claims`, 'key');
  }

  #checkConditions(roles: readonly RoleConfig[]): void {
    const compile = whenCompiler(this.#claims);
    for (const { rule, path } of roles.flatMap(rulesOf)) {
      if (rule.when === undefined) continue;
      const at = [...path, 'when'];
      const why = compile(rule.when);
      if (typeof why !== 'string') this.#judgeCondition(at, rule.when);
      else this.#faults.refuse(at, this.#isExpanded(at) ? WRONG_VALUE : `this condition ${why}`);
    }
  }

  /** Returns whether the text of a setting has the value of a variable in it, which no message may show. */
  #isExpanded(path: Path): boolean {
    const text = valueAt(this.#document.data, path);
    return typeof text === 'string' && text.includes('${');
  }

  #check(path: Path, kind: string, name: string, known: readonly string[]): void {
    if (!known.includes(name)) this.#faults.refuse(path, noSuch(kind, name, known));
  }

  #role(name: string, { deny, weight, ...allow }: AccessSettings['roles'][string]): RoleConfig {
    const path = [...BASE, 'roles', name];
    const allows = hasSetting(allow);
    if (!allows && deny.length === 0 && weight === undefined) {
      this.#faults.refuse(path, 'allows and denies nothing; for everything, write upstreams: ["*"]');
    }
    return {
      name,
      weight,
      allow: allows ? this.#rule(name, path, allow) : undefined,
      deny: deny.map((items, index) => {
        const at = [...path, 'deny', index];
        // Without any setting it would deny everything.
        if (!hasSetting(items)) {
          this.#faults.refuse(at, 'denies everything; if that is meant, write upstreams: ["*"]');
        }
        return this.#rule(`${name} deny ${index + 1}`, at, items);
      }),
    };
  }

  #rule(name: string, path: Path, items: Items): RuleConfig {
    const { tools, prompts, resources, readOnly, hints = {}, when } = items;
    this.#checkLists(path, items);
    this.#checkTemplates([...path, 'resources'], resources);
    const { file, line } = this.#document.problem(path, '');
    const given = Object.entries({ ...hints, ...(readOnly === undefined ? {} : { readOnly }) });
    return {
      name,
      place: { file, line },
      upstreams: this.#upstreams([...path, 'upstreams'], items.upstreams),
      tools,
      prompts,
      resources,
      hints: Object.fromEntries(given.filter(([, value]) => value !== undefined)),
      when,
    };
  }

  #checkLists(path: Path, { upstreams, tools, prompts, resources }: Items): void {
    const kinds = Object.entries({ tools, prompts, resources }).filter(([, list]) => list !== undefined);
    // A rule about one kind may have an empty list of another.
    const empty = kinds.every(([, list]) => list?.length === 0) ? kinds.map(([key]) => key) : [];
    for (const key of upstreams?.length === 0 ? ['upstreams', ...empty] : empty)
      this.#faults.refuse([...path, key], EMPTY);
  }

  #checkTemplates(path: Path, globs: readonly string[] = []): void {
    for (const [index, glob] of globs.entries())
      if (/\{[^/]*\}/.test(glob)) this.#faults.warn([...path, index], TEMPLATE);
  }

  #upstreams(path: Path, names: readonly string[] | undefined): readonly string[] | undefined {
    if (names === undefined || names.includes('*')) return undefined;
    return names.map((name, index) => this.#upstream([...path, index], name));
  }

  /** Returns the id of an upstream. */
  #upstream(path: Path, name: string): string {
    return this.#faults.resolve(path, 'upstream', name, this.#names.upstreams) ?? name;
  }

  #grant(index: number): GrantConfig {
    const path = [...BASE, 'grants', index];
    const grant = this.#access.grants[index];
    if (grant === undefined) throw new RangeError(`no grant ${index}`);
    const { roles, endpoints } = grant;
    const to = selectorOf(grant);
    this.#judge.judge(path, to, 'refuse');
    for (const [i, role] of roles.entries()) {
      this.#check([...path, 'roles', i], 'role', role, Object.keys(this.#access.roles));
    }
    if (endpoints?.length === 0) this.#faults.refuse([...path, 'endpoints'], EMPTY);
    for (const [name, values] of Object.entries(grant.claims))
      this.#checkClaim([...path, 'claims', name], name, values);
    return {
      roles,
      endpoints: endpoints?.map((endpoint, i) => this.#endpoint([...path, 'endpoints', i], endpoint)),
      ...to,
    };
  }

  #checkClaim(path: Path, name: string, values: readonly string[]): void {
    const names = this.#claims.map((claim) => claim.name);
    const type = this.#claims.find((claim) => claim.name === name)?.type;
    this.#check(path, 'claim', name, names);
    for (const [index, value] of values.entries()) {
      if (type === 'boolean' && value !== 'true' && value !== 'false')
        this.#faults.refuse([...path, index], 'this claim is a boolean; write "true" or "false"');
      if (type === 'number' && String(Number(value)) !== value)
        this.#faults.refuse([...path, index], 'this claim is a number; write one in its shortest form, such as "3"');
    }
  }

  /** Returns the id of the view at a path. */
  #endpoint(at: Path, path: string): string {
    return this.#faults.resolve(at, 'endpoint', path, this.#names.views) ?? '';
  }

  #tested({ tool, prompt, upstream: named }: Test, index: number): readonly TestedItem[] {
    const { file, line } = this.#document.problem([...BASE, 'tests', index], '');
    const [place, upstream] = [{ file, line }, this.#names.upstreams.get(named) ?? named];
    if (tool !== undefined) return [{ place, kind: 'tool', upstream, name: tool }];
    return prompt === undefined ? [] : [{ place, kind: 'prompt', upstream, name: prompt }];
  }

  #runTests(policy: Policy, tests: readonly Test[]): void {
    for (const [index, test] of tests.entries()) {
      const path = [...BASE, 'tests', index];
      const upstream = this.#upstream([...path, 'upstream'], test.upstream);
      const endpoint = this.#faults.resolve([...path, 'endpoint'], 'endpoint', test.endpoint, this.#names.views);
      if (endpoint === undefined) continue;
      const isThere = this.#names.meet([upstream], [endpoint]);
      const principals = this.#principalsOf(test);
      this.#judgePrincipal([...path, 'as'], test.as, principals[0]);
      const failures = principals.map((one) => failureOf(policy, one, test, { endpoint, upstream, isThere }));
      const failure = failures.find((one) => one !== undefined);
      if (failure !== undefined) this.#faults.refuse(path, failure);
    }
  }

  /** Adds a warning if the principal of a test cannot exist. Its test says nothing about the one that was meant. */
  #judgePrincipal(path: Path, as: Test['as'], { keyName, issuer }: Principal): void {
    const { keyNames, issuers } = this.#judge;
    if (keyName !== undefined && keyNames?.includes(keyName) === false)
      this.#faults.warn([...path, 'key'], noSuch('API key', keyName, keyNames));
    if (issuer !== undefined && !issuers.includes(issuer)) {
      const at = as.issuer === undefined ? ['claims', 'iss'] : ['issuer'];
      this.#faults.warn([...path, ...at], noSuch('issuer in auth', issuer, issuers));
    }
  }

  /** Returns the principals of a test: without `groups`, one for each API key of the name, with its groups in the config. */
  #principalsOf({ as }: Test): readonly [Principal, ...Principal[]] {
    const [first, ...others] = this.#apiKeys
      .filter(({ name }) => name === as.key)
      .map(({ groups = [] }) => describedPrincipal({ groups: [...groups], ...as }));
    return [first ?? describedPrincipal(as), ...others];
  }
}

/** The names of a test as ids. */
interface TestedPlace {
  readonly endpoint: string;
  readonly upstream: string;
  /** False if the endpoint does not have the upstream, so that its items do not exist there. */
  readonly isThere: boolean;
}

/** Returns the reason why a test fails; undefined if it does not. */
function failureOf(
  policy: Policy,
  principal: Principal,
  test: Test,
  { endpoint, upstream, isThere }: TestedPlace,
): string | undefined {
  const named = (['tool', 'prompt', 'resource'] as const).flatMap((kind) => {
    const name = test[kind];
    return name === undefined ? [] : [{ kind, name }];
  });
  const [item, ...others] = named;
  if (item === undefined || others.length > 0) return 'names not exactly one of tool, prompt and resource';
  const given = Object.entries(test.hints ?? {}).filter(([, value]) => value !== undefined);
  const about = { ...item, upstream, hints: { ...NO_HINTS, ...Object.fromEntries(given) } };
  const rights = policy.rightsOf(principal, endpoint);
  const now = test.at === undefined ? new Date() : new Date(test.at);
  const args = test.args === undefined ? undefined : JSON.stringify(test.args);
  const isListed = isThere && policy.shownRights(rights, principal).lists(about);
  const called = rights.to(about).decideCall(args, now);
  const decided = isListed ? called.effect : 'hidden';
  // What is hidden is denied too.
  if (decided === test.expect || (decided === 'hidden' && test.expect === 'deny')) return undefined;
  const why = isThere ? called.why : 'the endpoint does not have this upstream';
  return `this test expects "${test.expect}" and gets "${decided}": ${why}`;
}
