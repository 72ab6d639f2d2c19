import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ResourceCache } from '../../../src/gateway/forward/resource-cache.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import type { Answer } from '../../../src/protocol/jsonrpc.ts';
import { usedBytes } from '../../support/used-bytes.ts';

function read(upstream: string, uri: string, privateScope = 'ann') {
  return { upstream, params: RawObject.of({ uri }), privateScope, publicScope: '' };
}

function answer(text: string, cacheScope = 'private'): Answer {
  const contents = [{ uri: 'a:b', text }];
  return { kind: 'result', result: JSON.stringify({ contents, ttlMs: 60_000, cacheScope }) };
}

function cache() {
  const reached: LimitName[] = [];
  return { reached, cache: new ResourceCache(true, (limit) => reached.push(limit)) };
}

const TEXT = 'x'.repeat(50_000);

// N-25
test('limit readCacheEntryBytes: a larger result is not kept', () => {
  const { cache: reads, reached } = cache();
  reads.store(read('up', 'a:large'), 0, answer('é'.repeat(LIMITS.readCacheEntryBytes / 2)), 0);
  assert.equal(reads.find(read('up', 'a:large'), 1), undefined);
  assert.deepEqual(reached, ['readCacheEntryBytes']);
  reads.store(read('up', 'a:small'), 0, answer('small'), 0);
  assert.match(reads.find(read('up', 'a:small'), 1)?.answer.result ?? '', /small/);
});

// N-25
test('limit readCacheUpstreamBytes: the oldest results of the upstream go', () => {
  const { cache: reads, reached } = cache();
  reads.store(read('quiet', 'a:0'), 0, answer(TEXT), 0);
  for (let i = 0; i < 200; i++) reads.store(read('busy', `a:${i}`), 0, answer(TEXT), 0);
  assert.ok(reads.bytes <= LIMITS.readCacheUpstreamBytes + 64 * 1024);
  assert.ok(reached.length > 0 && reached.every((limit) => limit === 'readCacheUpstreamBytes'));
  assert.equal(reads.find(read('busy', 'a:0'), 1), undefined);
  assert.ok(reads.find(read('busy', 'a:199'), 1));
  assert.ok(reads.find(read('quiet', 'a:0'), 1));
});

// N-25
test('limit readCacheBytes: the upstream with the most bytes loses results', () => {
  const { cache: reads, reached } = cache();
  reads.store(read('quiet', 'a:0'), 0, answer(TEXT), 0);
  for (let i = 0; i < 160; i++) {
    for (const upstream of ['a', 'b', 'c', 'd', 'e']) reads.store(read(upstream, `a:${i}`), 0, answer(TEXT), 0);
  }
  assert.ok(reads.bytes <= LIMITS.readCacheBytes);
  assert.ok(reached.includes('readCacheBytes'));
  assert.ok(reads.find(read('quiet', 'a:0'), 1));
});

// N-25
test('a cached result does not keep its whole message in memory', () => {
  const { cache: reads } = cache();
  const before = usedBytes();
  for (let i = 0; i < 50; i++) {
    const message = `${'y'.repeat(2_000_000)}${JSON.stringify({ contents: [], ttlMs: 60_000, n: 'n'.repeat(100) })}`;
    reads.store(read('up', `a:${i}`), 0, { kind: 'result', result: message.slice(2_000_000) }, 0);
  }
  assert.ok(usedBytes() - before < 20_000_000);
  assert.ok(reads.find(read('up', 'a:49'), 1));
});

test('a result is not cached past a change, nor for another privateScope', () => {
  const { cache: reads } = cache();
  reads.store(read('up', 'a:b'), 0, answer('of Ann'), 0);
  assert.equal(reads.find(read('up', 'a:b', 'bob'), 1), undefined);
  const version = reads.versionOf('up');
  reads.invalidate('up');
  assert.equal(reads.find(read('up', 'a:b'), 1), undefined);
  assert.equal(reads.bytes, 0);
  reads.store(read('up', 'a:b'), version, answer('late'), 0);
  assert.equal(reads.find(read('up', 'a:b'), 1), undefined);
});

// M-014
test('no cached result answers a retry, another resource or another upstream', () => {
  for (const retry of [{ inputResponses: {} }, { requestState: 's' }]) {
    const { cache: reads } = cache();
    const again = { ...read('up', 'a:b'), params: RawObject.of({ uri: 'a:b', ...retry }) };
    reads.store(again, 0, answer('for one', 'public'), 0);
    assert.equal(reads.find(read('up', 'a:b'), 1), undefined);
    reads.store(read('up', 'a:b'), 0, answer('for all', 'public'), 0);
    assert.equal(reads.find(again, 1), undefined);
    for (const other of [read('up', 'a:c'), read('down', 'a:b')]) assert.equal(reads.find(other, 1), undefined);
    assert.match(reads.find(read('up', 'a:b'), 1)?.answer.result ?? '', /for all/);
  }
});

// M-014
test('a result answers no request with other parameters', () => {
  const { cache: reads } = cache();
  const ask = (more: object) => ({ ...read('up', 'a:b'), params: RawObject.of({ uri: 'a:b', ...more }) });
  reads.store(ask({ range: '10-19' }), 0, answer('10-19'), 0);
  reads.store(ask({ _meta: { 'com.example/locale': 'de' } }), 0, answer('de'), 0);
  assert.equal(reads.find(ask({}), 1), undefined);
  reads.store(ask({ _meta: { progressToken: 1 } }), 0, answer('all'), 0);
  for (const more of [{ range: '0-9' }, { _meta: { 'com.example/locale': 'en' } }, { requestState: 's' }]) {
    assert.equal(reads.find(ask(more), 1), undefined, JSON.stringify(more));
  }
  assert.ok(reads.find(ask({ _meta: { progressToken: 2, 'io.modelcontextprotocol/logLevel': 'info' } }), 1));
});

// M-015
test('nothing is kept where another process may hear of a change', () => {
  const reads = new ResourceCache(false, () => undefined);
  reads.store(read('up', 'a:b'), 0, answer('a'), 0);
  assert.equal(reads.find(read('up', 'a:b'), 1), undefined);
});
