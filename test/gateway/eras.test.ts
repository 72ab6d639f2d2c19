import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { stream } from '../fixtures/servers/http-harness.ts';
import { askingSseServer } from '../fixtures/servers/sse-asks.ts';
import { initialize, post, rpc } from '../downstream/client.ts';
import { errorText, legacyUpstream, modernUpstream, type Served } from '../support/http-upstream.ts';
import type { Members } from '../support/members.ts';
import { answerOf, modernPost, modernResult } from '../support/modern-wire.ts';
import { testCore } from '../support/core.ts';
import { upstreamStatuses } from '../../src/compose/upstream-status.ts';
import { openGateway } from '../support/open-gateway.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOL = { name: 'act', inputSchema: { type: 'object' } };
const CAPABILITIES = { elicitation: { form: {} } };
const QUESTION = JSON.stringify({
  jsonrpc: '2.0',
  id: 'q1',
  method: 'elicitation/create',
  params: { message: 'Your name?', requestedSchema: { type: 'object', properties: {} } },
});

// N-40
test('a server request on a modern stream fails the call at once with the reason', TIMEOUT, async () => {
  await using upstream = await modernUpstream({
    tools: [TOOL],
    answers: {
      'tools/call': ({ response }) => {
        stream(response);
        response.write(`data: ${QUESTION}\n\n`);
        return undefined;
      },
    },
  });
  await using gateway = await openGateway({ up: { url: upstream.url } });
  await modernResult(gateway.url, 'tools/list');
  const { error } = answerOf(await modernPost(gateway.url, 'tools/call', { name: 'up__act', arguments: {} }));
  assert.equal(error?.code, -31_012);
  assert.match(error?.message ?? '', /sent the request elicitation\/create in the middle of a call/);
  assert.match(JSON.stringify(error), /"executed":"unknown"/);
  await upstream.requests('tools/call')[0]?.closed;
});

for (const settings of [{}, { type: 'sse' }]) {
  const name = 'type' in settings ? 'configured as SSE' : 'found to speak SSE';
  // N-42
  test(`concurrent questions of a server ${name} all reach their clients`, TIMEOUT, async () => {
    await using server = await askingSseServer();
    await using gateway = await openGateway({ up: { url: server.url, ...settings } });
    const options = { capabilities: CAPABILITIES };
    await modernResult(gateway.url, 'tools/list', {}, options);
    const call = () => modernPost(gateway.url, 'tools/call', { name: 'up__ask', arguments: {} }, options);
    const answers = (await Promise.all(Array.from({ length: 10 }, call))).map(answerOf);
    assert.deepEqual(
      answers.map(({ result, error }) => error?.message ?? result?.['resultType']),
      answers.map(() => 'input_required'),
    );
  });
}

const openings = (upstream: Awaited<ReturnType<typeof modernUpstream>>) =>
  upstream.received.items
    .map(({ rpc: method }) => method)
    .filter((method) => /discover|initialize$/.test(method ?? ''));

suite('the first request to a remote upstream', { concurrency: 2 }, () => {
  // N-40
  test('only initialize for a session, if it is answered', TIMEOUT, async () => {
    await using upstream = await legacyUpstream({ tools: [TOOL] });
    await using gateway = await openGateway({ up: { url: upstream.url } });
    const session = await initialize(gateway.url);
    await post(gateway.url, rpc(1, 'tools/list'), session);
    assert.ok(!openings(upstream).includes('server/discover'), openings(upstream).join(' '));
  });

  // N-40
  test('server/discover for a modern client, then a supported era', TIMEOUT, async () => {
    await using upstream = await legacyUpstream({ tools: [TOOL] });
    await using gateway = await openGateway({ up: { url: upstream.url } });
    await modernResult(gateway.url, 'tools/list');
    assert.deepEqual(openings(upstream).slice(0, 2), ['server/discover', 'initialize']);
    assert.equal(openings(upstream).filter((method) => method === 'server/discover').length, 1);
  });

  // N-40
  test('initialize for a session, and server/discover if that is refused', TIMEOUT, async () => {
    await using upstream = await modernUpstream({ tools: [TOOL] });
    await using gateway = await openGateway({ up: { url: upstream.url } });
    const session = await initialize(gateway.url);
    await post(gateway.url, rpc(1, 'tools/list'), session);
    await modernResult(gateway.url, 'tools/list');
    assert.deepEqual(openings(upstream), ['initialize', 'server/discover']);
  });
});

// N-40
test('the status has the eras, the revisions and their evidence', TIMEOUT, async () => {
  await using upstream = await legacyUpstream({ tools: [TOOL] });
  await using gateway = await testCore({
    up: { ...upstream.config, era: 'auto' },
    held: { ...upstream.config, era: 'legacy' },
  });
  await (await gateway.connect()).result('tools/list');
  const [up, held] = upstreamStatuses(gateway.core);
  const none = { prompts: 0, resources: 0, listProblems: [] };
  const answered = { how: 'initialize answered', revision: '2025-11-25', servedIn: 'legacy', tools: 1, ...none };
  assert.deepEqual(up?.eras, {
    legacy: { speaks: 'yes', ...answered },
    modern: { speaks: 'unknown', how: undefined, revision: undefined, servedIn: undefined, tools: 0, ...none },
  });
  assert.deepEqual(held?.eras.modern, {
    speaks: 'no',
    how: 'configured',
    revision: undefined,
    servedIn: 'legacy',
    tools: 0,
    ...none,
  });
  assert.match(await gateway.metrics.text(), /linkspan_upstream_era\{upstream="up",era="legacy"\} 1/);
  assert.match(await gateway.metrics.text(), /linkspan_upstream_era\{upstream="held",era="modern"\} 0/);
});

/** A server with sessions, and then one of 2026-07-28 only in its place. */
function replacedServer() {
  const state = { isModern: false, streams: [] as Served[] };
  const done = { content: [{ type: 'text', text: 'done' }] };
  const serverInfo = { name: 'scripted', version: '1' };
  const capabilities = { tools: { listChanged: true } };
  const modernOnly = (members: Members) => (served: Served) => {
    const isModern = Object.keys(served.meta).length > 0;
    if (isModern === state.isModern) return isModern ? { resultType: 'complete', ...members } : members;
    const data = { supported: ['2026-07-28'], requested: '2025-11-25' };
    const unsupported = { code: -32_022, message: 'Unsupported protocol version: 2025-11-25', data };
    const error = isModern ? { code: -32_601, message: 'Method not found' } : unsupported;
    served.response.writeHead(400, { 'content-type': 'application/json' }).end(errorText(served.id, error));
    return undefined;
  };
  const caching = { ttlMs: 0, cacheScope: 'private' };
  const answers = {
    initialize: (served: Served) => {
      if (!state.isModern) served.response.setHeader('mcp-session-id', `session-${String(served.id)}`);
      return modernOnly({ protocolVersion: '2025-11-25', capabilities, serverInfo })(served);
    },
    'server/discover': modernOnly({ supportedVersions: ['2026-07-28'], capabilities: { tools: {} }, ...caching }),
    'tools/list': (served: Served) =>
      modernOnly({ tools: [TOOL, { ...TOOL, name: state.isModern ? 'new' : 'old' }], ...caching })(served),
    'tools/call': modernOnly(done),
    ping: modernOnly({}),
    '': (served: Served) => {
      if (served.method !== 'GET') return {};
      if (state.isModern) served.response.writeHead(405).end();
      else stream(served.response);
      state.streams.push(served);
      return undefined;
    },
  };
  return { state, answers };
}

suite('a server with sessions that is replaced by one of 2026-07-28 only', { concurrency: 2 }, () => {
  // L-011
  test('serves a client that has a session there', TIMEOUT, async () => {
    const { state, answers } = replacedServer();
    await using upstream = await legacyUpstream({ answers });
    await using gateway = await testCore({ up: { ...upstream.config, era: 'auto' } });
    const client = await gateway.connect();
    const call = () => client.request('tools/call', { name: 'up__act', arguments: {} });
    assert.match(JSON.stringify(await call()), /done/);
    state.isModern = true;
    assert.match(JSON.stringify(await call()), /done/);
    for (const { response } of state.streams) response.destroy();
    await waitUntil(() => upstreamStatuses(gateway.core)[0]?.state === 'ready');
  });

  // L-011
  test('is listed anew when the streams of its sessions have ended', TIMEOUT, async () => {
    const { state, answers } = replacedServer();
    await using upstream = await legacyUpstream({ answers });
    await using gateway = await testCore({ up: { ...upstream.config, era: 'auto' } });
    const client = await gateway.connect();
    assert.match(JSON.stringify(await client.result('tools/list')), /up__old/);
    await waitUntil(() => state.streams.length === 1);
    state.isModern = true;
    state.streams[0]?.response.destroy();
    await client.waitForMessage('notifications/tools/list_changed');
    assert.match(JSON.stringify(await client.result('tools/list')), /up__new/);
  });
});
