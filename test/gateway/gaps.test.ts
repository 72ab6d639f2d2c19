import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testCore } from '../support/core.ts';
import { stream } from '../fixtures/servers/http-harness.ts';
import { legacyUpstream, type Served, type ServerScript } from '../support/http-upstream.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOL = { name: 'act', inputSchema: { type: 'object' } };
const FILE = { uri: 'file:///a', name: 'a' };

for (const refusals of [0, 2]) {
  // M-015
  test(`changes during a gap of a stream with ${refusals} refusals reach clients`, TIMEOUT, async () => {
    const streams: Served[] = [];
    let begun = 0;
    let refused = refusals;
    const tools = [TOOL];
    const capabilities = { tools: { listChanged: true }, resources: { subscribe: true } };
    // It keeps no events, so a message for a session without a stream is lost.
    const answers: ServerScript['answers'] = {
      initialize: ({ response }) => {
        response.setHeader('mcp-session-id', `session-${++begun}`);
        return { protocolVersion: '2025-11-25', capabilities, serverInfo: { name: 'scripted', version: '1' } };
      },
      'resources/subscribe': () => ({}),
      '': (served) => {
        if (served.method !== 'GET') return {};
        if (refused++ < refusals) served.response.writeHead(503).end();
        else stream(served.response);
        streams.push(served);
        return undefined;
      },
    };
    await using upstream = await legacyUpstream({ tools, resources: [FILE], answers });
    await using gateway = await testCore({ up: upstream.config });
    const client = await gateway.connect();
    await client.result('tools/list');
    await client.result('resources/subscribe', { uri: 'up+file:///a' });
    // That of the client, and the one that has read the lists.
    await waitUntil(() => streams.length === 2);
    assert.deepEqual(client.listened, []);
    refused = 0;
    tools.push({ ...TOOL, name: 'new' });
    for (const { response } of streams) response.destroy();
    await client.waitForMessage('notifications/resources/updated');
    await client.waitForMessage('notifications/tools/list_changed');
    assert.match(JSON.stringify(await client.result('tools/list')), /up__new/);
  });
}
