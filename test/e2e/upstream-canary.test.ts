/** Tests that no byte of a client's credentials reaches an upstream that gets credentials of the caller, by any method or transport. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EXPECTED_REQUESTS, TRANSPORTS, useAsModern, useAsSession } from '../support/all-methods.ts';
import { startExchangeIssuer } from '../support/exchange-issuer.ts';
import { startGuard } from '../support/guarded-upstream.ts';
import { openGateway } from '../support/open-gateway.ts';
import { startEverything } from '../support/everything-gateway.ts';
import { TcpRelay } from '../support/tcp-relay.ts';

const LIMIT = { timeout: 120_000 };
const CANARY = 'canary-0123456789';

for (const transport of ['legacy', 'modern', 'sse'] as const) {
  for (const kind of ['exchange', 'identity'] as const) {
    // SEC-13
    test(`no byte of a client's credentials goes over ${transport} with kind ${kind}`, LIMIT, async () => {
      await using issuer = await startExchangeIssuer();
      await using behind = await startEverything();
      const target = transport === 'sse' ? `${new URL(behind.url).origin}/sse` : behind.url;
      await using guard = await startGuard(target, (given) => given?.startsWith('Bearer ') === true);
      const { port, pathname } = new URL(guard.url);
      await using relay = await TcpRelay.open(Number(port));
      let bytes = '';
      relay.onClientBytes = (chunk) => (bytes += chunk.toString('latin1'));
      const { id: clientId, secret: clientSecret } = issuer.client;
      const exchange = { kind, issuer: issuer.issuer, clientId, clientSecret };
      const auth = kind === 'exchange' ? exchange : { kind };
      const url = `http://127.0.0.1:${relay.port}${pathname}`;
      const jwt = [{ issuer: issuer.issuer, jwksUrl: issuer.jwksUrl, audiences: ['gateway'] }];
      const up = { url, prefix: '', rawUris: true, ...TRANSPORTS[transport], auth };
      await using gateway = await openGateway({ up }, { auth: { jwt } });
      const token = await issuer.tokenFor('ann', 'gateway', 'read');
      const [header = '', claims = '', signature = ''] = token.split('.');
      const client = {
        authorization: `Bearer ${token}`,
        cookie: `session=${CANARY}`,
        'x-api-key': CANARY,
        'proxy-authorization': `Basic ${CANARY}`,
        'x-forwarded-access-token': token,
      };
      const session = await useAsSession(gateway.url, client);
      await useAsModern(gateway.url, client);
      await gateway.stop();

      const seen = new Set(guard.requests.map(({ what }) => what));
      const missing = EXPECTED_REQUESTS[transport].filter((what) => !seen.has(what));
      assert.deepEqual(missing, [], `seen: ${[...seen].join(', ')}`);
      assert.ok(
        guard.requests.every(({ isAccepted }) => isAccepted),
        'a request without credentials',
      );
      assert.ok(bytes.length > 5_000);
      const secrets = { CANARY, token, claims, signature, session, clientSecret };
      for (const [name, secret] of Object.entries(secrets))
        assert.ok(!bytes.includes(secret), `${name} has reached the upstream`);
      // The header is that of every token of the issuer, so that the search itself is seen to find something.
      assert.equal(bytes.includes(header), kind === 'exchange');
      assert.doesNotMatch(bytes, /^(?:cookie|x-api-key|proxy-authorization|x-forwarded-[a-z-]+):/im);
    });
  }
}
