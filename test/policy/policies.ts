import type { AccessConfig, GrantConfig, RoleConfig, RuleConfig } from '../../src/policy/access-config.ts';
import type { Principal } from '../../src/policy/principal.ts';
import type { PrincipalSelector } from '../../src/policy/principal-selector.ts';

/** Every principal. */
export const ANYONE: PrincipalSelector = {
  anyone: true,
  keys: undefined,
  groups: undefined,
  scopes: undefined,
  subjects: undefined,
  issuers: undefined,
  clients: undefined,
  claims: {},
};

type Items = Partial<Omit<RuleConfig, 'name' | 'place'>>;
type Role = Items & { readonly deny?: readonly Items[]; readonly weight?: number };

function ruleOf(name: string, items: Items): RuleConfig {
  return {
    name,
    place: { file: 'config.yaml', line: 1 },
    upstreams: undefined,
    tools: undefined,
    prompts: undefined,
    resources: undefined,
    hints: {},
    when: undefined,
    ...items,
  };
}

function roleOf(name: string, { deny = [], weight, ...allow }: Role): RoleConfig {
  return {
    name,
    weight,
    allow: Object.keys(allow).length === 0 ? undefined : ruleOf(name, allow),
    deny: deny.map((items, index) => ruleOf(`${name} deny ${index + 1}`, items)),
  };
}

/** Returns an access policy of these roles and grants. A grant without a list of principals is for anyone. */
export function accessOf(
  roles: Readonly<Record<string, Role>>,
  grants: readonly Partial<GrantConfig>[],
  rest: Partial<Pick<AccessConfig, 'claims' | 'groupClaims'>> = {},
): AccessConfig {
  return {
    claims: [],
    groupClaims: [],
    roles: Object.entries(roles).map(([name, role]) => roleOf(name, role)),
    grants: grants.map((grant) => ({
      roles: [],
      endpoints: undefined,
      ...ANYONE,
      anyone: false,
      ...grant,
    })),
    ...rest,
  };
}

/** Returns a principal with a token. */
export function tokenOf(subject: string, claims: Principal['claims'] = {}, scopes: readonly string[] = []): Principal {
  return {
    key: `jwt ${subject}`,
    label: subject,
    subject,
    issuer: 'https://issuer.test',
    clientId: 'app',
    scopes,
    claims,
  };
}

/** Returns a principal with an API key. */
export function keyOf(name: string, groups: readonly string[] = []): Principal {
  return { key: `key:${name}`, label: name, keyName: name, groups, scopes: [] };
}
