import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../../support/fast-check.ts';
import { defaultPrefix, upstreamId } from '../../../src/config/upstreams/upstream-id.ts';

const cases = [
  { key: 'My_Server', id: 'my-server', prefix: 'my_server__' },
  { key: 'GitHub Issues', id: 'github-issues', prefix: 'github-issues__' },
  { key: '1mcp', id: 's1mcp', prefix: 's1mcp__' },
  { key: 'a__b', id: 'a-b', prefix: 'a_b__' },
  { key: '_a - _b_', id: 'a-b', prefix: 'a_b__' },
  { key: '地图', id: 's-41ab2e', prefix: 's-41ab2e__' },
  { key: '地图2', id: 's2', prefix: 's2__' },
];

for (const { key, id, prefix } of cases) {
  // N-11
  test(`"${key}" has the id "${id}" and the prefix "${prefix}"`, () => {
    assert.equal(upstreamId(key), id);
    assert.equal(defaultPrefix(key), prefix);
  });
}

test('keys without letters of ASCII have ids of their own', () => {
  assert.notEqual(upstreamId('高德地图'), upstreamId('百度地图'));
});

// N-11
test('no default prefix begins with that of another upstream', () => {
  const key = fc.string({ unit: fc.constantFrom('a', 'b', '_', '-', ' '), minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(key, key, (a, b) => {
      if (defaultPrefix(a) !== defaultPrefix(b)) assert.ok(!defaultPrefix(a).startsWith(defaultPrefix(b)));
    }),
  );
});
