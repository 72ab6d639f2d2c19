import assert from 'node:assert/strict';
import { test } from 'node:test';
import { matchesTemplate, parseTemplate } from '../../src/catalog/template.ts';

const cases = [
  { template: 'test://template/{id}/data', uri: 'test://template/123/data', fits: true },
  { template: 'test://template/{id}/data', uri: 'test://template/1/2/data', fits: false },
  { template: 'test://template/{id}/data', uri: 'test://template//data', fits: false },
  { template: 'test://template/{id}/data', uri: 'test://template/123/date', fits: false },
  { template: 'file:///{+path}', uri: 'file:///a/b/c.txt', fits: true },
  { template: 'file:///{path}', uri: 'file:///a/b', fits: false },
  { template: 'file://{/path*}', uri: 'file:///a/b', fits: true },
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
    const matcher = parseTemplate(template);
    assert.ok(matcher);
    assert.equal(matchesTemplate(matcher, uri), fits);
  });
}

for (const template of ['a:{', 'a:}', 'a:{b', 'a:{b}}', 'a:{{b}}', `a:${'{b}'.repeat(100)}`, `a:${'b'.repeat(9999)}`]) {
  test(`"${template.slice(0, 20)}" is a template no URI is recognised by`, () => {
    assert.equal(parseTemplate(template), undefined);
  });
}

test('a hostile template is decided in bounded time', () => {
  const matcher = parseTemplate(`x:${'{+a}aa'.repeat(32)}b`);
  assert.ok(matcher);
  assert.equal(matchesTemplate(matcher, `x:${'a'.repeat(4000)}`), false);
  assert.equal(matchesTemplate(matcher, `x:${'a'.repeat(5000)}b`), false);
});
