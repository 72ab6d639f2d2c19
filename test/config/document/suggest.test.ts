import assert from 'node:assert/strict';
import { test } from 'node:test';

import { suggest } from '../../../src/config/document/suggest.ts';

const KNOWN = ['timeouts', 'isolation', 'start', 'prefix', 'url', 'env', 'queueWait'];

const cases = [
  { word: 'timeout', meant: 'timeouts' },
  { word: 'isolaton', meant: 'isolation' },
  { word: 'Isolation', meant: 'isolation' },
  { word: 'satrt', meant: 'start' },
  { word: 'ulr', meant: 'url' },
  { word: 'queue_wait', meant: 'queueWait' },
  { word: 'uri', meant: 'url' },
  { word: 'oauth', meant: undefined },
  { word: 'id', meant: undefined },
  { word: '', meant: undefined },
  { word: 'x'.repeat(10_000), meant: undefined },
];

for (const { word, meant } of cases) {
  test(`for "${word.slice(0, 20)}" ${meant === undefined ? 'nothing' : `"${meant}"`} is suggested`, () => {
    assert.equal(suggest(word, KNOWN), meant);
  });
}
