import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PageCache } from '../../../src/gateway/forward/page-cache.ts';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import { testCore } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const PAGE_BYTES = LIMITS.listPagesBytes / 4;

function unexpected(): never {
  throw new Error('made again');
}

// N-64
test('a page is made once', () => {
  const pages = new PageCache(() => undefined);
  const made = pages.get('a', () => Buffer.from('[]'));
  assert.equal(pages.get('a', unexpected), made);
});

// N-64
test('limit listPagesBytes: the least recently used page is removed', () => {
  const reached: LimitName[] = [];
  const pages = new PageCache((limit) => reached.push(limit));
  for (const key of ['a', 'b', 'c', 'd']) pages.get(key, () => Buffer.alloc(PAGE_BYTES));
  pages.get('a', unexpected);
  assert.deepEqual(reached, []);
  pages.get('e', () => Buffer.alloc(PAGE_BYTES));
  assert.deepEqual(reached, ['listPagesBytes']);
  assert.equal(pages.bytes, LIMITS.listPagesBytes);
  pages.get('a', unexpected);
  assert.throws(() => pages.get('b', unexpected), /made again/);
});

// N-64
test('the pages of a long list are well-formed and complete, also the second time', { timeout: 120_000 }, async () => {
  const tools = Array.from({ length: 2_500 }, (_, i) => ({
    name: `t${i}`,
    description: 'Grüße, "tools":[] und 😀',
    inputSchema: { type: 'object' },
  }));
  await using gateway = await testCore({ up: { memory: memoryUpstream({ lists: { tools } }) } });
  const client = await gateway.connect();
  for (const time of ['first', 'second']) {
    const names: string[] = [];
    let cursor: unknown;
    do {
      const { answer } = await client.request('tools/list', cursor === undefined ? {} : { cursor });
      assert.ok(answer.kind === 'result' && answer.tail !== undefined);
      assert.equal(Buffer.concat(answer.tail).toString(), `${answer.result}}`);
      const page: { tools: { name: string; description: string }[]; nextCursor?: string } = JSON.parse(answer.result);
      assert.ok(page.tools.every(({ description }) => description === tools[0]?.description));
      names.push(...page.tools.map(({ name }) => name));
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    assert.deepEqual(
      names,
      tools.map(({ name }) => `up__${name}`),
      time,
    );
  }
});
