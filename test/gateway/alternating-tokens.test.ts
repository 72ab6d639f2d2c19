/** Tests a session whose client uses two tokens side by side: a wide one, and one without a scope. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AuditTrail } from '../../src/audit/audit-trail.ts';
import { accessOf, tokenOf } from '../policy/policies.ts';
import { openTestAudit } from '../support/audit.ts';
import { testCore, toolCall } from '../support/core.ts';
import { memoryUpstream, result } from '../support/memory-upstream.ts';
import { stopTime } from '../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };
const RETURN_MS = 10_000; // subject
const [WIDE, NARROW] = [tokenOf('ada', {}, ['mcp', 'w']), tokenOf('ada', {}, ['mcp'])];
const FEW = { upstreams: ['up'], tools: ['get'] };

type Role = Parameters<typeof accessOf>[0][string];

function upstream(lists: object) {
  return memoryUpstream({
    capabilities: { tools: {}, resources: { subscribe: true } },
    lists: { tools: ['get', 'write'].map((name) => ({ name, inputSchema: { type: 'object' } })), ...lists },
    request: (peer, request) => peer.send(result(request, request.method === 'tools/call' ? { content: [] } : {})),
  });
}

function listed(...uris: readonly string[]) {
  return upstream({ resources: uris.map((uri) => ({ uri, name: uri })) });
}

/** A gateway with one session, whose client has used the wide token. */
async function place(
  memories: Readonly<Record<string, ReturnType<typeof upstream>>>,
  /** What every token may use, and what only the wide one may. */
  [few, more]: readonly [Role, Role],
  audit?: AuditTrail,
) {
  const access = accessOf({ few, more }, [
    { roles: ['few'], anyone: true },
    { roles: ['more'], scopes: ['w'] },
  ]);
  const upstreams = Object.fromEntries(Object.entries(memories).map(([id, memory]) => [id, { memory }]));
  const gateway = await testCore(upstreams, { access }, undefined, audit);
  await gateway.core.refresh();
  const client = await gateway.connect({ principal: WIDE, listens: false });
  return {
    /** Lets the session have the rights of a token, as each request of it does. */
    use: (principal: typeof WIDE) => gateway.core.gateway.findSession(client.session.id, principal, ''),
    request: async (principal: typeof WIDE, method: string, params: object) =>
      (await client.request(method, params, { principal })).answer,
    subscribed: () =>
      [...gateway.core.sessions].flatMap(({ subscriptions }) =>
        [...subscriptions].map(([uri, to]) => `${uri} at ${to.upstream}`),
      ),
    [Symbol.asyncDispose]: () => gateway[Symbol.asyncDispose](),
  };
}

test('a subscription comes back only at the upstream where it was', TIMEOUT, async () => {
  const mine = upstream({ resourceTemplates: [{ uriTemplate: 'test://{n}', name: 'mine' }] });
  const later = listed('test://a');
  await using at = await place({ later, mine }, [{ upstreams: ['mine'] }, { upstreams: ['later'] }]);
  assert.equal((await at.request(WIDE, 'resources/subscribe', { uri: 'test://a' })).kind, 'result');
  assert.deepEqual(at.subscribed(), ['test://a at later']);
  await at.use(NARROW);
  assert.deepEqual(at.subscribed(), [], 'its template matches the URI, but the client did not ask for it');
  await at.use(WIDE);
  assert.deepEqual(at.subscribed(), ['test://a at later']);
  await later.until(() => later.requests('resources/subscribe')[1]);
  assert.equal(mine.requests('resources/subscribe').length, 0);
});

test('an unsubscribe ends what comes back while its record is written', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  const up = listed('test://a');
  await using at = await place({ up }, [FEW, { upstreams: ['up'], resources: ['test://*'] }], audit.trail);
  const uri = 'up+test://a';
  assert.equal((await at.request(WIDE, 'resources/subscribe', { uri })).kind, 'result');
  await at.use(NARROW);
  const answer = at.request(NARROW, 'resources/unsubscribe', { uri });
  await at.use(WIDE);
  assert.equal((await answer).kind, 'result');
  assert.deepEqual(at.subscribed(), []);
  await at.use(NARROW);
  await at.use(WIDE);
  assert.deepEqual(at.subscribed(), [], 'it does not wait either');
});

test('tokens that alternate bring subscriptions back once in a while', TIMEOUT, async (t) => {
  const uris = Array.from({ length: 20 }, (_, i) => `test://${i}`);
  const up = listed(...uris);
  await using at = await place({ up }, [FEW, { upstreams: ['up'], resources: ['test://*'] }]);
  for (const uri of uris)
    assert.equal((await at.request(WIDE, 'resources/subscribe', { uri: `up+${uri}` })).kind, 'result');
  const time = stopTime(t);
  const arrive = (method: string, count: number) => up.until(() => up.requests(method)[count - 1]);
  for (const [principal, method, count] of [
    [NARROW, 'resources/unsubscribe', uris.length],
    [WIDE, 'resources/subscribe', 2 * uris.length],
    [NARROW, 'resources/unsubscribe', 2 * uris.length],
  ] as const) {
    await at.use(principal);
    await arrive(method, count);
  }
  for (let i = 0; i < 10; i++) {
    for (const principal of [WIDE, NARROW, WIDE]) {
      await at.use(principal);
      await at.request(principal, 'ping', {});
      assert.deepEqual(at.subscribed(), []);
    }
  }
  assert.equal(up.requests('resources/subscribe').length, 2 * uris.length);
  time.pass(RETURN_MS);
  await arrive('resources/subscribe', 3 * uris.length);
  assert.equal(at.subscribed().length, uris.length);
  assert.equal(up.requests('resources/unsubscribe').length, 2 * uris.length);
});

test('a token without a listed item of an upstream does not end its connection', TIMEOUT, async () => {
  const up = listed('test://a');
  const few = { upstreams: ['up'], resources: ['other://*'] };
  await using at = await place({ up }, [few, { upstreams: ['up'], tools: ['write'] }]);
  const call = () => at.request(WIDE, 'tools/call', toolCall('up__write'));
  assert.equal((await call()).kind, 'result');
  const before = [...up.open];
  await at.use(NARROW);
  await at.use(WIDE);
  const answer = await call();
  assert.doesNotMatch(JSON.stringify(answer), /stateLost/);
  assert.ok(before.every((peer) => up.open.has(peer)));
});
