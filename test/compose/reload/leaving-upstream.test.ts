import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { diffConfigs } from '../../../src/config/changes/diff.ts';
import { accessOf, tokenOf } from '../../policy/policies.ts';
import { accepted, asker, formOf } from '../../support/asker.ts';
import { testCore, type TestCore, toolCall, UPSTREAM } from '../../support/core.ts';
import { modernUpstream } from '../../support/http-upstream.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { inputRequiredIn, ModernClient, modernRequest } from '../../support/modern-client.ts';
import { extensionUpstream } from '../../support/task-upstreams.ts';

const TIMEOUT = { timeout: 120_000 };
const CAPABILITIES = { elicitation: { form: {} } };
const OTHER = { ...UPSTREAM, id: 'other', title: 'other', prefix: 'other__' };

/** Removes the upstream `up` while it has a call. */
async function removeUp({ core, config }: TestCore): Promise<void> {
  const next = { ...config, upstreams: [OTHER] };
  await core.apply(next, diffConfigs(config, next));
}

function other() {
  return { memory: memoryUpstream({ lists: { tools: [{ name: 't', inputSchema: { type: 'object' } }] } }) };
}

test('a modern client gets the answer of a removed legacy server in its own form', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [{ name: 't', inputSchema: { type: 'object' } }] },
    request: () => undefined,
  });
  await using gateway = await testCore({ up: { memory }, other: other() });
  const { reply } = modernRequest(gateway, 'tools/call', toolCall('up__t'));
  const request = await memory.until(() => memory.requests('tools/call')[0]);
  await removeUp(gateway);
  const link = { type: 'resource_link', name: 'a', uri: 'file:///a' };
  for (const peer of memory.open) peer.send(result(request, { content: [link] }));
  const { result: answer } = await reply;
  assert.partialDeepStrictEqual(answer, { resultType: 'complete', content: [{ ...link, uri: 'up+file:///a' }] });
});

test('a legacy client gets the answer of a removed modern server in its own form', TIMEOUT, async () => {
  const called = Promise.withResolvers<undefined>();
  const removed = Promise.withResolvers<undefined>();
  await using server = await modernUpstream({
    capabilities: { tools: {} },
    tools: [{ name: 't', inputSchema: { type: 'object' } }],
    request: (served) => {
      called.resolve(undefined);
      void removed.promise.then(() => served.result({ resultType: 'complete', content: [] }));
    },
  });
  await using gateway = await testCore({ up: server.config, other: other() });
  const client = await gateway.connect();
  const reply = client.result('tools/call', toolCall('up__t'));
  await called.promise;
  await removeUp(gateway);
  removed.resolve(undefined);
  assert.deepEqual(await reply, { content: [] });
});

test('a modern client reads the end of its task at a removed server', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' }, other: other() });
  const client = new ModernClient(gateway, { extensions: { 'io.modelcontextprotocol/tasks': {} } });
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  await removeUp(gateway);
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'working');
  const link = { type: 'resource_link', uri: 'file:///a', name: 'a' };
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [link] } });
  const done = await client.result('tasks/get', { taskId });
  assert.deepEqual(Object(done['result']).content, [{ ...link, uri: 'up+file:///a' }]);
});

suite('a removed server can still ask during its calls', () => {
  test('and its question has its name', TIMEOUT, async () => {
    const { memory, calls, ask, call: at, finish } = asker({ isQuiet: true });
    await using gateway = await testCore({ up: { memory }, other: other() });
    const client = await gateway.connect({ capabilities: CAPABILITIES });
    const reply = client.request('tools/call', toolCall('up__ask', { nonce: 'n' }), {
      onMessage: (message) => message.kind === 'request' && client.answer(message.id, accepted('Ada')),
    });
    await memory.until(() => calls.get('n'));
    await removeUp(gateway);
    ask('n', 'q', 'elicitation/create', formOf('n'));
    await memory.until(() => at('n').answers.get('q'));
    finish('n');
    const [asked] = (await reply).messages;
    assert.equal(asked?.kind === 'request' ? asked.params?.string('message') : asked, '[up] About n');
  });

  for (const [name, access] of [
    ['without', undefined],
    [
      'with',
      accessOf({ part: { tools: ['ask', 't'] } }, [{ roles: ['part'], groups: ['eng'] }], {
        claims: [{ name: 'groups', path: 'groups', type: 'list' }],
        groupClaims: ['groups'],
      }),
    ],
  ] as const) {
    test(`${name} an access policy`, TIMEOUT, async () => {
      const { memory, calls, ask, call: at, finish } = asker({ isQuiet: true });
      await using gateway = await testCore({ up: { memory }, other: other() }, { access });
      const options = { capabilities: CAPABILITIES, principal: tokenOf('ada', { groups: ['eng'] }) };
      const { reply } = modernRequest(gateway, 'tools/call', toolCall('up__ask', { nonce: 'n' }), options);
      await memory.until(() => calls.get('n'));
      await removeUp(gateway);
      ask('n', 'q', 'elicitation/create', formOf('n'));
      const { inputRequests } = inputRequiredIn(await reply);
      const [question] = Object.values(inputRequests);
      assert.partialDeepStrictEqual(question?.params, { message: '[up] About n' });
      finish('n');
      await memory.until(() => at('n').answers.get('q'));
    });
  }
});

for (const isolation of ['session', 'shared'] as const) {
  const name = `a subscription stays while a call keeps its server, which comes back (${isolation})`;
  test(name, TIMEOUT, async () => {
    for (const endsBefore of [false, true]) {
      const released = Promise.withResolvers<undefined>();
      const memory = memoryUpstream({
        capabilities: { tools: {}, resources: { subscribe: true } },
        lists: {
          tools: [{ name: 't', inputSchema: { type: 'object' } }],
          resources: [{ uri: 'test://a', name: 'a' }],
        },
        request: (peer, request) => {
          if (request.method === 'tools/call') void released.promise.then(() => peer.send(result(request, {})));
          else peer.send(result(request, {}));
        },
      });
      const profile = (...upstreams: readonly string[]) => ({
        profiles: [{ id: 'p', upstreams, includeTools: undefined, excludeTools: [], renames: {} }],
      });
      await using gateway = await testCore({ up: { memory, isolation }, other: other() }, profile('up', 'other'));
      const { config, core } = gateway;
      const client = await gateway.connect({ view: 'p' });
      await client.result('resources/subscribe', { uri: 'up+test://a' });
      const reply = client.result('tools/call', toolCall('up__t'));
      await memory.until(() => memory.requests('tools/call')[0]);
      const without = { ...config, ...profile('other') };
      await core.apply(without, diffConfigs(config, without));
      if (endsBefore) {
        released.resolve(undefined);
        await reply;
      }
      await core.apply(config, diffConfigs(without, config));
      released.resolve(undefined);
      await reply;
      const updated = { jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri: 'test://a' } };
      for (const peer of memory.open) peer.send(JSON.stringify(updated));
      await client.waitForMessage('notifications/resources/updated');
      assert.equal(memory.requests('resources/unsubscribe').length, 0);
    }
  });
}
