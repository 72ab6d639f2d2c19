import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../support/fast-check.ts';
import {
  buildCatalog,
  listTexts,
  partsOf,
  prepareOffer,
  publishedToolName,
  resolvePrompt,
  resolveTool,
} from '../../src/catalog/catalog.ts';
import { toolListSize } from '../../src/catalog/callable.ts';
import { toolTextsOf } from '../../src/catalog/names/named-items.ts';
import { sharedOffer } from '../../src/catalog/offer.ts';
import { RawObject } from '../../src/json/json.ts';
import {
  bare,
  catalogOf,
  LIMITS,
  member,
  offer,
  resource,
  template,
  tool,
  upstream,
  view,
  listOf,
  listsOf,
} from './fixtures.ts';

const pair = view([upstream('a'), upstream('b')]);

// M-001
test('tools of two upstreams with the same name are both callable under distinct names', () => {
  const catalog = catalogOf(pair, { a: { tools: [tool('search')] }, b: { tools: [tool('search')] } });
  assert.deepEqual(member(listOf(catalog, 'tools'), 'name'), ['a__search', 'b__search']);
  assert.deepEqual(resolveTool(catalog, 'a__search'), { upstream: 'a', name: 'search' });
  assert.deepEqual(resolveTool(catalog, 'b__search'), { upstream: 'b', name: 'search' });
});

// M-001
test('a prompt and a tool may have the same name', () => {
  const catalog = catalogOf(pair, { a: { tools: [tool('x')], prompts: [RawObject.of({ name: 'x' })] } });
  assert.deepEqual(resolvePrompt(catalog, 'a__x'), { upstream: 'a', name: 'x' });
  assert.deepEqual(resolvePrompt(catalogOf(pair, { a: { tools: [tool('x')] } }), 'a__x'), undefined);
  assert.deepEqual(member(listOf(catalog, 'prompts'), 'name'), ['a__x']);
});

// M-003
test('lists follow the order of the config, then of the upstream', () => {
  const offers = [
    ['a', offer({ tools: [tool('z'), tool('y')] })],
    ['b', offer({ tools: [tool('x')] })],
  ] as const;
  const catalog = buildCatalog(pair, new Map(offers), LIMITS);
  const other = buildCatalog(pair, new Map(offers.toReversed()), LIMITS);
  assert.deepEqual(member(listOf(catalog, 'tools'), 'name'), ['a__z', 'a__y', 'b__x']);
  assert.deepEqual([...catalog.tools.keys()], ['a__z', 'a__y', 'b__x']);
  assert.deepEqual(listsOf(other), listsOf(catalog));
  assert.deepEqual(other.digest, catalog.digest);
});

// D3
test('an item is published with all its members, in order, with all digits', () => {
  const text =
    '{"x-first":1.0, "name":"big","inputSchema":{"type":"object","properties":{"n":{"maximum":12345678901234567890}}},' +
    '"annotations":{"readOnlyHint":true},"_meta":{"anthropic/maxResultSizeChars":1e5},"description":"a\\u00e9\\n"}';
  const catalog = catalogOf(pair, { a: { tools: [RawObject.parse(text)] } });
  assert.equal(listOf(catalog, 'tools')[0], text.replace('"big"', '"a__big"'));
});

test('an endpoint without prefixes publishes the upstream’s own text', () => {
  const text = '{ "name": "a.b/c",\n "inputSchema": {"type": "object"} }';
  const catalog = catalogOf(view([bare('a')]), { a: { tools: [RawObject.parse(text)] } });
  assert.deepEqual(listOf(catalog, 'tools'), [text.replace('\n', ' ')]);
  assert.deepEqual(resolveTool(catalog, 'a.b/c'), { upstream: 'a', name: 'a.b/c' });
});

test('an input schema without a type gets the type "object"', () => {
  const typeless = RawObject.parse('{"name":"x","inputSchema":{"properties":{}}}');
  const catalog = catalogOf(view([bare('a')]), { a: { tools: [typeless] } });
  assert.deepEqual(listOf(catalog, 'tools'), ['{"name":"x","inputSchema":{"properties":{},"type":"object"}}']);
});

test('views without different names for an item publish the same text', () => {
  const offers = { a: { tools: [tool('x')], resources: [resource('file:///1')] } };
  const first = catalogOf(pair, offers);
  const second = catalogOf(view([upstream('a')], { id: 'profile' }), offers);
  assert.deepEqual(listsOf(first), listsOf(second));
  assert.equal(first.digest.resources, second.digest.resources);
});

const badTools = [
  { what: 'no name', text: '{"inputSchema":{"type":"object"}}', name: '#2' },
  { what: 'an empty name', text: '{"name":"","inputSchema":{"type":"object"}}', name: '#2' },
  { what: 'a number for a name', text: '{"name":7,"inputSchema":{"type":"object"}}', name: '#2' },
  { what: 'a name that reorders what is shown', text: '{"name":"a\\u202eb","inputSchema":{}}', name: 'a\\u202eb' },
  { what: 'an escape sequence in its name', text: '{"name":"a\\u001b[31m","inputSchema":{}}', name: 'a\\u001b[31m' },
  { what: 'no schema', text: '{"name":"bad"}', name: 'bad' },
  { what: 'a schema that is text', text: '{"name":"bad","inputSchema":"object"}', name: 'bad' },
  { what: 'a schema for arrays', text: '{"name":"bad","inputSchema":{"type":"array"}}', name: 'bad' },
  { what: 'a schema that says a thing twice', text: '{"name":"bad","inputSchema":{"a":1,"a":2}}', name: 'bad' },
  { what: 'a broken escape', text: '{"name":"bad","inputSchema":{"type":"object"},"title":"\\q"}', name: 'bad' },
  { what: 'a broken escape in its name', text: '{"name":"\\q","inputSchema":{"type":"object"}}', name: '"\\q"' },
  {
    what: 'a repeated user interface setting',
    text: '{"name":"bad","inputSchema":{},"_meta":{"ui":{"a":1,"a":2}}}',
    name: 'bad',
  },
];

for (const { what, text, name } of badTools) {
  // M-028
  test(`a tool with ${what} is quarantined, others are not`, () => {
    const tools = [tool('good'), RawObject.parse(text), tool('fine')];
    const catalog = catalogOf(view([upstream('a')]), { a: { tools } });
    assert.deepEqual(member(listOf(catalog, 'tools'), 'name'), ['a__good', 'a__fine']);
    assert.deepEqual(
      catalog.quarantined.map((one) => [one.upstream, one.kind, one.name]),
      [['a', 'tool', name]],
    );
  });
}

// M-028
test('an entry that is not an object is recorded by its position', () => {
  const unreadable = [{ kind: 'prompt', position: 4, why: 'is not an object' }] as const;
  const catalog = catalogOf(view([upstream('a')]), { a: { tools: [tool('x')], unreadable } });
  assert.deepEqual(catalog.quarantined, [{ upstream: 'a', kind: 'prompt', name: '#5', why: 'is not an object' }]);
});

// M-028
test('an upstream without an offer does not affect the others', () => {
  const catalog = catalogOf(pair, { b: { tools: [tool('x')] } });
  assert.deepEqual(member(listOf(catalog, 'tools'), 'name'), ['b__x']);
});

// SEC-34
test('of two upstreams without prefix, the second item of a name is quarantined', () => {
  const catalog = catalogOf(view([bare('a'), bare('b')]), {
    a: { tools: [tool('x')] },
    b: { tools: [tool('x'), tool('y')] },
  });
  assert.deepEqual(
    [...catalog.tools],
    [
      ['x', { upstream: 'a', name: 'x' }],
      ['y', { upstream: 'b', name: 'y' }],
    ],
  );
  const [refused, ...others] = catalog.quarantined;
  assert.deepEqual(others, []);
  assert.deepEqual([refused?.upstream, refused?.name], ['b', 'x']);
  assert.match(refused?.why ?? '', /"x" of upstream "a" already is; give one of them another prefix or name/);
});

// SEC-34
test('of two tools of one upstream with the same name, the first is published', () => {
  const tools = [tool('x', { title: 'first' }), tool('x', { title: 'second' })];
  const catalog = catalogOf(view([upstream('a')]), { a: { tools } });
  assert.deepEqual(member(listOf(catalog, 'tools'), 'title'), ['first']);
  assert.equal(catalog.quarantined.length, 1);
});

// SEC-34
test('names with an upstream’s prefix are reserved for it, also while it has no offer', () => {
  const shown = view([bare('thief'), upstream('b', { prefix: 'b_' }), upstream('c', { prefix: 'b_c_' })]);
  const offers = { thief: { tools: [tool('b_pay')] }, b: { tools: [tool('c_pay'), tool('d')] } };
  const catalog = catalogOf(shown, offers);
  assert.deepEqual([...catalog.tools.keys()], ['b_d']);
  assert.deepEqual(
    catalog.quarantined.map(({ upstream: id, name }) => [id, name]),
    [
      ['thief', 'b_pay'],
      ['b', 'c_pay'],
    ],
  );
  assert.equal(resolveTool(catalog, 'b_pay'), undefined);
  assert.equal(resolveTool(catalog, 'b_c_pay'), undefined);
});

// SEC-34
test('a published name has one upstream and does not depend on other items', () => {
  const names = fc.array(fc.oneof(fc.stringMatching(/^[a-c_.]{1,3}$/), fc.string({ minLength: 1 })), { maxLength: 8 });
  const shown = view([upstream('a'), upstream('b'), upstream('a-b'), bare('raw')]);
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom('a', 'b', 'a-b', 'raw'), names), (listed) => {
      const offers = Object.fromEntries(
        Object.entries(listed).map(([id, some]) => [id, { tools: some.map((n) => tool(n)) }]),
      );
      const together = catalogOf(shown, offers);
      const total = Object.values(listed).reduce((sum, some) => sum + some.length, 0);
      assert.equal(together.tools.size + together.quarantined.length, total);
      assert.equal(listOf(together, 'tools').length, together.tools.size);
      for (const [id, some] of Object.entries(offers)) {
        const alone = catalogOf(shown, { [id]: some });
        for (const [name, owner] of together.tools) {
          if (owner.upstream === id) assert.deepEqual(alone.tools.get(name), owner);
        }
      }
    }),
  );
});

test('an excluded tool is neither listed nor callable', () => {
  const shown = view([upstream('a', { includeTools: ['get_*'], excludeTools: ['*_all'] })]);
  const catalog = catalogOf(shown, { a: { tools: [tool('get_x'), tool('get_all'), tool('drop')] } });
  assert.deepEqual([...catalog.tools.keys()], ['a__get_x']);
  assert.equal(resolveTool(catalog, 'a__drop'), undefined);
  assert.deepEqual(catalog.quarantined, []);
});

test('a profile filters and renames tools, and the old name is unknown', () => {
  const shown = view([upstream('a'), upstream('b')], {
    id: 'mine',
    includeTools: ['a__*'],
    excludeTools: ['a__drop'],
    renames: { a__x: 'find' },
  });
  const catalog = catalogOf(shown, { a: { tools: [tool('x'), tool('drop'), tool('y')] }, b: { tools: [tool('x')] } });
  assert.deepEqual(
    [...catalog.tools],
    [
      ['find', { upstream: 'a', name: 'x' }],
      ['a__y', { upstream: 'a', name: 'y' }],
    ],
  );
  assert.deepEqual(member(listOf(catalog, 'tools'), 'name'), ['find', 'a__y']);
  assert.equal(resolveTool(catalog, 'a__x'), undefined);
});

test('names such as __proto__ and toString are ordinary names', () => {
  const names = ['constructor', '__proto__', 'toString'];
  const catalog = catalogOf(view([bare('a')]), { a: { tools: names.map((name) => tool(name)) } });
  assert.deepEqual([...catalog.tools.keys()], names);
});

test('conformance: unlisted names go to the only upstream without a prefix', () => {
  const catalog = catalogOf(view([bare('a'), upstream('b')]), { a: { tools: [tool('x')] } });
  assert.equal(catalog.fallback, 'a');
  assert.deepEqual(resolveTool(catalog, 'test_trigger'), { upstream: 'a', name: 'test_trigger' });
  assert.deepEqual(resolvePrompt(catalog, 'test_prompt'), { upstream: 'a', name: 'test_prompt' });
});

test('conformance: unlisted names go to it also before its first listing', () => {
  assert.deepEqual(resolveTool(catalogOf(view([bare('a')]), {}), 'x'), { upstream: 'a', name: 'x' });
});

const noFallback = [
  { why: 'two upstreams have no prefix', shown: view([bare('a'), bare('b')]) },
  { why: 'every upstream has a prefix', shown: view([upstream('a')]) },
  { why: 'the upstream is filtered', shown: view([bare('a', { excludeTools: ['drop'] })]) },
  { why: 'the profile is filtered', shown: view([bare('a')], { includeTools: ['x'] }) },
];

for (const { why, shown } of noFallback) {
  // M-006
  test(`an unlisted name is unknown where ${why}`, () => {
    const catalog = catalogOf(shown, { a: { tools: [tool('x')] } });
    assert.equal(catalog.fallback, undefined);
    assert.equal(resolveTool(catalog, 'hidden'), undefined);
    assert.equal(resolvePrompt(catalog, 'hidden'), undefined);
  });
}

// M-006
test('quarantined, renamed and reserved names do not go to the fallback', () => {
  const shown = view([bare('a'), upstream('b')], { renames: { old: 'new' } });
  const catalog = catalogOf(shown, { a: { tools: [RawObject.of({ name: 'bad' }), tool('old')] } });
  assert.equal(catalog.fallback, 'a');
  for (const name of ['bad', 'old', 'b__secret']) assert.equal(resolveTool(catalog, name), undefined);
  assert.deepEqual(resolveTool(catalog, 'new'), { upstream: 'a', name: 'old' });
});

const app = tool('refresh', { _meta: { ui: { resourceUri: 'ui://app' } } });

test('the HTML of an app may call its tools by the upstream’s own names', () => {
  const catalog = catalogOf(pair, { a: { tools: [app] }, b: { tools: [tool('refresh'), tool('plain')] } });
  assert.deepEqual(resolveTool(catalog, 'refresh'), { upstream: 'a', name: 'refresh' });
  assert.equal(publishedToolName(catalog, 'refresh'), 'a__refresh');
  assert.equal(resolveTool(catalog, 'plain'), undefined);
});

// S-016
test('a tool for apps alone is callable where no other server has apps', () => {
  const only = (visibility: unknown) => tool('poll', { _meta: { ui: { visibility } } });
  for (const visibility of [['app'], []]) {
    const offers = { a: { tools: [only(visibility), tool('plain')] } };
    for (const [shown, name] of [
      [pair, 'a__poll'],
      [pair, 'poll'],
      [view([bare('a'), upstream('b')]), 'poll'],
    ] as const) {
      const merged = catalogOf(shown, { ...offers, b: { tools: [app] } });
      assert.equal(listOf(merged, 'tools').length, 2);
      assert.equal(resolveTool(merged, name), undefined);
      assert.match(
        merged.quarantined[0]?.why ?? '',
        /apps of its own server alone, and upstream "b" .*\/mcp\/a has it/,
      );
      const without = catalogOf(shown, { ...offers, b: { tools: [tool('plain')] } });
      assert.deepEqual(resolveTool(without, name), { upstream: 'a', name: 'poll' });
    }
    const own = catalogOf(view([bare('a')], { id: 'a' }), offers);
    assert.deepEqual(member(listOf(own, 'tools'), 'name'), ['poll', 'plain']);
    assert.deepEqual(resolveTool(own, 'poll'), { upstream: 'a', name: 'poll' });
  }
  for (const visibility of [undefined, 'app', ['model', 'app'], ['model']]) {
    const merged = catalogOf(pair, { a: { tools: [only(visibility)] }, b: { tools: [app] } });
    assert.deepEqual(member(listOf(merged, 'tools'), 'name').slice(0, 1), ['a__poll']);
  }
});

// S-016
test('a server whose tools name no resource of a user interface has no app', () => {
  const only = tool('poll', { _meta: { ui: { visibility: ['app'] } } });
  const named = tool('old', { _meta: { 'ui/resourceUri': 'ui://old' } });
  const both = catalogOf(pair, { a: { tools: [only] }, b: { tools: [only] } });
  assert.deepEqual(member(listOf(both, 'tools'), 'name'), ['a__poll', 'b__poll']);
  const withApp = catalogOf(pair, { a: { tools: [only] }, b: { tools: [named] } });
  assert.deepEqual(member(listOf(withApp, 'tools'), 'name'), ['b__old']);
});

test('the size of a list counts the tools for apps alone that are in it', () => {
  const only = tool('poll', { _meta: { ui: { visibility: ['app'] } } });
  for (const b of [app, tool('plain')]) {
    const offers = { a: { tools: [only, tool('x')] }, b: { tools: [b, only] } };
    const tools = listOf(catalogOf(pair, offers), 'tools');
    const size = toolListSize(pair, new Map(Object.entries(offers).map(([id, some]) => [id, offer(some)])), 48);
    assert.equal(size.tools, tools.length);
  }
});

const refusedApps = [
  { why: 'two apps have it', shown: pair, offers: { a: { tools: [app] }, b: { tools: [app] } } },
  {
    why: 'it is filtered',
    shown: view([upstream('a', { excludeTools: ['refresh'] })]),
    offers: { a: { tools: [app] } },
  },
  {
    why: 'it looks like a tool of another upstream',
    shown: pair,
    offers: { a: { tools: [tool('b__pay', { _meta: { ui: {} } })] } },
  },
  {
    why: 'an upstream without prefix may have it',
    shown: view([upstream('a'), bare('b')]),
    offers: { a: { tools: [app] } },
  },
];

for (const { why, shown, offers } of refusedApps) {
  test(`a bare name is refused: ${why}`, () => {
    const catalog = catalogOf(shown, offers);
    for (const name of ['refresh', 'b__pay']) {
      const owner = resolveTool(catalog, name);
      assert.notEqual(owner?.upstream, 'a');
    }
  });
}

test('a digest changes with its list and with no other', () => {
  const offers = { a: { tools: [tool('x')], resources: [resource('x:1')], templates: [template('x:{a}')] } };
  const before = catalogOf(pair, offers).digest;
  const after = catalogOf(pair, { a: { ...offers.a, templates: [template('x:{b}')] } }).digest;
  assert.deepEqual([after.tools, after.prompts], [before.tools, before.prompts]);
  assert.notEqual(after.resources, before.resources);
  const moved = catalogOf(pair, { a: { ...offers.a, resources: [], templates: [] } }).digest;
  assert.notEqual(moved.resources, before.resources);
});

// M-028
test('no listing makes a catalog fail or its lists unreadable', () => {
  const json = fc.jsonValue({ maxDepth: 3 });
  const piece = fc.oneof(
    json.map((value) => JSON.stringify(value)),
    fc.constantFrom('{"a":1,"a":2}', '"\\q"', '"\u0007"'),
  );
  const key = fc.constantFrom('name', 'uri', 'uriTemplate', 'inputSchema', '_meta', 'title');
  const item = fc
    .dictionary(
      key,
      fc.oneof(piece, fc.constantFrom('"x"', '"ui://x"', '{"type":"object"}', '{"ui":{"resourceUri":"\\q"}}')),
    )
    .map((members) =>
      RawObject.parse(
        `{${Object.entries(members)
          .map(([k, raw]) => `"${k}":${raw}`)
          .join()}}`,
      ),
    );
  const items = fc.array(item, { maxLength: 6 });
  fc.assert(
    fc.property(items, items, items, items, item, (tools, prompts, resources, templates, capabilities) => {
      for (const shown of [pair, view([bare('a')])]) {
        const catalog = catalogOf(shown, { a: { tools, prompts, resources, templates, capabilities } });
        for (const texts of listsOf(catalog)) for (const text of texts) JSON.parse(text);
      }
    }),
  );
});

// N-63
test('many sessions with equal offers of their own share one catalog and its texts', () => {
  const shown = view([upstream('a')]);
  const own = () => sharedOffer(offer({ tools: [tool('x', { outputSchema: { type: 'array' } }), tool('y')] }));
  const catalogs = [own(), own()].map((one) => buildCatalog(shown, new Map([['a', one]]), LIMITS));
  assert.equal(catalogs[0], catalogs[1]);
  const [first] = catalogs;
  assert.ok(first);
  assert.equal(listTexts(first, 'tools', '2025-11-25'), listTexts(first, 'tools', '2025-11-25'));
  const changed = buildCatalog(shown, new Map([['a', offer({ tools: [tool('y')] })]]), LIMITS);
  assert.notEqual(changed, first);
});

// N-64
test('a list is translated to a revision once, whatever its length', () => {
  const tools = Array.from({ length: 3_000 }, (_, i) => tool(`t${i}`, { outputSchema: { type: 'string' } }));
  const catalog = catalogOf(view([bare('a')]), { a: { revision: '2026-07-28', tools } });
  const texts = listTexts(catalog, 'tools', '2025-06-18');
  assert.equal(listTexts(catalog, 'tools', '2025-06-18'), texts);
  assert.match(texts[2_999] ?? '', /"outputSchema":\{"type":"object","properties":\{"result"/);
});

// N-62
test('a change of one upstream does not rebuild items of the others', () => {
  const offers = new Map([
    ['a', sharedOffer(offer({ tools: [tool('x')] }))],
    ['b', sharedOffer(offer({ tools: [tool('y')] }))],
  ]);
  const first = buildCatalog(pair, offers, LIMITS);
  const second = buildCatalog(pair, new Map([...offers, ['b', offer({ tools: [tool('z')] })]]), LIMITS);
  assert.equal(resolveTool(second, 'a__x'), resolveTool(first, 'a__x'));
  const [ofFirst] = partsOf(first, 'tools');
  const [ofSecond] = partsOf(second, 'tools');
  assert.ok(ofFirst !== undefined && ofFirst === ofSecond);
  assert.equal(toolTextsOf(ofSecond, '2025-06-18'), toolTextsOf(ofFirst, '2025-06-18'));
  assert.deepEqual(member(listOf(second, 'tools'), 'name'), ['a__x', 'b__z']);
  assert.notEqual(second.digest.tools, first.digest.tools);
});

// N-93
test('a long list is prepared in parts of 100 items, and each part once', () => {
  const tools = Array.from({ length: 2_450 }, (_, at) => (at === 250 ? RawObject.of({ at }) : tool(`t${at}`)));
  const long = offer({ tools, resources: Array.from({ length: 500 }, (_, at) => resource(`file:///${at}`)) });
  const steps = () => [...prepareOffer(pair, 'a', long, LIMITS)].length;
  assert.equal(steps(), 25 + 5);
  assert.equal(steps(), 0);
  const catalog = buildCatalog(pair, new Map([['a', long]]), LIMITS);
  assert.equal(partsOf(catalog, 'tools').length, 25);
  assert.equal(listOf(catalog, 'tools').length, 2_449);
  assert.deepEqual(
    catalog.quarantined.map(({ name }) => name),
    ['#251'],
  );
});

test('a part of long items ends before 100 of them', () => {
  const description = 'x'.repeat(50_000);
  const long = Array.from({ length: 10 }, (_, index) => ({ name: `t${index}`, description, inputSchema: {} }));
  const resources = long.map(({ name }) => ({ uri: `file:///${name}`, name, description }));
  const offers = {
    tools: long.map((tool) => RawObject.of(tool)),
    resources: resources.map((one) => RawObject.of(one)),
  };
  // Three items have more than 128 Ki characters.
  assert.equal([...prepareOffer(view([bare('a')]), 'a', offer(offers), LIMITS)].length, 8);
});

// N-62
test('a list prepared part by part equals the list made at once', () => {
  const offers = {
    a: { tools: [tool('x', { outputSchema: { type: 'object' } })] },
    b: { tools: [tool('y'), tool('y')] },
  };
  const atOnce = listTexts(catalogOf(pair, offers), 'tools', '2025-06-18');
  const catalog = catalogOf(pair, offers);
  for (const part of partsOf(catalog, 'tools')) toolTextsOf(part, '2025-06-18');
  assert.deepEqual(listTexts(catalog, 'tools', '2025-06-18'), atOnce);
  assert.deepEqual(member(atOnce, 'name'), ['a__x', 'b__y']);
});
