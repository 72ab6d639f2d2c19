import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../../support/fast-check.ts';
import { TemplateIndex } from '../../../src/catalog/resources/template-index.ts';
import { parseTemplate } from '../../../src/catalog/resources/template.ts';

function matches(pattern: string, uri: string): boolean {
  return new TemplateIndex([{ upstream: 'a', template: pattern }]).find(uri).size === 1;
}

const cases = [
  { template: 'test://template/{id}/data', uri: 'test://template/123/data', fits: true },
  { template: 'test://template/{id}/data', uri: 'test://template/1/2/data', fits: false },
  { template: 'test://template/{id}/data', uri: 'test://template//data', fits: false },
  { template: 'test://template/{id}/data', uri: 'test://template/123/date', fits: false },
  { template: 'file:///{+path}', uri: 'file:///a/b/c.txt', fits: true },
  { template: 'file:///{path}', uri: 'file:///a/b', fits: false },
  { template: 'file://{/path*}', uri: 'file:///a/b', fits: true },
  { template: 'path://{path*}', uri: 'path://a/b', fits: true },
  { template: 'db://t{?limit,offset}', uri: 'db://t?limit=1', fits: true },
  { template: 'db://t{?limit,offset}', uri: 'db://t', fits: true },
  { template: 'repo://{owner}/{name}@{ref}', uri: 'repo://a/b@c', fits: true },
  { template: 'repo://{owner}/{name}@{ref}', uri: 'repo://a/b', fits: false },
  { template: 'x:{+path}-{id}', uri: 'x:a-b/c-d', fits: true },
  { template: 'x:{a}-{b}', uri: 'x:1-2-3', fits: true },
  { template: 'x:{a}{b}', uri: 'x:12', fits: true },
  { template: 'x:{a}{b}', uri: 'x:1', fits: false },
  { template: 'x:plain', uri: 'x:plain', fits: true },
  { template: 'x:plain', uri: 'x:plainer', fits: false },
  { template: '{+url}', uri: 'any:thing/at/all', fits: true },
];

for (const { template, uri, fits } of cases) {
  test(`"${uri}" ${fits ? 'can' : 'cannot'} come from "${template}"`, () => {
    assert.equal(matches(template, uri), fits);
  });
}

for (const template of ['a:{', 'a:}', 'a:{b', 'a:{b}}', 'a:{{b}}', `a:${'{b}'.repeat(100)}`, `a:${'b'.repeat(9999)}`]) {
  test(`no URI matches the template "${template.slice(0, 20)}"`, () => {
    assert.equal(parseTemplate(template), undefined);
  });
}

/** The same templates as regular expressions, which take exponential time for hostile input. */
function reference(template: string): RegExp {
  const source = template.split(/(\{[^}]*\})/).map((part) => {
    if (!part.startsWith('{')) return part.replaceAll(/[^\w]/g, String.raw`\$&`);
    if (/^\{[#./;?&]/.test(part)) return '.*';
    return part.startsWith('{+') ? '.+' : '[^/]+';
  });
  return new RegExp(`^${source.join('')}$`, 's');
}

// N-22
test('a URI matches a template exactly if the template can expand to it', () => {
  const expression = fc.constantFrom('{x}', '{+x}', '{/x}', '{?x}', '{#x}');
  const literal = fc.constantFrom('', 'a', 'b', '/', 'a/', '/b', 'ab', '//', 'aa', 'a/b');
  const template = fc
    .array(fc.tuple(expression, literal), { maxLength: 5 })
    .map((parts) => `a:${parts.map(([value, text]) => value + text).join('')}`);
  const uri = fc
    .array(fc.constantFrom('a', 'b', '/', 'ab', 'c'), { maxLength: 12 })
    .map((parts) => `a:${parts.join('')}`);
  fc.assert(
    fc.property(template, uri, (pattern, text) => {
      assert.equal(matches(pattern, text), reference(pattern).test(text));
    }),
    { numRuns: 5_000 },
  );
});
