import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { copyFile } from 'node:fs/promises';
import { connect as connectTcp } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect, createServer, getCACertificates, setDefaultCACertificates } from 'node:tls';
import { z } from 'zod';
import { type Certificate, makeCertificate } from '../support/certificate.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { connectSdk1, connectSdk2 } from '../support/sdk-client.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const LABEL = join(import.meta.dirname, '../fixtures/servers/label-stdio.ts');
const LABELLED = { command: process.execPath, args: [LABEL], env: { LABEL: 'reached' } };
const TEXT = z.object({ content: z.tuple([z.object({ text: z.string() })]) });

/** Lets all clients of this process trust a certificate. */
function trust({ cert }: Certificate): void {
  setDefaultCACertificates([...getCACertificates('default'), cert]);
}

function tlsOf({ certFile, keyFile }: Pick<Certificate, 'certFile' | 'keyFile'>) {
  return { cert: `\${file:${certFile}}`, key: `\${file:${keyFile}}` };
}

/** Returns the serial number of the certificate that a gateway presents to a new connection. */
async function serialOf({ url }: RunningGateway): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port: Number(new URL(url).port), rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  const { serialNumber } = socket.getPeerCertificate();
  socket.destroy();
  return serialNumber;
}

const serialIn = (pem: string): string => new X509Certificate(pem).serialNumber;

/** Opens a port that speaks TLS to clients with a certificate of `ca`, and leads to a plain port of this machine. */
async function terminateTls(server: Certificate, ca: string, target: string) {
  const relay = createServer({ cert: server.cert, key: server.key, ca, requestCert: true }, (inner) => {
    const outer = connectTcp(Number(new URL(target).port), '127.0.0.1');
    for (const socket of [inner, outer]) {
      socket.on('error', () => undefined);
      socket.on('close', () => (inner.destroy(), outer.destroy()));
    }
    inner.pipe(outer).pipe(inner);
  });
  relay.on('tlsClientError', () => undefined);
  relay.listen(0, '127.0.0.1');
  await once(relay, 'listening');
  const address = relay.address();
  const port = typeof address === 'object' ? address?.port : undefined;
  return {
    url: `https://127.0.0.1:${port}/mcp`,
    [Symbol.asyncDispose]: async () => {
      relay.close();
    },
  };
}

test('the gateway speaks HTTPS with its own certificate to clients of both eras', TIMEOUT, async () => {
  await using certificate = await makeCertificate();
  trust(certificate);
  await using gateway = await startGateway({ mcpServers: { up: LABELLED }, gateway: { tls: tlsOf(certificate) } });
  assert.match(gateway.url, /^https:/);
  await using legacy = await connectSdk1(gateway.endpoint());
  await using modern = await connectSdk2(gateway.endpoint(), { mode: { pin: '2026-07-28' } });
  for (const { client } of [legacy, modern]) {
    const { content } = TEXT.parse(await client.callTool({ name: 'up__pid', arguments: {} }));
    assert.match(content[0].text, /reached/);
  }
  const plain = new URL(gateway.endpoint());
  plain.protocol = 'http:';
  await assert.rejects(fetch(plain, { method: 'POST' }));
});

test('a renewed certificate serves new connections, and open ones stay', TIMEOUT, async () => {
  await using first = await makeCertificate('first');
  await using second = await makeCertificate('second');
  await using foreign = await makeCertificate('foreign');
  trust(first);
  await using gateway = await startGateway({ mcpServers: { up: LABELLED }, gateway: { tls: tlsOf(first) } });
  await using sdk = await connectSdk1(gateway.endpoint());
  const before = serialIn(first.cert);
  assert.equal(await serialOf(gateway), before);

  // For a moment the key belongs to another certificate.
  await copyFile(foreign.keyFile, first.keyFile);
  await gateway.waitForLog((line) => (line.includes('the key does not belong to the certificate') ? true : undefined));
  assert.equal(await serialOf(gateway), before);
  await copyFile(second.certFile, first.certFile);
  await copyFile(second.keyFile, first.keyFile);
  await waitUntil(async () => (await serialOf(gateway)) === serialIn(second.cert));
  const { content } = TEXT.parse(await sdk.client.callTool({ name: 'up__pid', arguments: {} }));
  assert.match(content[0].text, /reached/);
});

test('an upstream with a CA of its own that asks for a client certificate is used', TIMEOUT, async () => {
  await using server = await makeCertificate('server');
  await using client = await makeCertificate('client');
  await using behind = await startGateway({ mcpServers: { up: LABELLED } });
  await using terminator = await terminateTls(server, client.cert, behind.url);
  const { url } = terminator;
  const ca = `\${file:${server.certFile}}`;
  await using gateway = await startGateway({
    mcpServers: {
      known: { url, tls: { ca, ...tlsOf(client) } },
      nameless: { url, tls: { ca } },
      untrusting: { url },
    },
  });
  await using sdk = await connectSdk1(gateway.endpoint());
  const call = (id: string) => sdk.client.callTool({ name: `${id}__up__pid`, arguments: {} });
  assert.match(TEXT.parse(await call('known')).content[0].text, /reached/);
  const failure = (id: string) => call(id).then(String, String);
  // With TLS 1.3 a server refuses after the handshake, and Node hears only that the connection is closed.
  await waitUntil(async () => /broke the connection/.test(await failure('nameless')));
  await waitUntil(async () => /self-signed certificate|DEPTH_ZERO_SELF_SIGNED_CERT/.test(await failure('untrusting')));
});
