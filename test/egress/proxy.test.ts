/** Tests requests to issuers through a proxy: the tunnel ends at the issuer, and the proxy reads nothing but its name. */
import assert from 'node:assert/strict';
import { createServer } from 'node:https';
import { test } from 'node:test';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import type { EgressConfig } from '../../src/config/values/credentials.ts';
import { Egress } from '../../src/egress/egress.ts';
import { type Certificate, makeCertificate } from '../support/certificate.ts';
import { startConnectProxy } from '../support/connect-proxy.ts';
import { startTcpSpy } from '../support/tcp-spy.ts';
import { ANY_ADDRESS, startTinyproxy, TINYPROXY } from '../support/tinyproxy.ts';
import { listenLocally } from '../support/local-port.ts';

const LIMIT = { timeout: 120_000 };
const NAME = 'issuer.example';
const SECRET = 'the-secret-of-the-gateway';
const POST = {
  method: 'POST',
  headers: { authorization: `Bearer ${SECRET}` },
  body: `client_secret=${SECRET}`,
} as const;

/** Lets all clients of this process trust a certificate. */
function trust({ cert }: Certificate): void {
  setDefaultCACertificates([...getCACertificates('default'), cert]);
}

/** An issuer that answers with what it was sent. */
async function startIssuer({ cert, key }: Certificate) {
  const requests: string[] = [];
  const server = createServer({ cert, key }, (request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (chunk) => (body += String(chunk)));
    request.on('end', () => {
      requests.push(`${request.url} ${request.headers.host} ${request.headers.authorization} ${body}`);
      response.end('issued');
    });
  });
  const port = await listenLocally(server);
  return {
    port,
    requests,
    [Symbol.asyncDispose]: async () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

const settings = (port: number, more: Partial<EgressConfig> = {}): EgressConfig => ({
  proxy: `http://ann:proxy-password@127.0.0.1:${port}`,
  noProxy: [],
  privateNetworks: [],
  ...more,
});

for (const source of ['configured', 'discovered'] as const) {
  test(`a ${source} issuer is asked through the proxy, which reads only its name`, LIMIT, async () => {
    await using certificate = await makeCertificate(NAME);
    trust(certificate);
    await using issuer = await startIssuer(certificate);
    await using proxy = await startConnectProxy();
    // The name is resolved by the proxy alone.
    await using egress = new Egress(settings(proxy.port), () => assert.fail('resolved here'));
    const url = `https://${NAME}:${issuer.port}/token?a=b`;
    const response = await egress.fetch(url, source, POST);
    assert.equal(await response.text(), 'issued');
    assert.deepEqual(issuer.requests, [`/token?a=b ${NAME}:${issuer.port} Bearer ${SECRET} client_secret=${SECRET}`]);
    const [head = ''] = proxy.heads;
    assert.equal(proxy.heads.length, 1);
    assert.match(head, new RegExp(`^CONNECT ${NAME}:${issuer.port} HTTP/1.1\r\n`));
    const password = Buffer.from('ann:proxy-password').toString('base64');
    assert.ok(head.includes(password), 'the proxy asks for its own password');
    for (const hidden of [SECRET, '/token', 'authorization: Bearer'])
      assert.ok(!`${head}${proxy.tunnelled()}`.includes(hidden), `the proxy reads ${hidden}`);
    assert.ok(!JSON.stringify(issuer.requests).includes(password), 'the issuer gets the password of the proxy');
  });
}

test('a certificate of another name or CA ends the request before it is sent', LIMIT, async () => {
  await using other = await makeCertificate('other.example');
  trust(other);
  await using unknown = await makeCertificate(NAME);
  for (const [certificate, error] of [
    [other, /ERR_TLS_CERT_ALTNAME_INVALID|does not match certificate/],
    [unknown, /self-signed certificate/],
  ] as const) {
    await using issuer = await startIssuer(certificate);
    await using proxy = await startConnectProxy();
    await using egress = new Egress(settings(proxy.port));
    await assert.rejects(egress.fetch(`https://${NAME}:${issuer.port}/`, 'configured', POST), error);
    assert.equal(proxy.heads.length, 1);
    assert.deepEqual(issuer.requests, []);
  }
});

test('noProxy hosts and this machine are connected to directly', LIMIT, async () => {
  await using certificate = await makeCertificate(NAME);
  trust(certificate);
  await using issuer = await startIssuer(certificate);
  await using proxy = await startConnectProxy();
  const config = settings(proxy.port, { noProxy: ['.example'], privateNetworks: ['127.0.0.0/8'] });
  await using egress = new Egress(config, async () => [{ address: '127.0.0.1', family: 4 }]);
  for (const [host, source] of [
    [NAME, 'configured'],
    [NAME, 'discovered'],
    ['127.0.0.1', 'configured'],
  ] as const)
    assert.equal((await egress.fetch(`https://${host}:${issuer.port}/`, source)).status, 200);
  assert.deepEqual(proxy.heads, []);
});

// SEC-31
test('a proxy is not asked for addresses that no URL may lead to', LIMIT, async () => {
  await using spy = await startTcpSpy();
  await using proxy = await startConnectProxy(() => ({ port: spy.port }));
  await using egress = new Egress(settings(proxy.port, { privateNetworks: ['10.0.0.0/8'] }));
  const hosts = ['192.168.1.1', '169.254.169.254', '[fd00::1]', '[::ffff:192.168.1.1]', '0xc0a80101', 'localhost'];
  for (const host of [...hosts, 'metadata.google.internal'])
    await assert.rejects(egress.fetch(`https://${host}/`, 'discovered', POST), /is not connected to/, host);
  for (const host of ['169.254.169.254', '[fd00:ec2::254]', 'Metadata.Google.Internal.'])
    await assert.rejects(egress.fetch(`http://${host}/`, 'configured', POST), /cloud metadata$/, host);
  assert.deepEqual([proxy.heads, spy.connections], [[], 0]);
  await assert.rejects(egress.fetch('https://10.0.0.1/', 'discovered', POST));
  assert.equal(proxy.heads.length, 1, 'an allowed network');
});

test('a proxy that refuses is an error without its password, and nothing else is tried', LIMIT, async () => {
  await using certificate = await makeCertificate(NAME);
  await using issuer = await startIssuer(certificate);
  await using proxy = await startConnectProxy(() => ({ text: 'HTTP/1.1 407 Proxy Authentication Required\r\n\r\n' }));
  await using egress = new Egress(settings(proxy.port));
  await assert.rejects(egress.fetch(`https://${NAME}:${issuer.port}/`, 'configured', POST), (thrown: unknown) => {
    assert.match(String(thrown), /the proxy refused a tunnel \(HTTP 407\)/);
    assert.ok(!String(thrown).includes('proxy-password'));
    return true;
  });
  assert.deepEqual(issuer.requests, []);
});

const skip = 'missing' in TINYPROXY ? { skip: TINYPROXY.missing } : {};

test('tinyproxy, a proxy by others, opens tunnels for its password', { ...LIMIT, ...skip }, async () => {
  await using certificate = await makeCertificate(ANY_ADDRESS);
  trust(certificate);
  await using issuer = await startIssuer(certificate);
  await using proxy = await startTinyproxy();
  const config = (url: string): EgressConfig => ({ proxy: url, noProxy: [], privateNetworks: [] });
  await using egress = new Egress(config(proxy.url));
  const url = `https://${ANY_ADDRESS}:${issuer.port}/token`;
  assert.equal(await (await egress.fetch(url, 'configured', POST)).text(), 'issued');
  await using wrong = new Egress(config(proxy.wrongUrl));
  await assert.rejects(wrong.fetch(url, 'configured', POST), /the proxy refused a tunnel \(HTTP 40[17]\)/);
  assert.equal(issuer.requests.length, 1);
});
