import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import { createServer } from 'node:tls';
import { initialize, post, rpc } from '../downstream/client.ts';
import { makeCertificate } from '../support/certificate.ts';
import { type ConnectProxy, startConnectProxy } from '../support/connect-proxy.ts';
import { startGateway } from '../support/gateway.ts';
import { listenLocally } from '../support/local-port.ts';
import { type Collector, startCollector } from '../support/otlp-collector.ts';

const NAME = 'collector.example';
const TIMEOUT = { timeout: 120_000 };

test('traces go through the proxy of the config, also to https receivers', TIMEOUT, async () => {
  await using certificate = await makeCertificate(NAME);
  const { cert, key, certFile } = certificate;
  await using cleanup = new AsyncDisposableStack();
  const collector = cleanup.use(await startCollector());
  const plainPort = Number(new URL(collector.endpoint).port);
  const front = createServer({ cert, key }, (client) => {
    const behind = connect(plainPort, '127.0.0.1');
    for (const socket of [client, behind]) socket.on('error', () => undefined);
    client.pipe(behind).pipe(client);
  });
  const tlsPort = await listenLocally(front);
  cleanup.defer(() => void front.close());
  for (const [scheme, port] of [
    ['http', plainPort],
    ['https', tlsPort],
  ] as const) {
    await using proxy = await startConnectProxy(() => ({ port }));
    const tracing = { endpoint: `${scheme}://${NAME}:4318` };
    const gateway = { tracing, egress: { proxy: `http://127.0.0.1:${proxy.port}` } };
    await using running = await startGateway(
      { mcpServers: {}, gateway },
      { env: { OTEL_EXPORTER_OTLP_CERTIFICATE: certFile } },
    );
    const before = collector.spans.items.length;
    const session = await initialize(running.endpoint());
    await post(running.endpoint(), rpc(1, 'tools/list'), session);
    await running.stop();
    const names = collector.spans.items.slice(before).map(({ name }) => name);
    assert.ok(names.includes('tools/list'), `${scheme}: ${names.join()} ${proxy.heads.join()}`);
    assert.match(proxy.heads[0] ?? '', /^CONNECT collector\.example:4318 /);
    const isReadable = proxy.tunnelled().includes('POST /v1/traces');
    assert.equal(isReadable, scheme === 'http', 'a proxy reads nothing of https');
  }
});

test('traces to an http receiver need no certificate that can be read', TIMEOUT, async () => {
  await using collector = await startCollector();
  await using proxy = await startConnectProxy();
  const names = await exportedThrough(proxy, collector, { OTEL_EXPORTER_OTLP_CERTIFICATE: '/none/ca.pem' });
  assert.ok(names.includes('tools/list'), names.join());
});

test('an export that the proxy refuses once is tried again', TIMEOUT, async () => {
  await using collector = await startCollector();
  let count = 0;
  const port = Number(new URL(collector.endpoint).port);
  await using proxy = await startConnectProxy(() =>
    count++ === 0 ? { text: 'HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n' } : { port },
  );
  const names = await exportedThrough(proxy, collector);
  assert.ok(names.includes('tools/list'), names.join());
});

/** Returns the names of the spans of one request that an http receiver behind a proxy gets. */
async function exportedThrough(
  { port }: ConnectProxy,
  collector: Collector,
  env: Readonly<Record<string, string>> = {},
): Promise<readonly string[]> {
  const tracing = { endpoint: collector.endpoint.replace('127.0.0.1', NAME) };
  const gateway = { tracing, egress: { proxy: `http://127.0.0.1:${port}` } };
  await using running = await startGateway({ mcpServers: {}, gateway }, { env });
  await post(running.endpoint(), rpc(1, 'tools/list'), await initialize(running.endpoint()));
  await running.stop();
  return collector.spans.items.map(({ name }) => name);
}
