import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PagedLists } from '../../../src/gateway/forward/paged-lists.ts';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import { testCore } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const ITEMS = ['{}'];

function unexpected(): never {
  throw new Error('made again');
}

// N-64
test('a page is made once', () => {
  const lists = new PagedLists(() => undefined);
  const made = lists.page('a', ITEMS, 0, () => Buffer.from('[]'));
  assert.equal(lists.page('a', ITEMS, 0, unexpected), made);
  assert.throws(() => lists.page('a', ITEMS, 1, unexpected), /made again/);
});

// N-64
test('limit pagedListsBytes: the least recently used list is removed, with its pages', () => {
  const reached: LimitName[] = [];
  const lists = new PagedLists((limit) => reached.push(limit));
  // The texts are equal, so that the test takes little memory.
  const text = 'x'.repeat(LIMITS.pagedListsBytes / 16);
  const keep = (key: string, items: readonly string[]) => lists.page(key, items, 0, () => Buffer.alloc(1));
  keep('a', [text, text]);
  keep('b', [text, text]);
  keep('c', [text, text]);
  lists.page('a', [], 0, unexpected);
  assert.deepEqual(reached, []);
  keep('d', [text, text]);
  assert.deepEqual(
    ['a', 'b', 'c', 'd'].map((key) => lists.itemsOf(key)?.length),
    [2, undefined, 2, 2],
  );
  assert.deepEqual(reached, ['pagedListsBytes']);
  keep('huge', Array<string>(9).fill(text));
  assert.equal(lists.itemsOf('huge'), undefined);
  keep('after', [text]);
  assert.deepEqual(lists.itemsOf('after'), [text]);
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
