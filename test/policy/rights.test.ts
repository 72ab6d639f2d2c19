/** Tests what rights say about whole upstreams, and edges of rules that lists and calls must not cross. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ItemKind } from '../../src/catalog/items/kind.ts';
import { Gate } from '../../src/gateway/exchange/gate.ts';
import { plainItem } from '../../src/policy/decide.ts';
import { Policy } from '../../src/policy/policy.ts';
import type { Rights } from '../../src/policy/rights.ts';
import { accessOf, keyOf, tokenOf } from './policies.ts';

const NOW = new Date('2026-01-31T12:00:00Z');
const ALL = { upstreams: undefined };

/** Returns the rights of a role that everybody has. */
function rightsBy(role: Parameters<typeof accessOf>[0][string]): Rights {
  return new Policy(accessOf({ r: role }, [{ roles: ['r'], anyone: true }])).rightsOf(keyOf('ada'), '');
}

const effectOf = (role: Parameters<typeof accessOf>[0][string], kind: ItemKind, name: string) =>
  rightsBy(role).decide(plainItem(kind, 'a', name)).effect;

for (const uri of ['DRIVE:///public/x', 'drive:///%70ublic/x', 'drive:////public/x', 'drive:///a/../public/x']) {
  // SEC-09
  test(`an allow rule about drive:///public/* is about no other spelling: ${uri}`, () => {
    assert.equal(effectOf({ resources: ['drive:///public/*'] }, 'resource', uri), 'deny');
  });
}

// SEC-09
test('a deny rule about one URI is about it with any query, fragment and parameter', () => {
  const role = { ...ALL, deny: [{ resources: ['https://wiki.test/secret'] }] };
  for (const end of ['', '/', '?v=1', '/?v=1', '/?', '#part', '/#part', '?v=1#part', ';a=1', ';a=1?v=1', ';a=1/?v=1']) {
    assert.equal(effectOf(role, 'resource', `https://wiki.test/secret${end}`), 'deny', end);
  }
  assert.equal(effectOf(role, 'resource', 'https://wiki.test/secrets'), 'allow');
});

// SEC-09
test('a deny rule about a URI with a query covers a slash or parameter before it', () => {
  for (const path of ['view', 'view/']) {
    const role = { ...ALL, deny: [{ resources: [`https://wiki.test/${path}?id=7`] }] };
    for (const sent of ['view?id=7', 'view/?id=7', 'view;a=1?id=7', 'view;a=1/?id=7']) {
      assert.equal(effectOf(role, 'resource', `https://wiki.test/${sent}`), 'deny', `${path} ${sent}`);
    }
    for (const sent of ['view', 'view/', 'view/?id=8', 'view?id=70']) {
      assert.equal(effectOf(role, 'resource', `https://wiki.test/${sent}`), 'allow', `${path} ${sent}`);
    }
  }
});

// SEC-09
test('a member that differs in case from a name in any condition is denied', () => {
  const deny = [
    { tools: ['rm'], when: 'has(args.path) && args.path == "/"' },
    { tools: ['rm'], when: 'has(args.mode) && args.mode == "force"' },
  ];
  const toRm = rightsBy({ ...ALL, deny }).to(plainItem('tool', 'a', 'rm'));
  const call = (text: string) => toRm.decideCall(text, NOW).effect;
  assert.deepEqual(['{"mode":"soft"}', '{"mode":"force"}'].map(call), ['allow', 'deny']);
  assert.deepEqual(['{"Mode":"force"}', '{"PATH":"/"}'].map(call), ['deny', 'deny']);
});

test('a call with more arguments than a macro reads is denied', () => {
  const role = { ...ALL, deny: [{ tools: ['rm'], when: 'args.paths.exists(path, path == "/")' }] };
  const toRm = rightsBy(role).to(plainItem('tool', 'a', 'rm'));
  const call = (count: number) => toRm.decideCall(JSON.stringify({ paths: Array(count).fill('x') }), NOW);
  assert.equal(call(900).effect, 'allow');
  const { effect, failed } = call(1_100);
  assert.deepEqual([effect, failed.map(({ name }) => name)], ['deny', ['r deny 1']]);
});

test('a condition without a macro reads arguments of any length', () => {
  const toSave = rightsBy({ tools: ['save'], when: 'args.n == 1' }).to(plainItem('tool', 'a', 'save'));
  const call = (n: number) => toSave.decideCall(JSON.stringify({ n, text: 'x'.repeat(100_000) }), NOW).effect;
  assert.deepEqual([call(1), call(2)], ['allow', 'deny']);
});

test('a tool without hints is destructive, open to the world and not read-only', () => {
  for (const [hint, value] of [
    ['destructive', true],
    ['openWorld', true],
    ['readOnly', false],
    ['idempotent', false],
  ] as const) {
    assert.equal(effectOf({ ...ALL, deny: [{ hints: { [hint]: value } }] }, 'tool', 'rm'), 'deny', hint);
    assert.equal(effectOf({ ...ALL, deny: [{ hints: { [hint]: !value } }] }, 'tool', 'rm'), 'allow', hint);
  }
});

// SEC-08
test('rights that deny what others allow have another content', () => {
  const contentOf = (deny: boolean) => {
    const one = deny ? { deny: [{ tools: ['x'] }] } : { tools: ['x'] };
    const roles = { one, all: { tools: ['*'] } };
    return new Policy(accessOf(roles, [{ roles: ['one', 'all'], anyone: true }])).rightsOf(keyOf('ada'), '').content;
  };
  assert.notEqual(contentOf(true), contentOf(false));
});

// SEC-07
test('nothing of an upstream is shown that is denied as a whole', () => {
  const shown = (role: Parameters<typeof accessOf>[0][string]) => rightsBy(role).mayShow('a');
  assert.equal(shown({ ...ALL, deny: [{ upstreams: ['a'] }] }), false);
  assert.equal(shown({ ...ALL, deny: [{ upstreams: ['b'] }] }), true);
  for (const part of [{ tools: ['*'] }, { hints: { destructive: true } }, { when: 'args.n == 1' }]) {
    assert.equal(shown({ ...ALL, deny: [part] }), true, JSON.stringify(part));
  }
  assert.equal(shown({ when: 'tool.readOnly' }), true, 'a tool may be one');
  assert.equal(shown({ when: 'principal.label == "bob"' }), false);
});

// SEC-07
test('names that no list has are passed on only where nothing can be denied', () => {
  const passes = (role: Parameters<typeof accessOf>[0][string]) => rightsBy(role).passesUnlisted('a');
  assert.equal(passes(ALL), true);
  for (const part of [{ tools: ['*'] }, { hints: { readOnly: true } }, { when: 'upstream == "a"' }]) {
    assert.equal(passes(part), false, `allowed: ${JSON.stringify(part)}`);
    assert.equal(passes({ ...ALL, deny: [part] }), false, `denied: ${JSON.stringify(part)}`);
  }
});

// SEC-07
test('names that no list has are not passed on for scopes that a token may get', () => {
  const scopesOnDemand = [{ scope: 'w', advertised: 'w' }];
  const gate = new Gate(accessOf({ r: ALL }, [{ roles: ['r'], scopes: ['w'] }]), [], undefined, undefined, [
    { issuer: 'https://issuer.test', scopesOnDemand },
  ]);
  const shown = (...scopes: readonly string[]) => gate.shownRightsOf(tokenOf('ada', {}, scopes), '');
  const [without, having] = [shown(), shown('w')];
  assert.deepEqual([without?.mayShow('a'), without?.isWhole('a'), without?.passesUnlisted('a')], [true, false, false]);
  assert.deepEqual([having?.isWhole('a'), having?.passesUnlisted('a')], [true, true]);
});

test('a grant to an issuer, a client or a claim is for no other one', () => {
  const ada = tokenOf('ada', { level: 3, staff: true });
  const may = (grant: object, principal = ada) => {
    const access = accessOf({ r: ALL }, [{ roles: ['r'], ...grant }], {
      claims: [
        { name: 'level', path: 'level', type: 'number' },
        { name: 'staff', path: 'staff', type: 'boolean' },
      ],
    });
    return new Policy(access).rightsOf(principal, '').decide(plainItem('tool', 'a', 'b')).effect;
  };
  for (const [own, other] of [
    [{ issuers: ['https://issuer.test'] }, { issuers: ['https://other.test'] }],
    [{ clients: ['app'] }, { clients: ['web'] }],
    [{ claims: { level: ['3'] } }, { claims: { level: ['4'] } }],
    [{ claims: { staff: ['true'] } }, { claims: { staff: ['false'] } }],
  ]) {
    assert.deepEqual([may(own ?? {}), may(other ?? {})], ['allow', 'deny'], JSON.stringify(own));
    assert.equal(may(own ?? {}, keyOf('ada')), 'deny', 'an API key has none');
  }
});
