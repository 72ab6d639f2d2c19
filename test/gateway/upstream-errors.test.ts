import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testCore, toolCall } from '../support/core.ts';
import { legacyUpstream, refuseWith } from '../support/http-upstream.ts';
import { ModernClient } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOL = { name: 't', inputSchema: { type: 'object' } };

/** A server of 2025-11-25 that answers every call with this error. */
async function failing(error: object) {
  return await legacyUpstream({ tools: [TOOL], answers: { 'tools/call': refuseWith(error) } });
}

for (const code of [-32_020, -32_021, -32_022, -32_050, -32_099]) {
  //
  test(`${code} of a legacy upstream reaches a modern client as an internal error`, TIMEOUT, async () => {
    await using up = await failing({ code, message: 'A quota of mine', data: { retryAfter: 7 } });
    await using gateway = await testCore({ up: up.config });
    assert.deepEqual(await new ModernClient(gateway).error('tools/call', toolCall('up__t')), {
      code: -32_603,
      message: 'A quota of mine',
      data: { retryAfter: 7, upstreamCode: code },
    });
    const { answer } = await (await gateway.connect()).request('tools/call', toolCall('up__t'));
    assert.equal(answer.kind === 'error' && answer.error.code, code);
  });
}

const PAGE = { mode: 'url', elicitationId: 'e', url: 'https://login.example.com/', message: 'Sign in' };
const PAGES = { code: -32_042, message: 'Sign in first', data: { elicitations: [PAGE] } };
const OPENS = { capabilities: { elicitation: { form: {}, url: {} } } };

for (const { name, client } of [
  { name: 'of 2024-11-05', client: { revision: '2024-11-05' } },
  { name: 'of 2025-06-18 that declares more than it can', client: { revision: '2025-06-18', ...OPENS } },
  { name: 'that cannot open pages', client: { capabilities: { elicitation: {} } } },
]) {
  //
  test(`a client ${name} reads the URL of an error −32042 as text`, TIMEOUT, async () => {
    await using up = await legacyUpstream({
      tools: [TOOL],
      prompts: [{ name: 'p' }],
      answers: { 'tools/call': refuseWith(PAGES), 'prompts/get': refuseWith(PAGES) },
    });
    await using gateway = await testCore({ up: up.config });
    const session = await gateway.connect(client);
    const text = 'Sign in first\nSign in: https://login.example.com/';
    const result = await session.result('tools/call', toolCall('up__t'));
    assert.deepEqual(result, { content: [{ type: 'text', text }], isError: true });
    const { answer } = await session.request('prompts/get', { name: 'up__p' });
    assert.deepEqual(answer, { kind: 'error', error: { code: -32_603, message: text } });
    const opening = await (await gateway.connect(OPENS)).request('tools/call', toolCall('up__t'));
    assert.equal(opening.answer.kind === 'error' && opening.answer.error.code, -32_042);
  });
}

//
test('codes beside those of 2026-07-28 stay as they are', TIMEOUT, async () => {
  for (const code of [-32_019, -32_100, -32_000]) {
    await using up = await failing({ code, message: 'no' });
    await using gateway = await testCore({ up: up.config });
    const error = await new ModernClient(gateway).error('tools/call', toolCall('up__t'));
    assert.deepEqual(error, { code, message: 'no' });
  }
});
