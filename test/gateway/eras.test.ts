import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { stream } from '../fixtures/servers/http-harness.ts';
import { askingSseServer } from '../fixtures/servers/sse-asks.ts';
import { initialize, post, rpc } from '../downstream/client.ts';
import { legacyUpstream, modernUpstream } from '../support/http-upstream.ts';
import { answerOf, modernPost, modernResult } from '../support/modern-wire.ts';
import { testCore } from '../support/core.ts';
import { upstreamStatuses } from '../../src/compose/upstream-status.ts';
import { openGateway } from '../support/open-gateway.ts';

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
