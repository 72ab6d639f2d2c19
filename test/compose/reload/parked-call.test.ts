import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accessOf } from '../../policy/policies.ts';
import { asker, formOf } from '../../support/asker.ts';
import { testCore, UPSTREAM } from '../../support/core.ts';
import { modernUpstream } from '../../support/http-upstream.ts';
import { result } from '../../support/memory-upstream.ts';
import { inputRequiredIn, ModernClient } from '../../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const up = (prefix: string, excludeTools: readonly string[] = []) => ({
  ...UPSTREAM,
  id: 'up',
  title: 'up',
  prefix,
  excludeTools,
});
const QUESTION = {
  method: 'elicitation/create',
  params: { mode: 'form', message: 'Who?', requestedSchema: { type: 'object', properties: {} } },
};
const allow = (...upstreams: readonly string[]) => accessOf({ use: { upstreams } }, [{ roles: ['use'], anyone: true }]);

for (const { what, upstreams, allowed = 'up', isContinued } of [
  { what: 'at an upstream that is removed continues', upstreams: [], isContinued: true },
  { what: 'at a tool with another name continues', upstreams: [up('new__')], isContinued: true },
  { what: 'of a tool that is left out from then on continues', upstreams: [up('up__', ['ask'])], isContinued: true },
  { what: 'at a removed upstream that is denied ends', upstreams: [], allowed: 'other', isContinued: false },
]) {
  // X-021 SEC-07
  test(`a parked call ${what}`, TIMEOUT, async () => {
    const server = asker();
    await using gateway = await testCore({ up: { memory: server.memory } }, { access: allow('up') });
    const client = new ModernClient(gateway, { elicitation: {} });
    const call = { name: 'up__ask', arguments: { nonce: 'n' } };
    const asked = inputRequiredIn(await client.request('tools/call', call).reply);
    const { drained } = await gateway.reload({ upstreams, access: allow(allowed) });
    const inputResponses = Object.fromEntries(
      Object.keys(asked.inputRequests).map((key) => [key, { action: 'decline' }]),
    );
    const { requestState } = asked;
    const retry = client.request('tools/call', { ...call, inputResponses, requestState });
    if (isContinued) {
      await server.memory.until(() => server.call('n').answers.get('q'));
      server.finish('n');
      assert.match(JSON.stringify((await retry.reply).result?.['content']), /decline/);
      await drained;
    } else {
      assert.match(String((await retry.reply).error?.message), /up__ask/);
      assert.equal(server.call('n').answers.size, 0);
    }
    // A call of its own does not get there.
    assert.ok((await client.request('tools/call', call).reply).error !== undefined);
  });
}

//
test('a parked request of a prompt at an upstream that is removed continues', TIMEOUT, async () => {
  const server = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory: server.memory } });
  const client = new ModernClient(gateway, { elicitation: {} });
  const get = { name: 'up__ask', arguments: { nonce: 'n' } };
  const first = client.request('prompts/get', get);
  await server.memory.until(() => server.calls.get('n'));
  server.ask('n', 'q', 'elicitation/create', formOf('n'));
  const { inputRequests, requestState } = inputRequiredIn(await first.reply);
  const { drained } = await gateway.reload({ upstreams: [] });
  const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, { action: 'decline' }]));
  const retry = client.request('prompts/get', { ...get, inputResponses, requestState });
  const { peer, request, answers } = server.call('n');
  await server.memory.until(() => answers.get('q'));
  peer.send(result(request, { messages: [] }));
  assert.deepEqual((await retry.reply).result?.['messages'], []);
  await drained;
  assert.ok((await client.request('prompts/get', get).reply).error !== undefined);
});

//
test('a parked request of a very long URI continues', TIMEOUT, async () => {
  const server = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory: server.memory } });
  const client = new ModernClient(gateway, { elicitation: {} });
  // The server of this test asks about the members of its tool.
  const read = { uri: `up+test://${'x'.repeat(100_000)}`, name: 'ask', arguments: { nonce: 'n' } };
  const first = client.request('resources/read', read);
  await server.memory.until(() => server.calls.get('n'));
  server.ask('n', 'q', 'elicitation/create', formOf('n'));
  const { inputRequests, requestState } = inputRequiredIn(await first.reply);
  assert.ok(requestState.length < 2_000);
  const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, { action: 'decline' }]));
  const retry = client.request('resources/read', { ...read, inputResponses, requestState });
  const { peer, request, answers } = server.call('n');
  await server.memory.until(() => answers.get('q'));
  peer.send(result(request, { contents: [] }));
  assert.deepEqual((await retry.reply).result?.['contents'], []);
});

// X-021 SEC-07
test('a parked call is not continued by the name of another tool', TIMEOUT, async () => {
  const [server, other] = [asker(), asker()];
  await using gateway = await testCore(
    { up: { memory: server.memory }, other: { memory: other.memory } },
    { upstreams: [up('up__')] },
  );
  const client = new ModernClient(gateway, { elicitation: {} });
  const call = { name: 'up__ask', arguments: { nonce: 'n' } };
  const { requestState } = inputRequiredIn(await client.request('tools/call', call).reply);
  await gateway.reload({ upstreams: [{ ...up('up__'), id: 'other', title: 'other' }] });
  const refused = await client.error('tools/call', { ...call, requestState });
  assert.partialDeepStrictEqual(refused.data, { code: 'invalid-state' });
  assert.equal(server.call('n').answers.size, 0);
});

//
test('the state of an upstream does not follow a name that leads to another one', TIMEOUT, async () => {
  const server = () =>
    modernUpstream({
      tools: [{ name: 't', inputSchema: { type: 'object' } }],
      request: (served) =>
        served.result({ resultType: 'input_required', inputRequests: { q: QUESTION }, requestState: 'inner' }),
    });
  await using a = await server();
  await using b = await server();
  await using gateway = await testCore({ a: { ...a.config, prefix: 'x__' }, b: { ...b.config, prefix: 'y__' } });
  const client = new ModernClient(gateway, { elicitation: {} });
  const call = { name: 'x__t', arguments: {} };
  const { requestState } = inputRequiredIn(await client.request('tools/call', call).reply);
  const swapped = gateway.config.upstreams.map((one) => ({ ...one, prefix: one.id === 'a' ? 'y__' : 'x__' }));
  await gateway.reload({ upstreams: swapped });
  const retry = { ...call, inputResponses: { q: { action: 'decline' } }, requestState };
  const refused = await client.error('tools/call', retry);
  assert.partialDeepStrictEqual(refused, { code: -32602, data: { code: 'invalid-state' } });
  assert.equal(b.requests('tools/call').length, 0);
  // The name does lead there.
  inputRequiredIn(await client.request('tools/call', call).reply);
  assert.equal(b.requests('tools/call').length, 1);
});
