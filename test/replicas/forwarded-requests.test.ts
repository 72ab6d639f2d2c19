import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { createEndpoints } from '../../src/downstream/http/app.ts';
import { createEdgeMemory } from '../../src/downstream/memory/edge-memory.ts';
import { MemoryEventLogs } from '../../src/downstream/streams/memory-event-log.ts';
import { GatewayError } from '../../src/errors.ts';
import { forwardedRequests } from '../../src/replicas/forwarded-requests.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import { post, rpc } from '../downstream/client.ts';
import { configWith } from '../downstream/edge.ts';
import { HonestFront } from '../downstream/honest-front.ts';
import { openPair } from './replica-pair.ts';

test('a forwarded request that needs a Redis out of reach gets the error of that', { timeout: 120_000 }, async () => {
  const front = new HonestFront();
  front.ownersFailure = new GatewayError('store-unavailable');
  const config = configWith({});
  const [log, metrics] = [pino({ level: 'silent' }), createMetrics('0')];
  const memory = createEdgeMemory(config, metrics);
  const eventLogs = new MemoryEventLogs({ events: 10, bytes: 10_000 }, memory.events);
  const endpoints = createEndpoints({ front, config, log, metrics, memory, eventLogs });
  await using pair = await openPair(forwardedRequests({ front, endpoints, log, bodyBytes: () => 1_000 }), '');
  const got = await post(pair.url, rpc(1, 'ping'), 'session-1');
  assert.equal(got.status, 503);
  const { data } = JSON.parse(got.text).error;
  assert.deepEqual(data, { code: 'store-unavailable', executed: 'no', retryable: true });
});
