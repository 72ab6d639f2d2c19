import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { modernEvents, modernResult } from '../../support/modern-wire.ts';
import { openGateway } from '../../support/open-gateway.ts';

const TIMEOUT = { timeout: 120_000 };
const PROBE = join(import.meta.dirname, '../../fixtures/servers/probe-stdio.ts');

const program = () => openGateway({ up: { command: process.execPath, args: [PROBE, 'modern'] } });

/** The messages that the program has received since its start, in order. */
async function receivedBy(url: string, tool: string): Promise<readonly string[]> {
  const { content } = await modernResult(url, 'tools/call', { name: `up__${tool}`, arguments: {} });
  const [{ text }]: [{ text: string }] = JSON.parse(JSON.stringify(content));
  return text.split(' ');
}

// T-042
test('a request of a modern program gets no response; calls are still answered', TIMEOUT, async () => {
  await using gateway = await program();
  await modernResult(gateway.url, 'tools/list');
  await receivedBy(gateway.url, 'asks');
  // The program sent its request before the answer, so a response would have arrived before the next call.
  const received = await receivedBy(gateway.url, 'received');
  assert.deepEqual(
    received.filter((method) => method === 'tools/call'),
    ['tools/call', 'tools/call'],
  );
  assert.ok(!received.includes('a'), received.join(' '));
  assert.ok(!received.includes('initialize') && !received.includes('notifications/initialized'));
});

// L-016 X-035
test('a crashed modern program is started and subscribed to again', TIMEOUT, async () => {
  await using gateway = await program();
  const { url } = gateway;
  const notifications = { toolsListChanged: true, resourceSubscriptions: ['up+file:///a'] };
  const events = await modernEvents(url, 'subscriptions/listen', { notifications }, { id: 1 });
  await events.until(({ messages }) => messages.length === 1);
  assert.match(JSON.stringify(events.messages[0]), /up\+file:\/\/\/a/);
  await assert.rejects(receivedBy(url, 'crash'));
  // Changes may have been missed, so every one is reported.
  await events.until(({ messages }) => messages.some(({ method }) => method === 'notifications/resources/updated'));
  const received = await receivedBy(url, 'received');
  assert.ok(received.includes('subscriptions/listen'), received.join(' '));
  assert.deepEqual(received.filter((method) => method === 'tools/call').length, 1);
  events.close();
});
