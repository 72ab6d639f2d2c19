import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { createEndpoints, type EndpointsParts } from '../../src/downstream/http/app.ts';
import { createEdgeMemory } from '../../src/downstream/memory/edge-memory.ts';
import { MemoryEventLogs } from '../../src/downstream/streams/memory-event-log.ts';
import { GatewayError } from '../../src/errors.ts';
import { forwardedRequests } from '../../src/replicas/forwarded-requests.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import { post, rpc } from '../downstream/client.ts';
import { configWith } from '../downstream/edge.ts';
import { HonestFront } from '../downstream/honest-front.ts';
import { openPair } from './replica-pair.ts';

const TIMEOUT = { timeout: 120_000 };

/** Two replicas, of which one passes requests on to the endpoints of the other. */
async function forwarding(front: HonestFront, own: Partial<EndpointsParts> = {}) {
  const config = configWith({});
  const [log, metrics] = [pino({ level: 'silent' }), createMetrics('0')];
  const memory = createEdgeMemory(config, metrics);
  const eventLogs = new MemoryEventLogs({ events: 10, bytes: 10_000 }, memory.events);
  const endpoints = createEndpoints({ front, config, log, metrics, memory, eventLogs, ...own });
  return await openPair(forwardedRequests({ front, endpoints, log, bodyBytes: () => 1_000 }), '');
}

test('a forwarded request that needs a Redis out of reach gets the error of that', TIMEOUT, async () => {
  const front = new HonestFront();
  front.ownersFailure = new GatewayError('store-unavailable');
  await using pair = await forwarding(front);
  const got = await post(pair.url, rpc(1, 'ping'), 'session-1');
  assert.equal(got.status, 503);
  const { data } = JSON.parse(got.text).error;
  assert.deepEqual(data, { code: 'store-unavailable', executed: 'no', retryable: true });
});

test('a forwarded request whose credentials are over gets the challenge', TIMEOUT, async () => {
  const challenge = 'Bearer error="invalid_token"';
  await using pair = await forwarding(new HonestFront(), { challengeIfOver: () => challenge });
  const { status, headers } = await post(pair.url, rpc(1, 'ping'));
  assert.deepEqual([status, headers['www-authenticate']], [401, challenge]);
});
