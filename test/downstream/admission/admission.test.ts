import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { createAuthenticator } from '../../../src/auth/authenticate.ts';
import { Admission } from '../../../src/downstream/admission/admission.ts';
import { readRawHeaders } from '../../../src/downstream/admission/headers.ts';
import { LOCAL } from '../../../src/policy/principal.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';
import { post, rpc } from '../client.ts';
import { BY_NAME, configWith, type Overrides, startEdge } from '../edge.ts';

const ORIGIN = 'http://127.0.0.1:3000';
const metrics = createMetrics('0');

function admissionOf(overrides: Overrides = {}): Admission {
  const config = configWith(overrides);
  const log = pino({ level: 'silent' });
  const authenticator = createAuthenticator(config.auth, { log });
  return new Admission({ authenticator, config, origin: ORIGIN, log, metrics });
}

//
test('the endpoint of a view is below the public URL, or the bound address', () => {
  assert.equal(admissionOf().endpoint(''), `${ORIGIN}/mcp`);
  assert.equal(admissionOf().endpoint('files'), `${ORIGIN}/mcp/files`);
  assert.equal(admissionOf({ publicUrl: 'https://mcp.example' }).endpoint('files'), 'https://mcp.example/mcp/files');
});

const cases = [
  { is: 'a known host', raw: ['Host', '127.0.0.1:3000'], isAdmitted: true },
  { is: 'no host', raw: ['Accept', '*/*'], isAdmitted: false },
  { is: 'an unknown host', raw: ['Host', 'evil.example'], isAdmitted: false },
  { is: 'a host in capitals', raw: ['Host', 'LOCALHOST'], isAdmitted: false },
  { is: 'a port out of range', raw: ['Host', '127.0.0.1:65536'], isAdmitted: false },
  { is: 'two hosts', raw: ['Host', '127.0.0.1', 'Host', '127.0.0.1'], isAdmitted: false },
  { is: 'any origin', raw: ['Host', '127.0.0.1', 'Origin', 'http://127.0.0.1'], isAdmitted: false },
  { is: 'a page of another site', raw: ['Host', '127.0.0.1', 'Sec-Fetch-Site', 'cross-site'], isAdmitted: false },
];

/** Returns the headers as Node merges them. */
function headersOf(raw: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (let at = 0; at < raw.length; at += 2) headers[String(raw[at]).toLowerCase()] ??= String(raw[at + 1]);
  return headers;
}

for (const { is, raw, isAdmitted } of cases) {
  // SEC-15
  test(`${is}: ${isAdmitted ? 'admitted by its headers alone' : 'left to the complete check'}`, () => {
    assert.equal(admissionOf().admitPlain({ headers: headersOf(raw), rawHeaders: raw }) !== undefined, isAdmitted);
  });
}

for (const [trustedProxies, expected] of [
  [['127.0.0.0/8'], '2001:db8:1:2'],
  [[], '127.0.0.1'],
] as const) {
  test(`credentials come from ${expected} with ${trustedProxies.length} trusted proxies`, async () => {
    const addresses: (string | undefined)[] = [];
    const authenticate: typeof BY_NAME.authenticate = (headers, endpoint, address) => {
      addresses.push(address);
      return BY_NAME.authenticate(headers, endpoint, address);
    };
    await using edge = await startEdge({ trustedProxies }, { ...BY_NAME, authenticate });
    await post(`${edge.url}/mcp`, rpc(1, 'ping'), undefined, { 'x-forwarded-for': '2001:db8:1:2:3::4' });
    assert.deepEqual(addresses, [expected]);
  });
}

test('only without configured credentials the principal is known at once', () => {
  const headers = readRawHeaders(['Host', '127.0.0.1:3000']);
  assert.equal(admissionOf().principalOf(headers, '', {}), LOCAL);
  const apiKeys = [{ name: 'ci', sha256: 'a'.repeat(64) }];
  assert.equal(admissionOf({ auth: { jwt: [], apiKeys } }).principalOf(headers, '', {}), undefined);
});
