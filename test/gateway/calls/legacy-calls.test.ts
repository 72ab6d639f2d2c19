import assert from 'node:assert/strict';
import { test } from 'node:test';
import { META } from '../../../src/protocol/meta.ts';
import { RPC } from '../../../src/protocol/rpc-codes.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../../support/memory-upstream.ts';
import { calling, DONE, ECHO, endOf, holding, NOTHING, sentCalls } from './calling.ts';

const TIMEOUT = { timeout: 120_000 };
const PAGE = { mode: 'url', elicitationId: '1', url: 'https://up.test/pay', message: 'Pay' };
const MAY_OPEN = { capabilities: { elicitation: { url: {} } } };

/** An upstream whose calls fail with an error that names pages. */
function failing(code: number, elicitations: readonly object[]): MemoryUpstream {
  const error = JSON.stringify({ code, message: 'pay first', data: { elicitations } });
  return memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      if (request.method === 'tools/call') peer.send(`{"jsonrpc":"2.0","id":${request.id},"error":${error}}`);
      else peer.send(result(request, {}));
    },
  });
}

test('a legacy upstream gets neither the envelope of a modern client nor its task', TIMEOUT, async () => {
  const { memory, next } = holding();
  const { at, begin } = await calling(memory);
  await using _ = at;
  const envelope = { [META.protocolVersion]: '2026-07-28', [META.clientCapabilities]: {}, own: 1 };
  const params = { name: 'up__echo', requestState: 's', inputResponses: {}, task: {}, _meta: envelope };
  const end = endOf(begin(at.group().client, params).answer());
  const { peer, request } = await next();
  assert.deepEqual(JSON.parse(String(request.params)), { name: 'echo', _meta: { own: 1 } });
  peer.send(result(request, DONE));
  assert.equal(await end, 'result');
});

test('the log level of a modern client is set at its upstream before the call', TIMEOUT, async () => {
  const { memory, next } = holding();
  const { at, begin } = await calling(memory);
  await using _ = at;
  const end = endOf(begin(at.group({ logLevel: 'debug' }).client).answer());
  const { peer, request } = await next();
  const methods = peer.received.flatMap((one) => (one.kind === 'request' ? [one.method] : []));
  assert.deepEqual(methods.slice(-2), ['logging/setLevel', 'tools/call']);
  assert.equal(memory.requests('logging/setLevel')[0]?.params?.string('level'), 'debug');
  peer.send(result(request, DONE));
  assert.equal(await end, 'result');
});

for (const what of ['is cancelled', 'a reload denies'] as const) {
  // SEC-08 P-011
  test(`a call that ${what} while its log level is set is not sent`, TIMEOUT, async () => {
    let answer = () => {};
    const memory = memoryUpstream({
      lists: { tools: [ECHO] },
      request: (peer, request) => {
        answer = () => peer.send(result(request, {}));
        if (request.method !== 'logging/setLevel') answer();
      },
    });
    const { at, begin, upstream } = await calling(memory);
    await using _ = at;
    const { group, client } = at.group({ logLevel: 'debug' });
    // The link sets this level when it opens.
    group.logLevel = 'error';
    const call = begin(client);
    const end = endOf(call.answer());
    await memory.until(() => memory.requests('logging/setLevel')[0]);
    answer();
    await memory.until(() => memory.requests('logging/setLevel')[1]);
    if (what === 'is cancelled') call.exchange.cancel('gone');
    else at.gate.setConfig(NOTHING);
    answer();
    assert.equal(await end, what === 'is cancelled' ? 'cancelled no' : 'unknown-tool undefined');
    assert.deepEqual([sentCalls(memory).length, upstream.limiter.activeCount], [0, 0]);
  });
}

for (const { revision, sent } of [
  { revision: '2025-03-26', sent: undefined },
  { revision: '2025-06-18', sent: { arguments: { a: 'b' } } },
]) {
  test(
    `an upstream of ${revision} ${sent ? 'gets' : 'does not get'} the context of a completion`,
    TIMEOUT,
    async () => {
      const memory = memoryUpstream({ lists: { prompts: [{ name: 'p' }] }, revision, capabilities: { prompts: {} } });
      const { at, begin } = await calling(memory);
      await using _ = at;
      const params = {
        ref: { type: 'ref/prompt', name: 'up__p' },
        argument: { name: 'a', value: '' },
        context: { arguments: { a: 'b' } },
      };
      assert.equal(await endOf(begin(at.session().session, params, 'completion/complete').answer()), 'result');
      assert.deepEqual(memory.requests('completion/complete')[0]?.params?.value('context'), sent);
    },
  );
}

test('pages to open end the call of a modern client, and are an error for a session', TIMEOUT, async () => {
  const { at, begin } = await calling(failing(RPC.urlElicitationRequired, [PAGE]));
  await using _ = at;
  const outcome = await begin(at.group(MAY_OPEN).client).answer();
  assert.ok(outcome.kind === 'urls-required');
  assert.deepEqual(outcome.elicitations, [PAGE]);
  const failed = await begin(at.session(MAY_OPEN).session).answer();
  assert.ok(failed.kind === 'error');
  assert.equal(failed.error.code, RPC.urlElicitationRequired);
});

test('a modern client is asked only for pages that it can open', TIMEOUT, async () => {
  const { at, begin } = await calling(failing(RPC.urlElicitationRequired, [PAGE]));
  await using _ = at;
  assert.equal(await endOf(begin(at.group().client).answer()), 'missing-capability no');
  const none = await calling(failing(RPC.urlElicitationRequired, []));
  await using _none = none.at;
  assert.equal(await endOf(none.begin(none.at.group(MAY_OPEN).client).answer()), 'upstream-protocol no');
  const other = await calling(failing(RPC.internalError, [PAGE]));
  await using _other = other.at;
  assert.equal(await endOf(other.begin(other.at.group(MAY_OPEN).client).answer()), 'error', 'of another code');
});
