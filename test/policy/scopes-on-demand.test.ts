import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Gate } from '../../src/gateway/exchange/gate.ts';
import { NO_HINTS } from '../../src/policy/decide.ts';
import { LIMITS } from '../../src/limits.ts';
import { ArgumentReader, readArguments } from '../../src/policy/conditions/arguments.ts';
import { Policy } from '../../src/policy/policy.ts';
import type { Principal } from '../../src/policy/principal.ts';
import type { Rights } from '../../src/policy/rights.ts';
import { type IssuerScopes, ScopesOnDemand, scopesOnDemandOf } from '../../src/policy/scopes-on-demand.ts';
import { random } from '../support/random.ts';
import { SEED } from '../support/seed.ts';
import { accessOf, ANYONE, keyOf, tokenOf } from './policies.ts';

const ISSUER = 'https://issuer.test';
const onDemand = (...scopes: readonly string[]): IssuerScopes => ({
  issuer: ISSUER,
  scopesOnDemand: scopes.map((scope) => ({ scope, advertised: scope })),
});
const toolOf = (name: string) => ({ kind: 'tool', upstream: 'a', name, hints: NO_HINTS }) as const;
const withScopes = (principal: Principal, scopes: readonly string[]): Principal => {
  return { ...principal, scopes: [...principal.scopes, ...scopes] };
};

test('only the clients of an issuer that has scopes on demand may get them', () => {
  const issuers = scopesOnDemandOf({ jwt: [onDemand('w'), { issuer: 'https://other.test' }], introspection: [] });
  assert.deepEqual(
    issuers.map(({ issuer }) => issuer),
    [ISSUER],
  );
  const scopes = new ScopesOnDemand(issuers);
  const widened = (principal: Principal) => scopes.widened(principal).map((one) => one.scopes);
  assert.deepEqual(widened(tokenOf('ada')), [['w']]);
  assert.deepEqual(widened(tokenOf('ada', {}, ['w'])), []);
  assert.deepEqual(widened({ ...tokenOf('ada'), issuer: 'https://other.test' }), []);
  assert.deepEqual(widened(keyOf('ci')), []);
});

test('a challenge keeps the scopes of the token, as its issuer spells them in requests', () => {
  const [plain] = [new ScopesOnDemand([onDemand('w', 'x')])];
  const token = (...scopes: readonly string[]) => tokenOf('ada', {}, scopes);
  assert.deepEqual(plain.requested(token('mcp', 'offline_access'), ['w']), ['mcp', 'w']);
  assert.deepEqual(plain.requested(token('w'), ['w', 'x']), ['w', 'x']);
  const entra = new ScopesOnDemand([
    {
      issuer: ISSUER,
      advertisedScopes: ['api://gw/access'],
      scopesOnDemand: ['w', 'x'].map((scope) => ({ scope, advertised: `api://gw/${scope}` })),
    },
  ]);
  assert.deepEqual(entra.requested(token('access', 'x'), ['w']), ['api://gw/access', 'api://gw/x', 'api://gw/w']);
  const [begin] = [new ScopesOnDemand([{ ...onDemand('w', 'x'), advertisedScopes: ['mcp'] }])];
  assert.deepEqual(begin.requested(token('mcp', 'files', 'x'), ['w']), ['mcp', 'files', 'x', 'w']);
});

test('one scope is asked for if it suffices, in the order of the config, else all', () => {
  const both = '"y" in principal.scopes && "z" in principal.scopes';
  const access = accessOf({ w: { tools: ['write'] }, both: { tools: ['both'], when: both } }, [
    { roles: ['w'], scopes: ['w', 'x'] },
    { ...ANYONE, roles: ['both'] },
  ]);
  const gate = new Gate(access, [], undefined, undefined, [onDemand('x', 'w', 'y', 'z')]);
  const lacking = (name: string, ...scopes: readonly string[]) =>
    gate.lackingScopes(tokenOf('ada', {}, scopes), '', (rights) => rights.decide(toolOf(name)));
  assert.deepEqual(lacking('write'), ['x']);
  assert.deepEqual(lacking('both'), ['x', 'w', 'y', 'z']);
  assert.deepEqual(lacking('both', 'y'), ['z']);
  assert.equal(lacking('other'), undefined);
});

test('without scopes on demand the rights of lists are those of calls', () => {
  const access = accessOf({ w: { tools: ['write'] } }, [{ roles: ['w'], scopes: ['w'] }]);
  const gates = [new Gate(access, []), new Gate(access, [], undefined, undefined, [onDemand('other')])];
  for (const gate of gates) {
    const ada = tokenOf('ada');
    assert.equal(gate.shownRightsOf(ada, ''), gate.rightsOf(ada, ''));
  }
});

test('principals with the same own and further rights share lists, and no others do', () => {
  const access = accessOf({ w: { tools: ['write'] }, r: { tools: ['read'] } }, [
    { roles: ['w'], scopes: ['w'] },
    { roles: ['r'], scopes: ['r'] },
  ]);
  const gate = new Gate(access, [], undefined, undefined, [onDemand('w', 'r')]);
  const shown = (...scopes: readonly string[]) => gate.shownRightsOf(tokenOf('ada', {}, scopes), '');
  assert.equal(shown(), shown('mcp'));
  assert.notEqual(shown(), shown('w'));
  assert.notEqual(shown('r')?.key, shown('w')?.key);
  assert.notEqual(shown('r')?.content, shown('w')?.content);
});

// P-009
test('rights are decided about once, however many scopes lead to them', () => {
  const access = accessOf({ w: { tools: ['write'] }, x: { tools: ['*'], when: 'args.n == 1' } }, [
    { roles: ['w'], scopes: ['w', 'v'] },
    { roles: ['x'], scopes: ['x'] },
  ]);
  const gate = new Gate(access, [], undefined, undefined, [onDemand('a', 'b', 'w', 'v', 'x')]);
  const decided: Rights[] = [];
  const lacking = gate.lackingScopes(tokenOf('ada'), '', (rights) => {
    decided.push(rights);
    return rights.decide(toolOf('other'));
  });
  assert.deepEqual([lacking, decided.length], [['x'], 2]);
});

test('arguments are read once for the same names', () => {
  const reader = new ArgumentReader('{"n":1}');
  assert.equal(reader.read(new Set(['n', 'm'])), reader.read(new Set(['m', 'n'])));
  assert.deepEqual(reader.read(new Set(['n'])), readArguments('{"n":1}', new Set(['n'])));
  assert.equal(reader.read(new Set(['N'])), readArguments('{"n":1}', new Set(['N'])));
});

test('principals with other scopes share rights if no condition reads scopes', () => {
  const rightsWith = (when: string) => {
    const access = accessOf({ r: { tools: ['*'], when } }, [{ ...ANYONE, roles: ['r'] }]);
    const policy = new Policy(access, undefined, new ScopesOnDemand([onDemand('w', 'x')]));
    return ([[], ['w']] as const).map((scopes) => {
      const principal = tokenOf('ada', {}, scopes);
      const own = policy.rightsOf(principal, '');
      return { own, shown: policy.shownRights(own, principal) };
    });
  };
  const [a, b] = rightsWith('principal.label == "ada" || "ops" in principal.groups');
  assert.equal(a?.own, b?.own);
  assert.equal(a?.shown, a?.own);
  for (const when of ['"w" in principal.scopes', 'has(principal.scopes)', '"w" in principal["scopes"]']) {
    const [c, d] = rightsWith(when);
    assert.notEqual(c?.own, d?.own, when);
    assert.notEqual(c?.own.content, d?.own.content, when);
    assert.equal(c?.shown.key.length, 43);
  }
});

test('a rule that fails only with scopes that nobody has is not reported', () => {
  const failing = 'claims.dept == "a"';
  const access = accessOf(
    { a: { upstreams: ['a'], when: failing }, b: { upstreams: ['b'], when: failing } },
    [
      { ...ANYONE, roles: ['a'] },
      { roles: ['b'], scopes: ['w'] },
    ],
    { claims: [{ name: 'dept', path: 'dept', type: 'string' }] },
  );
  const failed: string[] = [];
  const onFailed = (rules: readonly { readonly name: string }[]) => failed.push(...rules.map(({ name }) => name));
  const policy = new Policy(access, onFailed, new ScopesOnDemand([onDemand('w')]));
  const shownTo = (principal: Principal) => policy.shownRights(policy.rightsOf(principal, ''), principal);
  const ask = (principal: Principal) => {
    const shown = shownTo(principal);
    for (const upstream of ['a', 'b']) {
      assert.equal(shown.mayShow(upstream), false);
      assert.equal(shown.lists({ ...toolOf('get'), upstream }), false);
    }
  };
  ask(tokenOf('ada'));
  assert.deepEqual([...new Set(failed)], ['a']);
  ask(tokenOf('ada', {}, ['w']));
  assert.deepEqual([...new Set(failed)], ['a', 'b']);
});

test('the rights that were used least recently are made again beyond the bound', () => {
  const roles = { mine: { tools: ['get'], when: 'principal.label == "ada"' }, w: { tools: ['write'] } };
  const grants = [
    { ...ANYONE, roles: ['mine'] },
    { roles: ['w'], scopes: ['w'] },
  ];
  const policy = new Policy(accessOf(roles, grants), undefined, new ScopesOnDemand([onDemand('w')]));
  const shown = (name: string) => {
    const principal = tokenOf(name);
    return policy.shownRights(policy.rightsOf(principal, ''), principal);
  };
  const ada = shown('ada');
  assert.equal(shown('ada'), ada);
  const eve = shown('eve');
  const users = LIMITS.sharedRights - 1;
  for (let i = 0; i < users; i++) {
    shown(`user ${i}`);
    if (i % 100 === 0) assert.equal(shown('ada'), ada);
  }
  assert.equal(shown('ada'), ada);
  assert.notEqual(shown('eve'), eve);
  assert.equal(shown('eve').content, eve.content);
  assert.equal(shown('ada').lists(toolOf('write')), true);
});

test('rights that were made again are not taken for further ones', () => {
  const roles = { mine: { tools: ['get'], when: 'principal.label == "ada"' }, w: { tools: ['write'] } };
  const grants = [
    { ...ANYONE, roles: ['mine'] },
    { roles: ['w'], scopes: ['w'], endpoints: ['other'] },
  ];
  const policy = new Policy(accessOf(roles, grants), undefined, new ScopesOnDemand([onDemand('w')]));
  const ada = tokenOf('ada');
  const own = policy.rightsOf(ada, '');
  for (let i = 0; i <= LIMITS.sharedRights; i++) policy.rightsOf(tokenOf(`user ${i}`), '');
  assert.equal(policy.shownRights(own, ada), own);
});

const CASES = 2_000;
const SCOPES = ['s', 't', 'u'];
const CONDITIONS = [
  'args.n > 1',
  '"t" in principal.scopes',
  'size(principal.scopes) < 2',
  '!("u" in principal.scopes)',
];

// P-009
test(`a token with the scopes of a challenge gets what was denied (SEED=${SEED})`, () => {
  const pick = random(SEED);
  const seen = { allowed: 0, challenged: 0, denied: 0 };
  for (let i = 0; i < CASES; i++) {
    const some = <T>(values: readonly T[]): readonly T[] => values.filter(() => pick(2) === 0);
    const [condition] = some(CONDITIONS);
    const rule = () => ({ tools: [pick(2) === 0 ? '*' : 'get'], ...(pick(2) === 0 ? { when: condition } : {}) });
    const role = () => ({ ...rule(), ...(pick(3) === 0 ? { deny: [rule()] } : {}) });
    const access = accessOf({ r: role(), s: role(), t: role() }, [
      ...(pick(3) === 0 ? [{ ...ANYONE, roles: ['r'] }] : []),
      { roles: ['s'], scopes: ['s', 'u'] },
      { roles: ['t'], scopes: ['t'] },
    ]);
    const scopes = some(SCOPES);
    const principal = tokenOf('ada', {}, scopes);
    const gate = new Gate(access, [], undefined, undefined, [onDemand(...SCOPES)]);
    const item = toolOf(pick(2) === 0 ? 'get' : 'set');
    const now = new Date();
    const args = JSON.stringify({ n: pick(4) });
    const decide = (rights: Rights | undefined) => rights?.to(item).decideCall(args, now).effect ?? 'deny';
    const lacking = gate.lackingScopes(principal, '', (rights) => rights.to(item).decideCall(args, now));
    const isAllowed = decide(gate.rightsOf(principal, '')) === 'allow';
    const shown = `SEED=${SEED} case ${i}`;
    if (lacking !== undefined) {
      const issued = withScopes(principal, lacking);
      assert.equal(decide(new Policy(access).rightsOf(issued, '')), 'allow', shown);
    }
    if (isAllowed || lacking !== undefined) {
      assert.equal(gate.shownRightsOf(principal, '')?.lists(item), true, shown);
      assert.equal(gate.shownRightsOf(principal, '')?.mayShow('a'), true, shown);
    }
    seen[isAllowed ? 'allowed' : lacking === undefined ? 'denied' : 'challenged']++;
  }
  assert.ok(Math.min(...Object.values(seen)) > CASES / 50, JSON.stringify(seen));
});
