import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readRawHeaders } from '../../../src/downstream/admission/headers.ts';
import { allowedHostsOf, refuseSender, refuseTarget } from '../../../src/downstream/admission/origin.ts';
import { configWith } from '../edge.ts';

const LOOPBACK = configWith({
  listen: { host: '127.0.0.1', port: 3000 },
  publicUrl: 'https://mcp.example.com',
  allowedHosts: ['gateway.internal', '10.0.0.5', 'fd00::1'],
  allowedOrigins: ['https://app.example.com', 'http://Tools.example.com:8080'],
});
const WILDCARD = configWith({ listen: { host: '0.0.0.0', port: 3000 } });

const GOOD_HOSTS = [
  'localhost:3000',
  'localhost',
  'LocalHost:1',
  '127.0.0.1:3000',
  '127.0.0.1',
  '[::1]:3000',
  '[::1]',
  'mcp.example.com',
  'mcp.example.com:443',
  'gateway.internal:3000',
  '10.0.0.5:3000',
  '[fd00::1]:3000',
];

const BAD_HOSTS = [
  '',
  'evil.example',
  'localhost.',
  'localhost:',
  'localhost:123456',
  'localhost:80:80',
  'localhost.evil.example',
  'evil.example:3000',
  '127.0.0.1.evil.example',
  '127.0.0.2',
  '0.0.0.0:3000',
  '127.1',
  '2130706433',
  '0x7f000001',
  '0177.0.0.1',
  '[::]',
  '[::ffff:127.0.0.1]:3000',
  '[0:0:0:0:0:0:0:1]',
  '::1',
  'user@localhost',
  'localhost@evil.example',
  'localhost#evil.example',
  'localhost/evil.example',
  'localhost\\evil.example',
  'localhost%00.evil.example',
  'localhost,evil.example',
  'localhost evil.example',
  ' localhost',
  'mcp.example.com.',
  'xmcp.example.com',
  'mcp.example.com.evil.example',
  'sub.mcp.example.com',
];

const GOOD_ORIGINS = [
  undefined,
  'http://localhost:5173',
  'https://localhost',
  'http://127.0.0.1:9',
  'http://[::1]:3000',
  'https://mcp.example.com',
  'https://app.example.com',
  'http://tools.example.com:8080',
];

const BAD_ORIGINS = [
  '',
  'null',
  'evil',
  'http://evil.example',
  'https://evil.example',
  'http://localhost.evil.example',
  'http://localhost.:3000',
  'http://localhost:3000.evil.example',
  'http://user@localhost:3000',
  'http://localhost@evil.example',
  'http://[::ffff:127.0.0.1]:3000',
  'http://127.0.0.2:3000',
  'http://mcp.example.com',
  'https://mcp.example.com:8443',
  'https://mcp.example.com.evil.example',
  'https://app.example.com.',
  'https://app.example.com/',
  'https://app.example.com, https://evil.example',
  'https://sub.app.example.com',
  'http://app.example.com',
  'file://',
  'chrome-extension://abcdef',
  'http://0.0.0.0:3000',
];

function verdict(host: string | undefined, origin: string | undefined, site?: string, config = LOOPBACK): string {
  const raw = [
    ...(host === undefined ? [] : ['Host', host]),
    ...(origin === undefined ? [] : ['Origin', origin]),
    ...(site === undefined ? [] : ['Sec-Fetch-Site', site]),
  ];
  return refuseSender(readRawHeaders(raw), allowedHostsOf(config))?.code ?? 'ok';
}

// SEC-15
test('every allowed host is accepted with every allowed origin', () => {
  for (const host of GOOD_HOSTS) {
    for (const origin of GOOD_ORIGINS) assert.equal(verdict(host, origin), 'ok', `${host} ${origin}`);
  }
});

// SEC-15 S-012
test('an unknown host is refused with any origin', () => {
  for (const host of [...BAD_HOSTS, undefined]) {
    for (const origin of [...GOOD_ORIGINS, 'http://evil.example', `http://${host}`]) {
      assert.equal(verdict(host, origin), 'forbidden', `${host} ${origin}`);
    }
  }
});

// T-001 SEC-15
test('an origin that is not allowed is refused with any host', () => {
  for (const origin of BAD_ORIGINS) {
    for (const host of GOOD_HOSTS.slice(0, 7)) assert.equal(verdict(host, origin), 'forbidden', `${host} ${origin}`);
  }
});

test('a page of the requested host name has our own origin', () => {
  assert.equal(verdict('gateway.internal:3000', 'http://gateway.internal:3000'), 'ok');
  assert.equal(verdict('gateway.internal:3000', 'http://gateway.internal:3001'), 'forbidden');
});

test('pages on this machine are trusted only by a gateway on loopback', () => {
  assert.equal(verdict('localhost:3000', 'http://localhost:5173', undefined, LOOPBACK), 'ok');
  assert.equal(verdict('localhost:3000', 'http://localhost:5173', undefined, WILDCARD), 'forbidden');
});

// SEC-17
test('a cross-site request without an allowed origin is refused', () => {
  assert.equal(verdict('localhost', undefined, 'cross-site'), 'forbidden');
  assert.equal(verdict('localhost', 'https://app.example.com', 'cross-site'), 'ok');
  assert.equal(verdict('localhost', 'https://evil.example', 'cross-site'), 'forbidden');
  for (const site of ['same-origin', 'same-site', 'none']) assert.equal(verdict('localhost', undefined, site), 'ok');
});

// SEC-15
test('the address by which a gateway listens everywhere is no host name', () => {
  for (const host of ['0.0.0.0', '0.0.0.0:3000', '[::]', '[::]:3000']) {
    for (const listen of ['0.0.0.0', '::']) {
      const config = { ...WILDCARD, listen: { ...WILDCARD.listen, host: listen } };
      assert.equal(verdict(host, undefined, undefined, config), 'forbidden', `${host} at ${listen}`);
    }
  }
});

const SINGLE = ['Host', 'Origin', 'Mcp-Session-Id', 'MCP-Protocol-Version', 'Content-Type', 'Last-Event-ID'];

for (const name of [...SINGLE, 'Mcp-Method', 'Mcp-Name', 'Mcp-Param-Path']) {
  // SEC-15
  test(`two ${name} headers are refused, also when they agree`, () => {
    const raw = name === 'Host' ? [] : ['host', 'localhost'];
    const headers = readRawHeaders([...raw, name, 'localhost', name.toLowerCase(), 'localhost']);
    assert.equal(refuseSender(headers, allowedHostsOf(LOOPBACK))?.code, 'invalid-request');
  });
}

const GOOD_TARGETS = [
  '/',
  '/mcp',
  '/mcp/files',
  '/mcp?x=%2f..//',
  '/.well-known/oauth-protected-resource/mcp',
  '/mcp/',
];

const BAD_TARGETS = [
  '',
  '*',
  'mcp',
  '//mcp',
  '/mcp//files',
  '/mcp/../sse',
  '/./mcp',
  '/mcp/..',
  '/mcp/.',
  '/mcp%2ffiles',
  '/mcp%2Ffiles',
  '/mcp%5cfiles',
  '/mcp/%2e%2e/x',
  '/mcp\\files',
  '/%6dcp',
  '/mcp%00',
  '/mcp;x=1',
  '/mcp#x',
  '/mcp?x#y',
  'http://localhost/mcp',
  'https://evil.example/mcp',
  'localhost:443',
  '/mcp files',
  '/mçp',
];

// SEC-19
test('a path that two readers could interpret differently is refused', () => {
  for (const target of GOOD_TARGETS) assert.equal(refuseTarget(target), undefined, target);
  for (const target of BAD_TARGETS) assert.equal(refuseTarget(target)?.code, 'invalid-request', target);
});
