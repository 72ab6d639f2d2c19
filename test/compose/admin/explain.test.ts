import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Offer } from '../../../src/catalog/offer.ts';
import type { View } from '../../../src/catalog/view.ts';
import { explain } from '../../../src/compose/admin/explain.ts';
import { Gate } from '../../../src/gateway/exchange/gate.ts';
import { RawObject } from '../../../src/json/json.ts';
import { bare, catalogsOf, resource, tool, upstream, view } from '../../catalog/fixtures.ts';
import { accessOf, keyOf, tokenOf } from '../../policy/policies.ts';

const GATE = new Gate(
  accessOf({ all: { upstreams: undefined, tools: ['*'], resources: ['*'] } }, [{ roles: ['all'], anyone: true }]),
  [],
);

/** Returns the texts of the reasons, after effect and listing. @param callers the upstreams whose lists depend on the caller. */
function explained(
  shown: View,
  offers: Readonly<Record<string, Partial<Offer>>>,
  name: string,
  gate = GATE,
  callers: readonly string[] = [],
  principal = keyOf('ada'),
  args?: Readonly<Record<string, unknown>>,
): readonly string[] {
  const hasCallersLists = (id: string) => callers.includes(id);
  const catalogFor = catalogsOf(shown, offers);
  const parts = { view: shown, catalogFor, gate, lifecycleOf: () => undefined, hasCallersLists };
  const kind = name.includes(':') ? 'resource' : 'tool';
  const { effect, isListed, reasons } = explain(parts, {
    principal,
    view: '',
    kind,
    name,
    args,
  });
  const texts = reasons.filter(({ about }) => about !== 'rule').map(({ text }) => text);
  return [`${effect}, ${isListed ? 'listed' : 'not listed'}`, ...texts];
}

const DIFFERS = 'is withheld: it differs from the lock';
const LOCKED = {
  notes: {
    tools: [tool('read')],
    withheld: [
      { kind: 'tool', key: 'write', why: DIFFERS },
      { kind: 'resource', key: 'file:///a', why: DIFFERS },
      { kind: 'template', key: 'note:///{id}', why: DIFFERS },
    ],
  },
} as const;
const BY_LOCK = ['deny, not listed', `withheld: The tool ${DIFFERS}.`, 'the lock withholds it'];

test('explain names the lock as the reason for a tool that it withholds', () => {
  assert.deepEqual(explained(view([upstream('notes')]), LOCKED, 'notes__write'), BY_LOCK);
  assert.deepEqual(explained(view([upstream('notes')], { renames: { notes__write: 'put' } }), LOCKED, 'put'), BY_LOCK);
  const pinned = bare('notes', { onChange: 'quarantine' });
  assert.deepEqual(explained(view([pinned]), LOCKED, 'write'), BY_LOCK);
  const [listed] = explained(view([pinned]), LOCKED, 'read');
  assert.equal(listed, 'allow, listed');
});

test('explain does not take the own name of a withheld tool for its published one', () => {
  const [effect, list] = explained(view([upstream('notes')]), LOCKED, 'write');
  assert.deepEqual([effect, list], ['unknown, not listed', 'no upstream of this endpoint lists it for all clients']);
});

test('explain names the lock as the reason for a resource that it withholds', () => {
  const shown = view([upstream('notes')]);
  const byLock = ['deny, not listed', `withheld: The resource ${DIFFERS}.`, 'the lock withholds it'];
  assert.deepEqual(explained(shown, LOCKED, 'notes+file:///a'), byLock);
  assert.deepEqual(explained(shown, LOCKED, 'notes+note:///b'), ['unknown, not listed', 'the lock withholds it']);
});

test('explain names the fault of an item that is quarantined', () => {
  const broken = {
    notes: { tools: [RawObject.of({ name: 'write' })], resources: [RawObject.of({ uri: 'file:///a' })] },
  };
  const shown = view([upstream('notes')]);
  const [effect, ...reasons] = explained(shown, broken, 'notes__write');
  assert.equal(effect, 'deny, not listed');
  assert.match(reasons.join('\n'), /^quarantined: The tool has an "inputSchema" .*\nit is quarantined$/);
  assert.match(explained(shown, broken, 'notes+file:///a').join('\n'), /quarantined: The resource has no "name"/);
});

test('explain says that a tool is listed though a later one of its name is quarantined', () => {
  const [effect, list] = explained(
    view([bare('a'), bare('b')]),
    { a: { tools: [tool('x')] }, b: { tools: [tool('x')] } },
    'x',
  );
  assert.deepEqual([effect, list], ['allow, listed', 'upstream "a" lists it as "x"']);
});

test('explain finds a tool that one upstream lists and another one leaves out', () => {
  const shown = view([bare('a', { excludeTools: ['x'] }), bare('b')]);
  const offers = { a: { tools: [tool('x'), tool('y')] }, b: { tools: [tool('x')] } };
  assert.deepEqual(explained(shown, offers, 'x').slice(0, 2), ['allow, listed', 'upstream "b" lists it as "x"']);
  const left = 'Left out by includeTools or excludeTools of upstream "a".';
  const [only] = shown.upstreams;
  const alone = explained(view(only === undefined ? [] : [only]), offers, 'x');
  assert.deepEqual(alone, ['deny, not listed', `filtered: ${left}`, 'the config leaves it out']);
});

test('explain knows no URI of an upstream whose items are all hidden', () => {
  const access = accessOf({ a: { upstreams: ['a'] }, shared: { upstreams: undefined, resources: ['file:///a/*'] } }, [
    { roles: ['a', 'shared'], anyone: true },
  ]);
  const [shown, gate] = [view([upstream('a'), upstream('b')]), new Gate(access, [])];
  const offers = { a: { resources: [resource('file:///a/a')] }, b: { resources: [resource('file:///b/a')] } };
  const hidden = 'upstream "b" has it, and lists nothing that the principal may use: its names are unknown';
  assert.deepEqual(explained(shown, offers, 'b+file:///a/a', gate), ['unknown, not listed', hidden]);
  assert.equal(explained(shown, offers, 'a+file:///a/a', gate)[0], 'allow, listed');
  assert.equal(explained(shown, offers, 'b+file:///b/a', gate)[0], 'deny, not listed');
});

test('explain names the upstreams that have the same URI', () => {
  const resources = [resource('file:///a')];
  const [shown, offers] = [view([upstream('a'), upstream('b')]), { a: { resources }, b: { resources } }];
  const offered =
    'More than one upstream has this resource: file:///a is offered by a, b; use the URI from resources/list';
  assert.deepEqual(explained(shown, offers, 'file:///a'), ['deny, not listed', offered]);
  const notes = new Gate(accessOf({ notes: { resources: ['note:*'] } }, [{ roles: ['notes'], anyone: true }]), []);
  const none = 'the principal may use it of none of them';
  assert.deepEqual(explained(shown, offers, 'file:///a', notes), ['deny, not listed', offered, none]);
});

const SOME = new Gate(
  accessOf({ some: { upstreams: undefined, tools: ['*'], resources: ['file:///*'] } }, [
    { roles: ['some'], anyone: true },
  ]),
  [],
);
const ALL = new Gate(accessOf({ all: { upstreams: undefined } }, [{ roles: ['all'], anyone: true }]), []);

test('explain sends an unlisted URI to the only upstream, unless rules hide some', () => {
  const shown = view([bare('notes')]);
  const offers = { notes: { resources: [resource('file:///a'), resource('note:///a')] } };
  const [effect, list] = explained(shown, offers, 'file:///unlisted', ALL);
  const gets = 'upstream "notes" gets it as "file:///unlisted", and does not list it';
  assert.deepEqual([effect, list], ['allow, not listed', gets]);
  const unknown = ['unknown, not listed', 'upstream "notes" does not list it for all clients'];
  assert.deepEqual(explained(shown, offers, 'file:///unlisted', SOME), unknown);
  assert.equal(explained(shown, offers, 'file:///a', SOME)[0], 'allow, listed');
  assert.equal(explained(shown, offers, 'note:///a', SOME)[0], 'deny, not listed');
});

test('explain sends an unlisted tool to the only upstream, unless rules hide some', () => {
  const shown = view([bare('notes')]);
  const offers = { notes: { tools: [tool('read')] } };
  const gets = 'upstream "notes" gets it as "unlisted", and does not list it';
  const open = new Gate(undefined, []);
  assert.deepEqual(explained(shown, offers, 'unlisted', open).slice(0, 2), ['allow, not listed', gets]);
  assert.deepEqual(explained(shown, offers, 'unlisted', ALL).slice(0, 2), ['allow, not listed', gets]);
  const unknown = ['unknown, not listed', 'upstream "notes" does not list it for all clients'];
  assert.deepEqual(explained(shown, offers, 'unlisted', SOME), unknown);
  const pinned = view([bare('notes', { onChange: 'quarantine' })]);
  assert.deepEqual(explained(pinned, offers, 'unlisted', ALL), unknown);
});

function externalOf(asked: string) {
  return { url: 'https://point.test/', headers: {}, upstreams: [asked], timeoutMs: 100, arguments: false };
}

// P-012
test('explain has no unlisted name where a decision point may deny it', () => {
  const shown = view([bare('notes')]);
  const offers = { notes: { tools: [tool('read')], resources: [resource('file:///a')] } };
  for (const name of ['unlisted', 'file:///unlisted']) {
    const effects = ['notes', 'other'].map((asked) => {
      const access = accessOf({ all: { upstreams: undefined } }, [{ roles: ['all'], anyone: true }]);
      return explained(shown, offers, name, new Gate({ ...access, external: externalOf(asked) }, []))[0];
    });
    assert.deepEqual(effects, ['unknown, not listed', 'allow, not listed'], name);
  }
});

test('explain finds a tool with a user interface by the own name of its upstream', () => {
  const app = tool('draw', { _meta: { ui: { resourceUri: 'ui://notes/draw' } } });
  const shown = view([upstream('notes'), upstream('other')]);
  const [effect, list] = explained(shown, { notes: { tools: [app] } }, 'draw', ALL);
  assert.deepEqual([effect, list], ['allow, listed', 'upstream "notes" lists it as "draw"']);
});

test('explain finds the one upstream that may be used of two with the same URI', () => {
  const gate = new Gate(accessOf({ b: { upstreams: ['b'] } }, [{ roles: ['b'], anyone: true }]), []);
  const resources = [resource('file:///a')];
  const [effect, list] = explained(
    view([upstream('a'), upstream('b')]),
    { a: { resources }, b: { resources } },
    'file:///a',
    gate,
  );
  assert.deepEqual([effect, list], ['allow, listed', 'upstream "b" lists it as "file:///a"']);
});

test('explain says that lists depend on the caller', () => {
  const shown = view([upstream('own'), upstream('notes')]);
  const depends = 'the lists of upstream "own" depend on the caller, and are not known here';
  const unlisted = 'no upstream of this endpoint lists it for all clients';
  for (const [name, text] of [
    ['own__read', depends],
    ['notes__other', 'upstream "notes" does not list it for all clients'],
    ['read', unlisted],
  ] as const) {
    assert.deepEqual(explained(shown, LOCKED, name, GATE, ['own']), ['unknown, not listed', text], name);
  }
  const ofUri = explained(shown, LOCKED, 'own+file:///a', GATE, ['own']);
  assert.deepEqual(ofUri, ['allow, not listed', depends, 'rule "all" allows it']);
  const [, list] = explained(view([bare('own'), bare('notes')]), LOCKED, 'any', GATE, ['own']);
  assert.equal(list, depends);
});

// P-009
test('explain names the scope with which a denied tool would be allowed', () => {
  const access = accessOf({ w: { upstreams: ['notes'], tools: ['write'] } }, [{ roles: ['w'], scopes: ['w'] }]);
  const scopesOnDemand = [{ scope: 'w', advertised: 'w' }];
  const onDemand = [{ issuer: 'https://issuer.test', scopesOnDemand }];
  const gate = new Gate(access, [], undefined, undefined, onDemand);
  const offers = { notes: { tools: [tool('read'), tool('write')] } };
  const as = (name: string, principal = tokenOf('ada'), by = gate) => {
    return explained(view([upstream('notes')]), offers, name, by, [], principal);
  };
  const lists = (name: string) => `upstream "notes" lists it as "${name}"`;
  const would = 'scope "w" would allow it';
  assert.deepEqual(as('notes__write'), ['deny, listed', lists('write'), 'no rule allows it', would]);
  assert.deepEqual(as('notes__read'), ['deny, not listed', lists('read'), 'no rule allows it']);
  assert.equal(as('notes__write', tokenOf('ada', {}, ['w']))[0], 'allow, listed');
  assert.deepEqual(as('notes__write', keyOf('ci'))[0], 'deny, not listed');
  const asking = new Gate({ ...access, external: externalOf('notes') }, [], undefined, undefined, onDemand);
  const last = (name: string) => as(name, tokenOf('ada'), asking).slice(3);
  assert.deepEqual(last('notes__write'), [would, 'the external decision is asked only then']);
  assert.deepEqual(last('notes__read'), []);
});

test('explain without arguments names the scope of a role that depends on them', () => {
  const when = 'args.path.startsWith("/pub/")';
  const access = accessOf({ w: { upstreams: ['notes'], when } }, [{ roles: ['w'], scopes: ['w'] }]);
  const scopesOnDemand = [{ scope: 'w', advertised: 'w' }];
  const gate = new Gate(access, [], undefined, undefined, [{ issuer: 'https://issuer.test', scopesOnDemand }]);
  const offers = { notes: { tools: [tool('write')] } };
  const last = (args?: Readonly<Record<string, unknown>>) =>
    explained(view([upstream('notes')]), offers, 'notes__write', gate, [], tokenOf('ada'), args).at(-1);
  const would = 'scope "w" would allow it';
  assert.deepEqual([last(), last({ path: '/pub/x' })], [would, would]);
  assert.equal(last({ path: '/etc' }), 'no rule allows it');
});

test('a name that no list has is denied to a token without a scope on demand', () => {
  const access = accessOf({ w: { upstreams: ['notes'] } }, [{ roles: ['w'], scopes: ['w'] }]);
  const scopesOnDemand = [{ scope: 'w', advertised: 'w' }];
  const gate = new Gate(access, [], undefined, undefined, [{ issuer: 'https://issuer.test', scopesOnDemand }]);
  const offers = { notes: { tools: [tool('write')] } };
  const as = (name: string, ...scopes: readonly string[]) =>
    explained(view([bare('notes')]), offers, name, gate, [], tokenOf('ada', {}, scopes))[0];
  assert.deepEqual([as('write'), as('unlisted')], ['deny, listed', 'deny, not listed']);
  assert.deepEqual([as('write', 'w'), as('unlisted', 'w')], ['allow, listed', 'allow, not listed']);
});

test('explain counts no failing rule, and changes the weight of no principal', () => {
  const claims = { claims: [{ name: 'dept', path: 'dept', type: 'string' } as const] };
  const access = accessOf(
    { all: { upstreams: undefined, weight: 3, deny: [{ tools: ['write'], when: 'claims.dept != "eng"' }] } },
    [{ roles: ['all'], anyone: true }],
    claims,
  );
  const reported: unknown[] = [];
  const shares = { setWeight: (...args: unknown[]) => reported.push(args) };
  const gate = new Gate(access, [], shares, (failed) => reported.push(failed));
  const shown = view([upstream('notes')]);
  const offers = { notes: { tools: [tool('read'), tool('write')] } };
  for (const [name, effect] of [
    ['notes__read', 'allow, listed'],
    ['notes__write', 'deny, not listed'],
  ] as const) {
    assert.equal(explained(shown, offers, name, gate)[0], effect);
    assert.equal(explained(shown, offers, name, gate, [], keyOf('ada'), {})[0], effect);
  }
  assert.deepEqual(reported, []);
});
