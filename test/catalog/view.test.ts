import assert from 'node:assert/strict';
import { test } from 'node:test';
import { viewsOf } from '../../src/catalog/view.ts';
import type { UpstreamConfig } from '../../src/config/values/upstream-config.ts';
import { configWith } from '../downstream/edge.ts';
import { UPSTREAM } from '../support/core.ts';

function upstreamConfig(id: string, more: Partial<UpstreamConfig> = {}): UpstreamConfig {
  const target = { kind: 'http', url: 'http://127.0.0.1:1/mcp', headers: {} } as const;
  return { ...UPSTREAM, id, title: id.toUpperCase(), target, prefix: `${id}__`, ...more };
}

const config = configWith({
  upstreams: [upstreamConfig('a', { excludeTools: ['drop_*'] }), upstreamConfig('b')],
  profiles: [{ id: 'mine', upstreams: ['b', 'a'], includeTools: ['b__*'], excludeTools: [], renames: { b__x: 'x' } }],
});

const views = viewsOf(config);

test('there is an endpoint for all upstreams, for each one and for each profile', () => {
  assert.deepEqual([...views.keys()], ['', 'a', 'b', 'mine']);
});

// D5
test('the merged endpoint has every upstream in config order as configured', () => {
  assert.deepEqual(
    views.get('')?.upstreams.map(({ id, title, prefix, rawUris }) => [id, title, prefix, rawUris]),
    [
      ['a', 'A', 'a__', false],
      ['b', 'B', 'b__', false],
    ],
  );
});

// D5
test("an upstream's own endpoint renames nothing, and its filter still holds", () => {
  const [only, ...others] = views.get('a')?.upstreams ?? [];
  assert.deepEqual(others, []);
  assert.deepEqual([only?.prefix, only?.rawUris, only?.excludeTools], ['', true, ['drop_*']]);
});

test('a profile has its own order, filter and renames', () => {
  const mine = views.get('mine');
  assert.deepEqual(
    mine?.upstreams.map(({ id }) => id),
    ['b', 'a'],
  );
  assert.deepEqual([mine?.includeTools, mine?.renames], [['b__*'], { b__x: 'x' }]);
});
