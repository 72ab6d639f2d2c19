import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { json, serve } from '../fixtures/servers/http-harness.ts';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { openGateway } from '../support/open-gateway.ts';

const HELLO = {
  protocolVersion: '2025-11-25',
  capabilities: { tools: { listChanged: true } },
  serverInfo: { name: 'holds', version: '1' },
};

const RESULTS: ReadonlyMap<string | undefined, object> = new Map<string, object>([
  ['initialize', HELLO],
  ['tools/list', { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] }],
  ['tools/call', { content: [{ type: 'text', text: 'done' }] }],
]);

// N-50
test(
  'an upstream that withholds the headers of its GET stream serves several sessions',
  { timeout: 120_000 },
  async () => {
    const held: ServerResponse[] = [];
    await using server = await serve((request, response) => {
      const result = RESULTS.get(request.rpc);
      if (request.method === 'GET') held.push(response);
      else if (result !== undefined) {
        json(response, JSON.stringify({ jsonrpc: '2.0', id: request.id, result }), { 'Mcp-Session-Id': 's-1' });
      } else if (request.id !== undefined) {
        const error = { code: -32601, message: 'Method not found' };
        json(response, JSON.stringify({ jsonrpc: '2.0', id: request.id, error }));
      } else response.writeHead(202).end();
    });
    await using gateway = await openGateway({ holds: { url: server.url } });
    for (let session = 0; session < 3; session++) {
      const id = await initialize(gateway.url);
      const listed = await post(gateway.url, rpc(1, 'tools/list'), id);
      assert.match(listed.text, /holds__echo/);
      const called = await post(gateway.url, rpc(2, 'tools/call', { name: 'holds__echo', arguments: {} }), id);
      assert.deepEqual(messagesOf(called).at(-1)?.result, { content: [{ type: 'text', text: 'done' }] });
    }
    assert.ok(held.length >= 3);
    assert.ok(held.some((response) => !response.headersSent && !response.destroyed));
  },
);
