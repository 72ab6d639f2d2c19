import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { modernUpstream } from '../support/http-upstream.ts';
import { modernResult } from '../support/modern-wire.ts';
import { startCollector } from '../support/otlp-collector.ts';
import { askEachWorker, metricOf } from '../support/workers.ts';

const OPTIONS = { timeout: 120_000 };
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PROGRAM = join(import.meta.dirname, '../fixtures/servers/pid-stdio.ts');
const STOP_MS = 60_000;
const ROUNDS = 4;
const SCRIPT = {
  tools: [{ name: 'act', inputSchema: { type: 'object' } }],
  answers: { 'tools/call': () => ({ resultType: 'complete', content: [] }) },
};

test('each worker exports its spans, and a call that crosses workers is one trace', OPTIONS, async () => {
  await using collector = await startCollector();
  await using up = await modernUpstream(SCRIPT);
  const gatewayFile = { workers: 2, tracing: { endpoint: collector.endpoint } };
  await using gateway = await startGateway({ mcpServers: { up: { url: up.url } }, gateway: gatewayFile });
  const session = await initialize(gateway.endpoint());
  const meta = { traceparent: `00-${TRACE}-00f067aa0ba902b7-01` };
  const call = rpc(1, 'tools/call', { name: 'up__act', arguments: {}, _meta: meta });
  const modern = { name: 'up__act', arguments: {} };
  let calls = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const ofSession = await askEachWorker(gateway, () => post(gateway.endpoint(), call, session));
    for (const { status } of ofSession) assert.equal(status, 200);
    const others = await askEachWorker(gateway, () => modernResult(gateway.endpoint(), 'tools/call', modern, { meta }));
    calls += ofSession.length + others.length;
  }
  const passedOn = await metricOf(gateway, /^linkspan_forwarded_requests_total\{outcome="answered"\}/);
  assert.ok(passedOn !== undefined && passedOn > 0);
  await gateway.stop(STOP_MS);
  const spans = collector.spans.items.filter(({ traceId }) => traceId === TRACE);
  const ofClients = spans.filter(({ name }) => name === 'tools/call up__act');
  const ofUpstream = spans.filter(({ name }) => name === 'tools/call act');
  assert.equal(ofClients.length, calls, 'a request has one span, at the worker that executes it');
  const ids = new Set(ofClients.map(({ spanId }) => spanId));
  assert.equal(ofUpstream.filter(({ parentId }) => ids.has(parentId)).length, calls, 'and one below it');
  const instances = new Set(ofClients.map(({ resource }) => resource['service.instance.id']));
  assert.equal(instances.size, 2, 'each worker is an instance of the service');
});

test('headers name the trace of a call that crosses workers, and prevent it', OPTIONS, async () => {
  await using collector = await startCollector();
  const pid = { command: process.execPath, args: [PROGRAM] };
  const gatewayFile = { workers: 2, tracing: { endpoint: collector.endpoint } };
  await using gateway = await startGateway({ mcpServers: { pid }, gateway: gatewayFile });
  const url = gateway.endpoint();
  const session = await initialize(url);
  const call = { name: 'pid__pid', arguments: {} };
  let calls = 0;
  for (const flags of ['01', '00', '01', '00']) {
    const headers = { traceparent: `00-${TRACE}-00f067aa0ba902b7-${flags}`, tracestate: 'a=b' };
    const send = () => post(url, rpc(++calls, 'tools/call', call), session, headers);
    for (const { status } of await askEachWorker(gateway, send)) assert.equal(status, 200);
    await askEachWorker(gateway, () => modernResult(url, 'tools/call', call, { headers, id: ++calls }));
  }
  const passedOn = await metricOf(gateway, /^linkspan_forwarded_requests_total\{outcome="answered"\}/);
  assert.equal(passedOn, calls / 2);
  await gateway.stop(STOP_MS);
  const spans = collector.spans.items.filter(({ name }) => name.startsWith('tools/call'));
  const ofUpstream = spans.filter(({ name }) => name === 'tools/call pid');
  assert.equal(ofUpstream.length, calls / 2);
  const ids = new Set(spans.filter(({ traceId }) => traceId === TRACE).map(({ spanId }) => spanId));
  assert.equal(ids.size, spans.length, 'no request begins a trace of its own');
  // One of two calls of a session and of two modern ones crosses workers. The modern ones have a span at each of both.
  const crossing = spans.filter(({ name, parentId }) => name === 'tools/call pid__pid' && ids.has(parentId));
  assert.equal(crossing.length, calls / 8);
});
