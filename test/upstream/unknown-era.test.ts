import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { testCore } from '../support/core.ts';
import { legacyUpstream } from '../support/http-upstream.ts';
import { modernRequest } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };

const tool = (name: string) => ({ name, inputSchema: { type: 'object' } });

/** A server of 2025-11-25 with sessions, which has another tool for clients that can be asked. Calls are answered with their session. */
async function upstreamWithSessions() {
  const capable = new Set<unknown>();
  return await legacyUpstream({
    answers: {
      initialize: ({ params, response }) => {
        const id = randomUUID();
        if (JSON.stringify(params['capabilities']).includes('elicitation')) capable.add(id);
        response.setHeader('mcp-session-id', id);
        const serverInfo = { name: 'scripted', version: '1' };
        return { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo };
      },
      'tools/list': ({ headers }) => {
        const asks = capable.has(headers['mcp-session-id']) ? [tool('ask')] : [];
        return { tools: [tool('say'), ...asks] };
      },
    },
  });
}

test('the first clients of a server of unknown era get lists for their capabilities', TIMEOUT, async () => {
  await using upstream = await upstreamWithSessions();
  await using gateway = await testCore({ up: { ...upstream.config, era: 'auto' } });
  const lists = [{ elicitation: {} }, {}, { roots: {} }].map(async (capabilities) => {
    const { result } = await modernRequest(gateway, 'tools/list', {}, { capabilities }).reply;
    return JSON.stringify(result?.['tools']).match(/up__[a-z]+/g);
  });
  assert.deepEqual(await Promise.all(lists), [['up__say', 'up__ask'], ['up__say'], ['up__say']]);
});
