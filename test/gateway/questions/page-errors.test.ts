import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, type Peer, result } from '../../support/memory-upstream.ts';
import { ModernClient } from '../../support/modern-client.ts';
import { coreTaskUpstream, extensionUpstream } from '../../support/task-upstreams.ts';
import type { Request } from '../../../src/protocol/jsonrpc.ts';

const TIMEOUT = { timeout: 120_000 };
const URL_FORM = { elicitation: { form: {}, url: {} } };
const TASKS = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
const PAGE = { mode: 'url', message: 'Sign in', url: 'https://evil.example/', elicitationId: 'e' };
const PAGES = { code: -32042, message: 'Sign in first', data: { elicitations: [PAGE] } };
const HOSTS = { elicitationHosts: ['login.example.com'] };

function fail(peer: Peer, { id }: Request, error: object): void {
  peer.send(`{"jsonrpc":"2.0","id":${id},"error":${JSON.stringify(error)}}`);
}

/** A server of 2026-07-28 whose calls fail with −32042, which that revision does not have. */
function modernUpstream() {
  return memoryUpstream({
    isRaw: true,
    lists: { tools: [{ name: 't', inputSchema: { type: 'object' } }] },
    request: (peer, request) => {
      if (request.method !== 'server/discover') return fail(peer, request, PAGES);
      const discovered = { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } };
      peer.send(result(request, { resultType: 'complete', ttlMs: 0, cacheScope: 'private', ...discovered }));
    },
  });
}

// SEC-38
suite('the pages in an error −32042 where no policy for pages is asked', () => {
  //
  test('of an upstream of 2026-07-28: the call fails, in both eras of clients', TIMEOUT, async () => {
    await using gateway = await testCore({ up: { memory: modernUpstream(), era: 'modern', ...HOSTS } });
    const legacy = await gateway.connect({ capabilities: URL_FORM });
    const { answer } = await legacy.request('tools/call', toolCall('up__t'));
    assert.ok(answer.kind === 'error');
    const modern = await new ModernClient(gateway, URL_FORM).error('tools/call', toolCall('up__t'));
    for (const error of [answer.error, modern]) {
      assert.equal(error.code, -31012);
      assert.doesNotMatch(JSON.stringify(error), /evil/);
    }
  });

  for (const [era, upstreamOf] of [
    ['modern', extensionUpstream],
    ['legacy', coreTaskUpstream],
  ] as const) {
    test(`in the state of a failed task (${era} upstream)`, TIMEOUT, async () => {
      const { memory, tasks } = upstreamOf();
      await using gateway = await testCore({ up: { memory, era, ...HOSTS } });
      const client = new ModernClient(gateway, { ...TASKS, ...URL_FORM });
      const { taskId } = await client.result('tools/call', toolCall('up__job'));
      Object.assign(tasks[0] ?? {}, { status: 'failed', error: PAGES });
      const failed = await client.result('tasks/get', { taskId });
      assert.equal(failed['status'], 'failed');
      assert.equal(Object(failed['error']).code, -31012);
      assert.doesNotMatch(JSON.stringify(failed), /evil/);
    });
  }

  test('in the answer to a subscription', TIMEOUT, async () => {
    const memory = memoryUpstream({
      capabilities: { resources: { subscribe: true } },
      lists: { resources: [{ uri: 'test://a', name: 'a' }] },
      request: (peer, request) => fail(peer, request, PAGES),
    });
    await using gateway = await testCore({ up: { memory, ...HOSTS } });
    const client = await gateway.connect({ capabilities: URL_FORM });
    const { answer } = await client.request('resources/subscribe', { uri: 'up+test://a' });
    assert.ok(answer.kind === 'error');
    assert.equal(answer.error.code, -31012);
    assert.match(answer.error.message, /none of the elicitationHosts/);
  });
});

//
test('the pages in an error −32042 of a shared upstream reach the client of the call', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [{ name: 't', inputSchema: { type: 'object' } }] },
    request: (peer, request) => fail(peer, request, PAGES),
  });
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const legacy = await gateway.connect({ capabilities: URL_FORM });
  const { answer } = await legacy.request('tools/call', toolCall('up__t'));
  assert.ok(answer.kind === 'error' && answer.error.code === PAGES.code);
  const asked = await new ModernClient(gateway, URL_FORM).result('tools/call', toolCall('up__t'));
  for (const got of [answer.error, asked]) assert.match(JSON.stringify(got), /https:\/\/evil\.example\//);
});

for (const data of [
  { elicitations: [{ ...PAGE, url: 'https://login.example.com/', Url: PAGE.url }] },
  { elicitations: [], Elicitations: [PAGE] },
]) {
  // SEC-38
  test(`a page in ${Object.keys(data).at(-1)} of an error −32042 is not passed on`, TIMEOUT, async () => {
    const memory = memoryUpstream({
      lists: { tools: [{ name: 't', inputSchema: { type: 'object' } }] },
      request: (peer, request) => fail(peer, request, { ...PAGES, data }),
    });
    await using gateway = await testCore({ up: { memory, ...HOSTS } });
    const client = await gateway.connect({ capabilities: URL_FORM });
    const { answer } = await client.request('tools/call', toolCall('up__t'));
    assert.ok(answer.kind === 'error');
    assert.equal(answer.error.code, -31012);
    assert.match(answer.error.message, /could be mistaken/);
  });
}

// M-016
test('the error of a subscription names the published URI', TIMEOUT, async () => {
  const memory = memoryUpstream({
    capabilities: { resources: { subscribe: true } },
    lists: { resources: [{ uri: 'test://a', name: 'a' }] },
    request: (peer, request) => fail(peer, request, { code: -32002, message: 'gone', data: { uri: 'test://a' } }),
  });
  await using gateway = await testCore({ up: { memory } });
  const { answer } = await (await gateway.connect()).request('resources/subscribe', { uri: 'up+test://a' });
  assert.ok(answer.kind === 'error');
  assert.deepEqual(answer.error, { code: -32002, message: 'gone', data: { uri: 'up+test://a' } });
});

// M-026
test('the result in the state of a task carries the name of the gateway', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = new ModernClient(gateway, TASKS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const _meta = { 'io.modelcontextprotocol/serverInfo': { name: 'theirs', version: '1' } };
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [], _meta } });
  const { result: told } = await client.result('tasks/get', { taskId });
  assert.equal(Object(told)._meta['io.modelcontextprotocol/serverInfo'].name, 'linkspan');
});
