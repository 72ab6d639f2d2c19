import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { MODERN, modernEvents, modernPost } from '../support/modern-wire.ts';
import { openGateway } from '../support/open-gateway.ts';
import { initialize, messagesOf, post, rpc } from './client.ts';

const TIMEOUT = { timeout: 120_000 };
const SLOW = { command: process.execPath, args: [join(import.meta.dirname, '../fixtures/servers/slow-stdio.ts')] };

test('an endpoint of jsonAnswers answers long calls with JSON, another one with events', TIMEOUT, async () => {
  await using gateway = await openGateway({ s: SLOW }, { jsonAnswers: ['/mcp/s'] });
  for (const [path, name, isJson] of [
    ['/mcp', 's__wait', false],
    ['/mcp/s', 'wait', true],
  ] as const) {
    const url = gateway.url.replace(/\/mcp$/, path);
    const session = await initialize(url, '2025-06-18');
    const params = { name, arguments: {}, _meta: { progressToken: 'p' } };
    const legacy = await post(url, rpc(1, 'tools/call', params), session);
    const modern = await modernPost(url, 'tools/call', { name, arguments: {} }, { meta: { progressToken: 'p' } });
    for (const [revision, got] of [
      ['2025-06-18', legacy],
      [MODERN, modern],
    ] as const) {
      const type = isJson ? 'application/json' : 'text/event-stream';
      assert.equal(got.headers['content-type'], type, `${path} ${revision}`);
      assert.match(JSON.stringify(messagesOf(got).at(-1)), /"result".*waited/);
      assert.equal(messagesOf(got).length, isJson ? 1 : 2, got.text);
    }
  }
});

test('a client of an endpoint of jsonAnswers that accepts events alone gets events', TIMEOUT, async () => {
  await using gateway = await openGateway({ s: SLOW }, { jsonAnswers: ['/mcp'] });
  const got = await modernPost(gateway.url, 'tools/list', {}, { headers: { accept: 'text/event-stream' } });
  assert.equal(got.headers['content-type'], 'text/event-stream');
});

test('a subscription at an endpoint of jsonAnswers is a stream', TIMEOUT, async () => {
  await using gateway = await openGateway({ s: SLOW }, { jsonAnswers: ['/mcp'] });
  const stream = await modernEvents(gateway.url, 'subscriptions/listen', { notifications: { toolsListChanged: true } });
  await stream.until(({ messages }) => messages.length > 0);
  assert.match(String(stream.messages[0]?.method), /acknowledged$/);
  stream.close();
});
