import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { startGateway } from '../support/gateway.ts';
import { modernUpstream } from '../support/http-upstream.ts';
import { marker } from '../support/leftovers.ts';
import { modernResult, modernText } from '../support/modern-wire.ts';
import { startCollector } from '../support/otlp-collector.ts';
import { MAIN } from '../support/program.ts';

const TIMEOUT = { timeout: 120_000 };
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SCRIPT = {
  tools: [{ name: 'act', inputSchema: { type: 'object' } }],
  answers: { 'tools/call': () => ({ resultType: 'complete', content: [] }) },
};

test('OTEL_EXPORTER_OTLP_ENDPOINT alone turns tracing on, with names and headers', TIMEOUT, async () => {
  await using collector = await startCollector();
  await using up = await modernUpstream(SCRIPT);
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint,
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20of-the-collector',
    OTEL_SERVICE_NAME: 'gateway-of-the-test',
  };
  await using gateway = await startGateway({ mcpServers: { up: { url: up.url } } }, { env });
  await modernResult(gateway.endpoint(), 'tools/call', { name: 'up__act' });
  await gateway.stop();
  const span = collector.spans.items.find(({ name }) => name === 'tools/call up__act');
  assert.equal(span?.resource['service.name'], 'gateway-of-the-test');
  const [first] = collector.requests;
  assert.deepEqual([first?.path, first?.headers.authorization], ['/v1/traces', 'Bearer of-the-collector']);
});

test('a gateway whose collector never answers stops all the same', TIMEOUT, async () => {
  const silent = createServer();
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const address = silent.address();
  assert.ok(address !== null && typeof address !== 'string');
  try {
    await using up = await modernUpstream(SCRIPT);
    const tracing = { endpoint: `http://127.0.0.1:${address.port}` };
    await using gateway = await startGateway({ mcpServers: { up: { url: up.url } }, gateway: { tracing } });
    await modernResult(gateway.endpoint(), 'tools/call', { name: 'up__act' });
    // Rejects if the gateway does not end in bounded time.
    await gateway.stop();
    assert.deepEqual(await gateway.ended, { code: 0, signal: null });
  } finally {
    silent.close();
  }
});

test('a client over stdio is traced by its _meta, and its spans name the transport', TIMEOUT, async () => {
  await using collector = await startCollector();
  await using up = await modernUpstream(SCRIPT);
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-tracing-'));
  try {
    const config = join(dir, 'config.json');
    const gateway = { stateDir: join(dir, 'state'), tracing: { endpoint: collector.endpoint } };
    await writeFile(config, JSON.stringify({ mcpServers: { up: { url: up.url } }, gateway }));
    const program = spawn(process.execPath, [MAIN, 'stdio', '--config', config], {
      stdio: ['pipe', 'pipe', 'ignore'],
      env: { ...process.env, ...marker() },
    });
    const meta = { traceparent: `00-${TRACE}-00f067aa0ba902b7-01` };
    program.stdin.end(`${modernText('tools/call', { name: 'up__act' }, { meta })}\n`);
    program.stdout.resume();
    await once(program, 'exit');
    const span = collector.spans.items.find(({ name }) => name === 'tools/call up__act');
    assert.deepEqual([span?.traceId, span?.attributes['network.transport']], [TRACE, 'pipe']);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
