/** Tests upstreams behind a proxy: everything for them goes through tunnels, in which TLS ends at the upstream. */
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { createServer } from 'node:tls';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { type Certificate, makeCertificate } from '../support/certificate.ts';
import { startConnectProxy } from '../support/connect-proxy.ts';
import { modernPost } from '../support/modern-wire.ts';
import { openGateway } from '../support/open-gateway.ts';
import { ANY_ADDRESS, startTinyproxy, TINYPROXY } from '../support/tinyproxy.ts';
import { startTcpSpy } from '../support/tcp-spy.ts';
import { waitUntil } from '../support/wait-until.ts';
import { listenLocally } from '../support/local-port.ts';

const LIMIT = { timeout: 120_000 };
const LABEL = join(import.meta.dirname, '../fixtures/servers/label-stdio.ts');
const NAME = 'upstream.example';
const SECRET = 'the-credential-of-the-gateway';
const TOOL = { name: 'pid', arguments: {} };

/** A gateway over stdio as the upstream, with TLS in front of it. */
async function startUpstream({ cert, key }: Certificate) {
  const label = { command: process.execPath, args: [LABEL], prefix: '' };
  const behind = await openGateway({ label }, { operator: false });
  const seen = { connections: 0, bytes: '' };
  const relay = createServer({ cert, key }, (inner) => {
    seen.connections++;
    inner.on('data', (chunk: Buffer) => (seen.bytes += chunk.toString('latin1')));
    const outer = connect(Number(new URL(behind.url).port), '127.0.0.1');
    for (const socket of [inner, outer]) {
      socket.on('error', () => undefined);
      socket.on('close', () => (inner.destroy(), outer.destroy()));
    }
    // The gateway behind it knows itself by its address only.
    inner.on('data', (chunk: Buffer) => {
      const own = `host: 127.0.0.1:${new URL(behind.url).port}`;
      outer.write(chunk.toString('latin1').replace(/^host: \S+/im, own), 'latin1');
    });
    outer.pipe(inner);
  });
  relay.on('tlsClientError', () => undefined);
  const port = await listenLocally(relay);
  return {
    seen,
    port,
    [Symbol.asyncDispose]: async () => {
      relay.close();
      await behind[Symbol.asyncDispose]();
    },
  };
}

const entry = (url: string, { certFile }: Certificate, more: object = {}) => ({
  url,
  prefix: '',
  tls: { ca: `\${file:${certFile}}` },
  headers: { Authorization: `Bearer ${SECRET}` },
  ...more,
});

async function call(url: string): Promise<string> {
  const session = await initialize(url);
  const old = await post(url, rpc(1, 'tools/call', TOOL), session);
  const modern = await modernPost(url, 'tools/call', TOOL);
  return JSON.stringify([...messagesOf(old), ...messagesOf(modern)]);
}

for (const transport of [{ era: 'legacy' }, { era: 'modern' }, { type: 'sse' }]) {
  const [name = ''] = Object.values(transport);
  test(`an https upstream (${name}) is reached by a proxy that knows only its name`, LIMIT, async () => {
    await using certificate = await makeCertificate(NAME);
    await using upstream = await startUpstream(certificate);
    await using proxy = await startConnectProxy();
    const path = name === 'sse' ? 'sse' : 'mcp';
    const up = entry(`https://${NAME}:${upstream.port}/${path}`, certificate, transport);
    const egress = { proxy: `http://linkspan:tunnel-password@127.0.0.1:${proxy.port}` };
    await using gateway = await openGateway({ up }, { egress });
    const answers = await call(gateway.url);
    assert.equal(answers.match(/"text":"\d+ "/g)?.length, 2, answers);
    assert.ok(proxy.heads.length > 0);
    for (const head of proxy.heads) assert.ok(head.startsWith(`CONNECT ${NAME}:${upstream.port} HTTP/1.1\r\n`), head);
    const read = `${proxy.heads.join('\n')}${proxy.tunnelled()}`;
    for (const hidden of [SECRET, `/${path}`, 'tools/call'])
      assert.ok(!read.includes(hidden), `the proxy reads ${hidden}`);
    assert.ok(upstream.seen.bytes.includes(SECRET));
    assert.doesNotMatch(upstream.seen.bytes, /proxy-authorization/i);
    assert.ok(!gateway.lines.join('').includes('tunnel-password'), 'the password of the proxy is in the log');
  });
}

test('noProxy upstreams, plain ones and this machine are reached directly', LIMIT, async () => {
  await using certificate = await makeCertificate(ANY_ADDRESS);
  await using upstream = await startUpstream(certificate);
  await using proxy = await startConnectProxy();
  await using spy = await startTcpSpy();
  const egress = { proxy: `http://127.0.0.1:${proxy.port}`, noProxy: `example.org, ${ANY_ADDRESS}:${upstream.port}` };
  const tls = (host: string) => entry(`https://${host}:${upstream.port}/mcp`, certificate, { prefix: undefined });
  const plain = { url: `http://${ANY_ADDRESS}:${spy.port}/mcp`, start: 'eager' };
  await using gateway = await openGateway({ a: tls(ANY_ADDRESS), b: tls('127.0.0.1'), plain }, { egress });
  const session = await initialize(gateway.url);
  for (const name of ['a__pid', 'b__pid']) {
    const { text } = await post(gateway.url, rpc(1, 'tools/call', { ...TOOL, name }), session);
    assert.match(text, /"text":"\d+ "/);
  }
  await waitUntil(() => spy.connections > 0);
  assert.deepEqual(proxy.heads, []);
});

test('an upstream is not spoken to if its certificate has another name or CA', LIMIT, async () => {
  await using other = await makeCertificate('other.example');
  await using known = await makeCertificate(NAME);
  for (const [ca, reason] of [
    [other, /ERR_TLS_CERT_ALTNAME_INVALID/],
    [known, /DEPTH_ZERO_SELF_SIGNED_CERT/],
  ] as const) {
    await using upstream = await startUpstream(other);
    await using proxy = await startConnectProxy();
    const up = entry(`https://${NAME}:${upstream.port}/mcp`, ca);
    await using gateway = await openGateway({ up }, { egress: { proxy: `http://127.0.0.1:${proxy.port}` } });
    await waitUntil(async () => reason.test(await call(gateway.url)));
    assert.equal(upstream.seen.bytes, '');
  }
});

test('a proxy that refuses is the reason of the failure, and nothing else is tried', LIMIT, async () => {
  await using certificate = await makeCertificate(ANY_ADDRESS);
  await using upstream = await startUpstream(certificate);
  await using proxy = await startConnectProxy(() => ({ text: 'HTTP/1.1 403 Forbidden\r\n\r\n' }));
  const up = entry(`https://${ANY_ADDRESS}:${upstream.port}/mcp`, certificate);
  await using gateway = await openGateway({ up }, { egress: { proxy: `http://127.0.0.1:${proxy.port}` } });
  await waitUntil(async () => /cannot be reached through the proxy of the gateway/.test(await call(gateway.url)));
  assert.equal(upstream.seen.connections, 0);
});

const skip = 'missing' in TINYPROXY ? { skip: TINYPROXY.missing } : {};

test('tinyproxy, a proxy by others, leads to an upstream for its password', { ...LIMIT, ...skip }, async () => {
  await using certificate = await makeCertificate(ANY_ADDRESS);
  await using upstream = await startUpstream(certificate);
  await using proxy = await startTinyproxy();
  const up = entry(`https://${ANY_ADDRESS}:${upstream.port}/mcp`, certificate);
  await using gateway = await openGateway({ up }, { egress: { proxy: proxy.url } });
  assert.match(await call(gateway.url), /"text":"\d+ "/);
  const before = upstream.seen.connections;
  await using refused = await openGateway({ up }, { egress: { proxy: proxy.wrongUrl } });
  await waitUntil(async () => /cannot be reached through the proxy/.test(await call(refused.url)));
  assert.equal(upstream.seen.connections, before);
});
