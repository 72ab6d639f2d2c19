import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { legacyUpstream, type Served, type ServerScript } from '../../support/http-upstream.ts';
import { modernResult } from '../../support/modern-wire.ts';
import { openGateway } from '../../support/open-gateway.ts';
import { usedBytes } from '../../support/used-bytes.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };

function tool(name: string, bytes = 10): object {
  return { name, description: 'd'.repeat(bytes), inputSchema: { type: 'object' } };
}

/** Lists the tools of a gateway with one server that gives these answers. Counts the requests to the server. */
async function listOf(answer: (page: number) => Readonly<Record<string, unknown>>, script: ServerScript = {}) {
  let page = 0;
  const toolsList = (_served: Served) => answer(page++);
  const capabilities = { tools: {} };
  await using upstream = await legacyUpstream({ capabilities, ...script, answers: { 'tools/list': toolsList } });
  await using gateway = await openGateway({ up: { url: upstream.url } });
  const tools: string[] = [];
  for (let cursor: unknown, pages = 0; pages < 200; pages++) {
    const result = await modernResult(gateway.url, 'tools/list', cursor === undefined ? {} : { cursor });
    const listed: unknown = result['tools'];
    assert.ok(Array.isArray(listed));
    tools.push(...listed.map((one: unknown) => String(Object.getOwnPropertyDescriptor(Object(one), 'name')?.value)));
    cursor = result['nextCursor'];
    if (cursor === undefined) break;
  }
  return { tools, requests: page, metrics: await gateway.metrics() };
}

// N-21
test('limit listingBytes: an endless listing of large tools keeps the first tools', TIMEOUT, async () => {
  const before = usedBytes();
  const { tools, requests, metrics } = await listOf((page) => ({
    tools: Array.from({ length: 50 }, (_, i) => tool(`t${page}-${i}`, 30_000)),
    nextCursor: `c${page}`,
  }));
  assert.ok(requests * 50 * 30_000 < 2 * LIMITS.listingBytes, `${requests} pages were read`);
  assert.ok(tools.length >= 400, `${tools.length} tools`);
  assert.equal(tools[0], 'up__t0-0');
  assert.match(metrics, /linkspan_limit_reached_total\{limit="listingBytes"\} 1/);
  // Sockets and their buffers are released some turns after the gateway has closed.
  await waitUntil(() => usedBytes() - before < 6 * LIMITS.listingBytes);
});

// N-21
test('limit listingItems: items beyond the limit are left out', TIMEOUT, async () => {
  const { tools, metrics } = await listOf((page) => ({
    tools: Array.from({ length: 20_000 }, (_, i) => tool(`t${page}-${i}`)),
    nextCursor: `c${page}`,
  }));
  assert.equal(tools.length, LIMITS.listingItems);
  assert.match(metrics, /linkspan_limit_reached_total\{limit="listingItems"\} 1/);
});

// N-21
test('limit listingPages: an endless listing of empty pages ends', TIMEOUT, async () => {
  const { tools, requests, metrics } = await listOf((page) => ({
    tools: page === 0 ? [tool('only')] : [],
    nextCursor: `c${page}`,
  }));
  assert.deepEqual(tools, ['up__only']);
  assert.equal(requests, LIMITS.listingPages);
  assert.match(metrics, /linkspan_limit_reached_total\{limit="listingPages"\} 1/);
});

// N-21
test('a repeated cursor ends the listing', TIMEOUT, async () => {
  const { tools, requests } = await listOf((page) => ({ tools: [tool(`t${page}`)], nextCursor: `c${page % 2}` }));
  assert.deepEqual(tools, ['up__t0', 'up__t1', 'up__t2']);
  assert.equal(requests, 3);
});
