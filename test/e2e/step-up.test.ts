/** Tests step-up: an upstream refuses a request with 403, and the gateway gets a token with the scopes that it names. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decodeJwt } from 'jose';
import { initialize, messagesOf, post, rpc, send } from '../downstream/client.ts';
import { startExchangeIssuer } from '../support/exchange-issuer.ts';
import { startEverything } from '../support/everything-gateway.ts';
import { type Guard, startGuard } from '../support/guarded-upstream.ts';
import { modernPost } from '../support/modern-wire.ts';
import { type OpenGateway, openGateway } from '../support/open-gateway.ts';
import { type RealIssuer, startRealIssuer } from '../support/real-issuer.ts';
import { waitUntil } from '../support/wait-until.ts';

const LIMIT = { timeout: 120_000 };
const TOOL = { name: 'echo', arguments: { message: 'hi' } };
const CALL = 'POST tools/call';

function scopesOf(authorization: string | undefined): readonly string[] {
  const { scope } = decodeJwt((authorization ?? '').slice('Bearer '.length));
  return typeof scope === 'string' ? scope.split(' ') : [];
}

const challengeOf = (scope: string) => `Bearer error="insufficient_scope", scope="${scope}", resource_metadata="x"`;

/** Returns a decision by which calls need the scope `other`, and everything else needs none. */
const callsNeedOther =
  (challenge = challengeOf('other')) =>
  (authorization: string | undefined, what: string): boolean | string =>
    what !== CALL || scopesOf(authorization).includes('other') ? true : challenge;

const authAt = ({ issuer, client }: RealIssuer, settings: object) => ({
  kind: 'clientCredentials',
  issuer,
  clientId: client.id,
  clientSecret: client.secret,
  scopes: ['mcp'],
  ...settings,
});

const tokenRequests = ({ paths }: RealIssuer) => paths.filter((path) => path === '/token').length;

async function stateOf({ operatorUrl }: OpenGateway): Promise<unknown> {
  return JSON.parse((await send(`${operatorUrl}/status`, {})).text).upstreams[0].state;
}

const TARGETS = {
  legacy: (url: string) => ({ url, era: 'legacy' }),
  modern: (url: string) => ({ url, era: 'modern' }),
  sse: (url: string) => ({ url, type: 'sse' }),
} as const;

for (const transport of ['legacy', 'modern', 'sse'] as const) {
  //
  test(`a call over ${transport} runs once, after one request for the missing scope`, LIMIT, async () => {
    await using issuer = await startRealIssuer();
    await using behind = await startEverything();
    const target = transport === 'sse' ? `${new URL(behind.url).origin}/sse` : behind.url;
    await using guard: Guard = await startGuard(target, callsNeedOther(challengeOf('mcp other')));
    const auth = authAt(issuer, { stepUpScopes: ['other'] });
    await using gateway = await openGateway({ up: { ...TARGETS[transport](guard.url), prefix: '', auth } });
    const session = await initialize(gateway.url);
    const isCall = ({ body }: { readonly body: string }) => body.includes('"tools/call"');
    const echo = async (id: number) =>
      assert.match(
        JSON.stringify(messagesOf(await post(gateway.url, rpc(id, 'tools/call', TOOL), session))),
        /Echo: hi/,
      );
    await echo(1);
    assert.deepEqual(
      guard.requests.filter(isCall).map(({ headers }) => scopesOf(headers.authorization)),
      [['mcp'], ['mcp', 'other']],
    );
    await Promise.all([2, 3, 4].map(echo));
    assert.equal(guard.requests.filter(isCall).length, 5, 'later calls have the scope at once');
    assert.equal(tokenRequests(issuer), 2);
    await waitUntil(() => gateway.lines.join('').includes('an upstream needs further scopes'));
  });
}

//
test('simultaneous calls share one request for the missing scope', LIMIT, async () => {
  await using issuer = await startRealIssuer();
  await using behind = await startEverything();
  await using guard: Guard = await startGuard(behind.url, callsNeedOther());
  const auth = authAt(issuer, { stepUpScopes: ['other'] });
  await using gateway = await openGateway({ up: { url: guard.url, prefix: '', auth } });
  const answers = await Promise.all([1, 2, 3, 4].map(() => modernPost(gateway.url, 'tools/call', TOOL)));
  for (const { text } of answers) assert.match(text, /Echo: hi/);
  assert.equal(guard.requests.filter(({ what, isAccepted }) => what === CALL && isAccepted).length, 4);
  assert.equal(tokenRequests(issuer), 2);
});

const REFUSED = [
  { name: 'no step-up is configured', settings: {}, scope: 'other', asked: 1, sent: 1 },
  { name: 'the scope is none of those', settings: { stepUpScopes: ['other'] }, scope: 'other root', asked: 1, sent: 1 },
  { name: 'the issuer refuses it', settings: { stepUpScopes: ['unknown'] }, scope: 'unknown', asked: 2, sent: 1 },
  { name: 'a token with it is refused', settings: { stepUpScopes: ['other'] }, scope: 'other', asked: 2, sent: 2 },
];

for (const { name, settings, scope, asked, sent } of REFUSED) {
  //
  test(`a call fails with the missing scopes: ${name}`, LIMIT, async () => {
    await using issuer = await startRealIssuer();
    await using behind = await startEverything();
    await using guard: Guard = await startGuard(behind.url, (_given, what) =>
      what === CALL ? challengeOf(scope) : true,
    );
    await using gateway = await openGateway({ up: { url: guard.url, prefix: '', auth: authAt(issuer, settings) } });
    const session = await initialize(gateway.url);
    for (const id of [1, 2]) {
      const { error } = messagesOf(await post(gateway.url, rpc(id, 'tools/call', TOOL), session)).at(-1) ?? {};
      assert.partialDeepStrictEqual(error, {
        data: { code: 'upstream-unavailable', executed: 'no', retryable: false },
      });
      assert.ok(JSON.stringify(error).includes(`needs the scopes \\"${scope}\\"`), JSON.stringify(error));
    }
    assert.equal(guard.requests.filter(({ what }) => what === CALL).length, sent + 1, 'the second call is sent once');
    assert.equal(tokenRequests(issuer), asked);
    assert.equal(await stateOf(gateway), 'ready', 'other requests are not concerned');
  });
}

//
test('step-up for one caller asks for its token, and no other', LIMIT, async () => {
  await using issuer = await startExchangeIssuer();
  await using behind = await startEverything();
  await using guard: Guard = await startGuard(behind.url, callsNeedOther());
  const { id: clientId, secret: clientSecret } = issuer.client;
  const auth = {
    kind: 'exchange',
    issuer: issuer.issuer,
    clientId,
    clientSecret,
    scopes: ['mcp'],
    stepUpScopes: ['other'],
  };
  const jwt = [{ issuer: issuer.issuer, jwksUrl: issuer.jwksUrl, audiences: ['gateway'] }];
  const up = { url: guard.url, prefix: '', auth };
  await using gateway = await openGateway({ up }, { auth: { jwt } });
  const headersOf = async (name: string) => ({ authorization: `Bearer ${await issuer.tokenFor(name, 'gateway')}` });
  const [ann, bob] = [await headersOf('ann'), await headersOf('bob')];
  for (const headers of [ann, bob]) {
    await waitUntil(async () => (await modernPost(gateway.url, 'tools/list', {}, { headers })).text.includes('"echo"'));
  }
  assert.deepEqual(issuer.exchanges, ['ann', 'bob']);
  const called = await modernPost(gateway.url, 'tools/call', TOOL, { headers: ann });
  assert.match(called.text, /Echo: hi/);
  assert.deepEqual(issuer.exchanges, ['ann', 'bob', 'ann']);
  await modernPost(gateway.url, 'tools/list', {}, { headers: bob });
  const ofBob = guard.requests.filter(({ headers }) => decodeJwt(headers.authorization?.slice(7) ?? '').sub === 'bob');
  assert.ok(ofBob.length > 0);
  for (const { headers } of ofBob) assert.deepEqual(scopesOf(headers.authorization), ['mcp']);
});
