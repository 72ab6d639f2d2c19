import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../../support/fast-check.ts';
import { listTexts, resolveResource, resolveTemplate } from '../../../src/catalog/catalog.ts';
import { isWithheldUri, type Resolution } from '../../../src/catalog/resources/resources.ts';
import { RawObject, rawItems } from '../../../src/json/json.ts';
import { toClient } from '../../../src/catalog/rewrite.ts';
import { disguisedUri } from '../../../src/catalog/uri.ts';
import { GatewayError } from '../../../src/errors.ts';
import { LIMITS } from '../../../src/limits.ts';
import { Gate } from '../../../src/gateway/exchange/gate.ts';
import { resolveUri } from '../../../src/gateway/exchange/route.ts';
import { accessOf, keyOf, tokenOf } from '../../policy/policies.ts';
import { bare, catalogOf, catalogsOf, listOf, member, resource, template, upstream, view } from '../fixtures.ts';

const pair = view([upstream('a'), upstream('b')]);
const NONE: Resolution = { kind: 'none' };

function one(id: string, uri: string): Resolution {
  return { kind: 'one', upstream: id, uri };
}

// D5
test('resources and templates are listed with their upstream’s id', () => {
  const catalog = catalogOf(pair, {
    a: { resources: [resource('file:///1'), resource('ui://app'), resource('https://x/1')] },
    b: { resources: [resource('file:///1')], templates: [template('file:///{path}'), template('ui://{x}')] },
  });
  assert.deepEqual(member(catalog.resources.texts, 'uri'), ['a+file:///1', 'ui://a+app', 'https://x/1', 'b+file:///1']);
  assert.deepEqual(member(catalog.resources.templateTexts, 'uriTemplate'), ['b+file:///{path}', 'ui://b+{x}']);
  assert.deepEqual(catalog.quarantined, []);
});

const known = catalogOf(pair, {
  a: {
    resources: [resource('file:///1'), resource('file:///both'), resource('https://x/a'), resource('https://x/both')],
    templates: [template('db://{table}'), template('doc://{name}'), template('https://api/{x}')],
  },
  b: {
    resources: [resource('file:///2'), resource('file:///both'), resource('https://x/both'), resource('relative')],
    templates: [template('doc://{title}'), template('log://{+path}')],
  },
});

const cases: readonly { readonly uri: string; readonly to: Resolution }[] = [
  { uri: 'a+file:///1', to: one('a', 'file:///1') },
  { uri: 'a+file:///unlisted', to: one('a', 'file:///unlisted') },
  { uri: 'b+file:///1', to: one('b', 'file:///1') },
  { uri: 'ui://b+app/x', to: one('b', 'ui://app/x') },
  { uri: 'file:///1', to: one('a', 'file:///1') },
  { uri: 'file:///both', to: { kind: 'many', upstreams: ['a', 'b'] } },
  { uri: 'https://x/a', to: one('a', 'https://x/a') },
  { uri: 'https://x/both', to: { kind: 'many', upstreams: ['a', 'b'] } },
  { uri: 'b+https://x/both', to: one('b', 'https://x/both') },
  { uri: 'relative', to: one('b', 'relative') },
  { uri: 'db://users', to: one('a', 'db://users') },
  { uri: 'doc://x', to: { kind: 'many', upstreams: ['a', 'b'] } },
  { uri: 'log://a/b/c', to: one('b', 'log://a/b/c') },
  { uri: 'https://api/1', to: one('a', 'https://api/1') },
  { uri: 'file:///3', to: NONE },
  { uri: 'c+file:///1', to: NONE },
  { uri: 'A+file:///1', to: NONE },
  { uri: ' a+file:///1', to: NONE },
  { uri: '', to: NONE },
];

/** Returns a resolution for the name of a test. */
function shown(to: Resolution): string {
  return to.kind === 'one' ? `${to.uri} of ${to.upstream}` : to.kind;
}

for (const { uri, to } of cases) {
  // M-023
  test(`"${uri}" resolves to ${shown(to)}`, () => assert.deepEqual(resolveResource(known, uri), to));
}

const completions = [
  { ref: 'a+db://{table}', to: one('a', 'db://{table}') },
  { ref: 'db://{table}', to: one('a', 'db://{table}') },
  { ref: 'https://api/{x}', to: one('a', 'https://api/{x}') },
  { ref: 'a+db://users', to: one('a', 'db://users') },
  { ref: 'file:///2', to: one('b', 'file:///2') },
  { ref: 'c+{x}', to: NONE },
];

for (const { ref, to } of completions) {
  // M-017
  test(`a completion for "${ref}" resolves to ${shown(to)}`, () => {
    assert.deepEqual(resolveTemplate(known, ref), to);
  });
}

// M-017
test('a template that two upstreams list alike is ambiguous', () => {
  const raw = { templates: [template('https://x/{y}')] };
  const catalog = catalogOf(pair, { a: raw, b: raw });
  assert.deepEqual(resolveTemplate(catalog, 'https://x/{y}'), { kind: 'many', upstreams: ['a', 'b'] });
  assert.deepEqual(resolveResource(catalog, 'https://x/1'), { kind: 'many', upstreams: ['a', 'b'] });
  assert.equal(catalog.resources.templateTexts.length, 1);
});

test('of a web URI that two upstreams list, the second is quarantined', () => {
  assert.equal(member(known.resources.texts, 'uri').filter((uri) => uri === 'https://x/both').length, 1);
  assert.deepEqual(
    known.quarantined.map(({ upstream: id, kind, name }) => [id, kind, name]),
    [['b', 'resource', 'https://x/both']],
  );
  assert.match(known.quarantined[0]?.why ?? '', /listed by upstream "a" too/);
});

const mixed = view([bare('a'), upstream('b'), bare('c')]);
const RAW = { resources: [resource('file:///x')], templates: [template('db://{t}')] };

// M-023 SEC-35
test('a URI that one upstream lists in this form goes to it', () => {
  const catalog = catalogOf(mixed, { a: RAW, b: RAW });
  assert.deepEqual(member(catalog.resources.texts, 'uri'), ['file:///x', 'b+file:///x']);
  assert.deepEqual(resolveResource(catalog, 'file:///x'), one('a', 'file:///x'));
  assert.deepEqual(resolveResource(catalog, 'b+file:///x'), one('b', 'file:///x'));
  assert.deepEqual(resolveResource(catalog, 'db://users'), one('a', 'db://users'));
  assert.deepEqual(resolveTemplate(catalog, 'db://{t}'), one('a', 'db://{t}'));
  assert.deepEqual(resolveTemplate(catalog, 'b+db://{t}'), one('b', 'db://{t}'));
});

// M-023
test('a URI that two upstreams list in this form is ambiguous', () => {
  const catalog = catalogOf(mixed, { a: RAW, b: RAW, c: RAW });
  const both: Resolution = { kind: 'many', upstreams: ['a', 'c'] };
  for (const uri of ['file:///x', 'db://users']) assert.deepEqual(resolveResource(catalog, uri), both);
  assert.deepEqual(resolveTemplate(catalog, 'db://{t}'), both);
  const advice = resolveUri(catalog, 'file:///x');
  assert.match(
    advice instanceof GatewayError ? advice.message : '',
    /offered by a, c; use the endpoint of one of them/,
  );
});

test('a URI goes to the one upstream of it that a principal may use', () => {
  const gate = new Gate(accessOf({ b: { upstreams: ['b'] } }, [{ roles: ['b'], anyone: true }]), []);
  const catalog = catalogsOf(mixed, { a: RAW, b: RAW })(gate.shownRightsOf(keyOf('ada'), ''));
  for (const uri of ['file:///x', 'db://users']) assert.deepEqual(resolveResource(catalog, uri), one('b', uri));
});

// SEC-35
test('a listed resource leads to the upstream that lists it, or is reported', () => {
  const ids = ['a', 'b', 'c'] as const;
  const uris = fc.uniqueArray(fc.constantFrom('file:///x', 'https://x/y', 'ui://app', 'relative', 'a+x:1', 'db://t'));
  const templates = fc.uniqueArray(fc.constantFrom('db://{t}', 'file:///{+path}'));
  const listing = fc.record({ isBare: fc.boolean(), uris, templates });
  fc.assert(
    fc.property(fc.tuple(listing, listing, listing), (listings) => {
      const shown = view(ids.map((id, position) => (listings[position]?.isBare === true ? bare(id) : upstream(id))));
      const offers = listings.map((one, position) => {
        const offered = { resources: one.uris.map(resource), templates: one.templates.map(template) };
        return [ids[position] ?? '', offered] as const;
      });
      const catalog = catalogOf(shown, Object.fromEntries(offers));
      for (const [position, uri] of member(catalog.resources.texts, 'uri').entries()) {
        const found = resolveResource(catalog, String(uri));
        const origin = catalog.resources.origins[position];
        if (found.kind === 'one') assert.deepEqual(found, { kind: 'one', ...origin });
        else assert.ok(catalog.quarantined.some(({ name }) => name === origin?.uri));
      }
    }),
    { numRuns: 1000 },
  );
});

// SEC-35
test('resources and templates with a disguised scheme are quarantined', () => {
  const listed = {
    resources: [resource(' b+file:///x'), resource('b\t+file:///y')],
    templates: [template('\nb+f:{x}')],
  };
  const catalog = catalogOf(pair, { a: listed, b: {} });
  assert.deepEqual(catalog.resources.texts, []);
  assert.equal(catalog.quarantined.length, 3);
  for (const { why } of catalog.quarantined)
    assert.match(why, /before the end of its scheme|control or invisible characters/);
  assert.deepEqual(resolveResource(catalog, 'b+file:///x'), one('b', 'file:///x'));
  assert.deepEqual(resolveResource(catalog, 'a+b+file:///y'), one('a', 'b+file:///y'));
});

test('a resource that clients cannot read is quarantined and not requested', () => {
  const resources = [
    RawObject.of({ uri: 'x:nameless' }),
    RawObject.of({ name: 'n' }),
    resource('x:\u200b'),
    resource('x:ok'),
  ];
  for (const shown of [upstream('a'), bare('a')]) {
    const catalog = catalogOf(view([shown]), { a: { resources } });
    assert.equal(catalog.resources.texts.length, 1);
    assert.deepEqual(
      catalog.quarantined.map(({ name }) => name),
      ['x:nameless', '#2', 'x:\\u200b'],
    );
    assert.deepEqual(resolveResource(catalog, shown.rawUris ? 'x:nameless' : 'a+x:nameless'), NONE);
  }
});

test('older clients do not get a resource whose host is longer than any name', () => {
  const long = 'a'.repeat(300);
  const marks = '\u0301'.repeat(4_000) + '\u0316'.repeat(4_000);
  const left = [`http://${long}/`, `wss://u:p@${long}:80`, `file://${long}/x`, `http:${marks}`, ` https:\\\\${marks}/`];
  const kept = [`http://${long}@h/${long}?${long}`, `file:///${long}`, `file:/${long}`, `x://${long}`, `data:${long}`];
  const catalog = catalogOf(view([bare('a')]), { a: { resources: [...left, ...kept].map(resource) } });
  assert.deepEqual(member(listOf(catalog, 'resources'), 'uri'), kept);
  assert.deepEqual(member(listTexts(catalog, 'resources', '2026-07-28'), 'uri'), [...left, ...kept]);
  assert.equal(catalog.repaired.length, left.length);
});

test('a wrong entry does not hide another one with its URI', () => {
  const nameless = (uri: string) => RawObject.of({ uri });
  const resources = [
    resource('x:twice'),
    nameless('x:twice'),
    nameless('x:first'),
    resource('x:first'),
    resource('x:both'),
  ];
  const offers = { a: { resources, templates: [RawObject.of({ uriTemplate: 'x:both' })] } };
  const catalog = catalogOf(view([upstream('a')]), offers);
  assert.equal(catalog.quarantined.length, 3);
  assert.deepEqual(member(catalog.resources.texts, 'uri'), ['a+x:twice', 'a+x:first', 'a+x:both']);
  for (const uri of ['x:twice', 'x:first', 'x:both'])
    assert.deepEqual(resolveResource(catalog, `a+${uri}`), one('a', uri));
});

test('a template that starts with an expression does not match others’ resources', () => {
  const offers = { a: { templates: [template('{+url}')] }, b: {} };
  const merged = catalogOf(view([bare('a', { excludeTools: ['x'] }), upstream('b')]), offers);
  assert.deepEqual(merged.resources.templateTexts, []);
  assert.match(merged.quarantined[0]?.why ?? '', /does not start with a scheme/);
  assert.deepEqual(resolveResource(merged, 'any:thing'), NONE);

  const alone = catalogOf(view([bare('a', { excludeTools: ['x'] })]), offers);
  assert.deepEqual(member(alone.resources.templateTexts, 'uriTemplate'), ['{+url}']);
  assert.deepEqual(resolveResource(alone, 'any:thing'), one('a', 'any:thing'));
});

test('conformance: URIs of an unprefixed upstream are unchanged, listed or not', () => {
  const offers = {
    a: { resources: [resource('test://static-text')], templates: [template('test://template/{id}/data')] },
  };
  const catalog = catalogOf(view([bare('a')]), offers);
  assert.deepEqual(member(catalog.resources.texts, 'uri'), ['test://static-text']);
  for (const uri of [
    'test://static-text',
    'test://template/123/data',
    'test://unlisted',
    'https://x/unlisted',
    'a+x:1',
  ]) {
    assert.deepEqual(resolveResource(catalog, uri), one('a', uri));
  }
});

test('an unlisted web URI is not sent to an upstream that may not own it', () => {
  const catalog = catalogOf(view([bare('a'), upstream('b')]), {});
  assert.deepEqual(resolveResource(catalog, 'https://b.example/secret-in-the-path'), NONE);
  assert.deepEqual(resolveResource(catalog, 'note:1'), one('a', 'note:1'));
});

// SEC-35
test('an upstream with raw URIs cannot list or hide URIs of another one', () => {
  const spoof = [resource('b+file:///1'), RawObject.of({ uri: 'b+file:///2' }), resource('ui://b+app')];
  const catalog = catalogOf(view([bare('a'), upstream('b')]), {
    a: { resources: spoof, templates: [template('b+x:{y}')] },
  });
  assert.deepEqual(catalog.resources.texts, []);
  assert.deepEqual(catalog.resources.templateTexts, []);
  assert.equal(catalog.quarantined.length, 4);
  assert.deepEqual(resolveResource(catalog, 'b+file:///1'), one('b', 'file:///1'));
  assert.deepEqual(resolveResource(catalog, 'b+file:///2'), one('b', 'file:///2'));
  assert.deepEqual(resolveResource(catalog, 'ui://b+app'), one('b', 'ui://app'));
});

test('an upstream with a scheme as its id does not break its own endpoint', () => {
  const catalog = catalogOf(view([bare('git')]), { git: { resources: [resource('git+ssh://host/x')] } });
  assert.deepEqual(member(catalog.resources.texts, 'uri'), ['git+ssh://host/x']);
  assert.deepEqual(resolveResource(catalog, 'git+ssh://host/x'), one('git', 'git+ssh://host/x'));
});

test('a hidden resource that templates of two upstreams match is not requested', () => {
  const uri = 'file:///secret';
  const templates = [template('file:///{+path}')];
  const withheld = [{ kind: 'resource', key: uri, why: 'differs' }] as const;
  const shown = view([bare('a'), upstream('b')]);
  for (const hidden of [{ withheld }, { resources: [RawObject.of({ uri })] }]) {
    const catalog = catalogOf(shown, { a: { ...hidden, templates }, b: { templates } });
    assert.deepEqual(resolveResource(catalog, uri), NONE);
    assert.deepEqual(resolveResource(catalog, 'file:///other'), one('a', 'file:///other'));
  }
});

// SEC-33
test('a withheld template withholds what it matches, unless that is listed itself', () => {
  const withheld = [
    { kind: 'template', key: 'file:///{+path}', why: 'differs' },
    { kind: 'resource', key: 'note:///x', why: 'differs' },
  ] as const;
  const catalog = catalogOf(view([upstream('a')]), { a: { resources: [resource('file:///listed')], withheld } });
  assert.deepEqual(resolveResource(catalog, 'a+file:///listed'), one('a', 'file:///listed'));
  assert.deepEqual(resolveResource(catalog, 'a+file:///other'), NONE);
  const { resources } = catalog;
  const names = ['a+file:///listed', 'a+note:///y', 'a+file:///other', 'a+file:///{+path}', 'a+note:///x', 'note:///x'];
  const shown = [upstream('a')];
  assert.deepEqual(
    names.map((name) => isWithheldUri(resources, shown, name)),
    [false, false, true, true, true, true],
  );
});

// SEC-33
test('nothing of an upstream is read that must be listed before it can be judged', () => {
  const shown = view([{ ...upstream('a'), onChange: 'refuse' }]);
  assert.deepEqual(resolveResource(catalogOf(shown, {}), 'a+file:///x'), NONE);
  assert.deepEqual(resolveResource(catalogOf(shown, { a: {} }), 'a+file:///x'), one('a', 'file:///x'));
});

// SEC-35
test('a listed URI that only a scope opens leads to no other upstream', () => {
  const access = accessOf({ later: { upstreams: ['later'] }, mine: { upstreams: ['mine'] } }, [
    { roles: ['mine'], anyone: true },
    { roles: ['later'], scopes: ['w'] },
  ]);
  const scopesOnDemand = [{ scope: 'w', advertised: 'w' }];
  const gate = new Gate(access, [], undefined, undefined, [{ issuer: 'https://issuer.test', scopesOnDemand }]);
  const offers = { resources: [resource('file:///x')], templates: [template('db://{t}')] };
  const catalogs = catalogsOf(view([bare('later'), upstream('mine')]), { later: offers, mine: offers });
  for (const scopes of [[], ['w']]) {
    const catalog = catalogs(gate.shownRightsOf(tokenOf('ada', {}, scopes), ''));
    assert.deepEqual(member(catalog.resources.texts, 'uri'), ['file:///x', 'mine+file:///x']);
    assert.deepEqual(resolveResource(catalog, 'file:///x'), one('later', 'file:///x'));
    assert.deepEqual(resolveTemplate(catalog, 'db://{t}'), one('later', 'db://{t}'));
  }
});

// SEC-35
test('reading any link of an upstream reaches that upstream or fails', () => {
  const victim = { resources: [resource('file:///secret'), resource('ui://app')], templates: [template('db://{t}')] };
  const catalog = catalogOf(pair, { a: { resources: [resource('x:1')] }, b: victim });
  const tempting = fc.constantFrom(
    'b+file:///secret',
    'file:///secret',
    'ui://b+app',
    'ui://app',
    'db://users',
    'b+db://users',
    'a+b+file:///secret',
    'B+file:///secret',
    ' b+file:///secret',
    'b\t+file:///secret',
    '\r\nui://b+app',
    'b%2Bfile:///secret',
    'ui://a+b+app',
    'UI://b+app',
  );
  const links = fc.oneof(
    tempting,
    fc.tuple(tempting, fc.string()).map(([uri, more]) => uri + more),
    fc.string(),
  );
  fc.assert(
    fc.property(links, (uri) => {
      const result = JSON.stringify({ content: [{ type: 'resource_link', uri, name: 'l' }] });
      const text = toClient('tools/call', upstream('a'), result);
      const [link = ''] = rawItems(RawObject.parse(text).raw('content') ?? '');
      const published = RawObject.parse(link).string('uri') ?? '';
      const read = URL.parse(published)?.href ?? published;
      assert.ok(
        !read.startsWith('b+') && !read.startsWith('ui://b+'),
        'no reader takes it for one of another upstream',
      );
      const found = resolveResource(catalog, published);
      if (found.kind === 'one') assert.deepEqual(found, one('a', disguisedUri(uri) ?? uri));
    }),
    { numRuns: 1000 },
  );
});

// SEC-33
test('no spelling of the URI of a withheld resource leads to it', () => {
  const withheld = [
    { kind: 'resource', key: 'test://Host/secret', why: 'differs' },
    { kind: 'resource', key: 'test://host/view?id=7', why: 'differs' },
  ] as const;
  const listed = resource('test://host/./secret');
  const catalog = catalogOf(view([upstream('a')]), { a: { withheld, resources: [listed] } });
  for (const uri of [
    'test://Host/secret',
    'TEST://host/secret',
    'test://host/%73ecret',
    'test://host//secret/',
    'test://host/secret?x',
    'test://host/other/%2e%2e/secret',
    'test://host/100%',
    'test://host/view/?id=7',
  ]) {
    assert.deepEqual(resolveResource(catalog, `a+${uri}`), NONE, uri);
  }
  for (const uri of ['test://host/other', 'test://host/secret2', 'test://host/./secret', 'test://host/view?id=8']) {
    assert.deepEqual(resolveResource(catalog, `a+${uri}`), one('a', uri));
  }
});

// SEC-33
test('no spelling of a URI of a withheld template leads to it', () => {
  const withheld = [
    { kind: 'template', key: 'test://Host/files/{+path}', why: 'differs' },
    { kind: 'template', key: 'test://Board{?q}', why: 'differs' },
  ] as const;
  const catalog = catalogOf(view([upstream('a')]), { a: { withheld } });
  for (const uri of [
    'test://Host/files/x',
    'TEST://Host/files/x',
    'test://host/%66iles/x',
    'test://host//files/a/b',
    'TEST://Board?q=1',
  ]) {
    assert.deepEqual(resolveResource(catalog, `a+${uri}`), NONE, uri);
  }
  assert.deepEqual(resolveResource(catalog, 'a+test://host/other'), one('a', 'test://host/other'));
});

// SEC-33
test('a withheld template that cannot be parsed leaves the listed URIs alone', () => {
  const withheld = [{ kind: 'template', key: 'test://{x', why: 'differs' }] as const;
  const catalog = catalogOf(view([upstream('a')]), { a: { withheld, resources: [resource('test://listed')] } });
  assert.deepEqual(resolveResource(catalog, 'a+test://listed'), one('a', 'test://listed'));
  assert.deepEqual(resolveResource(catalog, 'a+test://other'), NONE);
});

// SEC-33
test('limit withheldUriChars: beyond it, only listed URIs of the upstream are known', () => {
  for (const [count, other] of [
    [1, one('a', 'test://other')],
    [LIMITS.withheldUriChars / 1_000, NONE],
  ] as const) {
    const withheld = Array.from({ length: count + 1 }, (_, n) => ({
      kind: 'resource' as const,
      key: `test://${n}/${'x'.repeat(1_000)}`,
      why: 'differs' as const,
    }));
    const catalog = catalogOf(view([upstream('a')]), { a: { withheld, resources: [resource('test://listed')] } });
    assert.deepEqual(resolveResource(catalog, 'a+test://listed'), one('a', 'test://listed'));
    assert.deepEqual(resolveResource(catalog, 'a+test://other'), other);
  }
});

// SEC-33
test('a withheld template with a port is compared, and a listed one stays known', () => {
  const withheld = [{ kind: 'template', key: 'http://localhost:{port}/secret', why: 'differs' }] as const;
  const templates = [template('http://localhost:{port}/open')];
  const catalog = catalogOf(view([upstream('a')]), { a: { withheld, templates } });
  for (const uri of ['http://localhost:80/secret', 'http://localhost:80/%73ecret', 'HTTP://localhost/secret']) {
    assert.deepEqual(resolveResource(catalog, `a+${uri}`), NONE, uri);
  }
  const known = 'a+http://localhost:{port}/open';
  assert.deepEqual(resolveTemplate(catalog, known), one('a', 'http://localhost:{port}/open'));
});
