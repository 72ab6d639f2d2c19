import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { testCore, toolCall } from '../support/core.ts';
import { legacyUpstream, modernUpstream, refuseWith, type ServerScript } from '../support/http-upstream.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../support/memory-upstream.ts';
import { modernRequest } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };

/** An upstream with one item of each kind, which answers with the request that it received. */
function mirror(): MemoryUpstream {
  return memoryUpstream({
    capabilities: { tools: {}, prompts: {}, resources: {}, completions: {} },
    lists: {
      tools: [ECHO],
      prompts: [{ name: 'greet' }],
      resources: [{ uri: 'file:///a', name: 'a' }],
      resourceTemplates: [{ uriTemplate: 'file:///logs/{day}', name: 'logs' }],
    },
    request: (peer, request) =>
      peer.send(
        result(request, { asked: JSON.parse(request.params?.toString() ?? 'null'), content: [], contents: [] }),
      ),
  });
}

// M-001
test('each request reaches exactly its upstream, with the upstream’s own names', TIMEOUT, async () => {
  const [one, two] = [mirror(), mirror()];
  await using gateway = await testCore({ one: { memory: one }, two: { memory: two } });
  const client = await gateway.connect();
  const unheard = { unheard: 'of' };
  const cases = [
    [
      'tools/call',
      { name: 'two__echo', arguments: { a: 1 }, ...unheard },
      { name: 'echo', arguments: { a: 1 }, ...unheard },
    ],
    ['prompts/get', { name: 'two__greet', ...unheard }, { name: 'greet', ...unheard }],
    ['resources/read', { uri: 'two+file:///a', ...unheard }, { uri: 'file:///a', ...unheard }],
    ['resources/read', { uri: 'two+file:///unlisted' }, { uri: 'file:///unlisted' }],
  ] as const;
  for (const [method, params, asked] of cases) {
    assert.deepEqual((await client.result(method, params))['asked'], asked, method);
    assert.equal(one.requests(method).length, 0, method);
  }
});

// M-017
test('completion goes to the upstream of the prompt or the template', TIMEOUT, async () => {
  const [one, two] = [mirror(), mirror()];
  await using gateway = await testCore({ one: { memory: one }, two: { memory: two } });
  const client = await gateway.connect();
  const argument = { name: 'day', value: 'mo' };
  const context = { arguments: { week: '7' } };
  const refs = [
    [
      { type: 'ref/prompt', name: 'two__greet', title: 'T' },
      { type: 'ref/prompt', name: 'greet', title: 'T' },
    ],
    [
      { type: 'ref/resource', uri: 'two+file:///logs/{day}' },
      { type: 'ref/resource', uri: 'file:///logs/{day}' },
    ],
  ] as const;
  for (const [ref, asked] of refs) {
    const answer = await client.result('completion/complete', { ref, argument, context });
    assert.deepEqual(answer['asked'], { ref: asked, argument, context });
  }
  assert.equal(one.requests('completion/complete').length, 0);

  for (const ref of [{ type: 'ref/prompt', name: 'greet' }, { type: 'ref/tool', name: 'two__echo' }, undefined]) {
    const { answer } = await client.request('completion/complete', { ref, argument });
    assert.ok(answer.kind === 'error');
    assert.equal(answer.error.code, -32602);
  }
});

for (const [era, start] of [
  ['legacy', legacyUpstream],
  ['modern', modernUpstream],
] as const) {
  suite(`completion at a ${era} upstream that does not declare it`, () => {
    const params = { ref: { type: 'ref/prompt', name: 'up__greet' }, argument: { name: 'who', value: 'A' } };
    const complete = async (answer: ServerScript['answers'], capabilities: object = {}) => {
      await using up = await start({
        capabilities: { prompts: {}, ...capabilities },
        prompts: [{ name: 'greet' }],
        answers: { ...answer },
      });
      await using gateway = await testCore({ up: up.config });
      const { answer: legacy } = await (await gateway.connect()).request('completion/complete', params);
      const modern = await modernRequest(gateway, 'completion/complete', params).reply;
      return [legacy.kind === 'error' ? { error: legacy.error } : { result: JSON.parse(legacy.result) }, modern];
    };
    const refusing = (code: number) => ({ 'completion/complete': refuseWith({ code, message: 'no' }) });

    test('is empty if it has no such method', TIMEOUT, async () => {
      const none = { result: { completion: { values: [] } } };
      assert.partialDeepStrictEqual(await complete(refusing(-32_601)), [none, none]);
      assert.partialDeepStrictEqual(await complete({}), [none, none]);
    });

    test('has the values of one that answers nevertheless', TIMEOUT, async () => {
      const completion = { values: ['Ada'] };
      const got = await complete({ 'completion/complete': () => ({ completion }) });
      assert.partialDeepStrictEqual(got, [{ result: { completion } }, { result: { completion } }]);
    });

    test('fails with another error, and with each error of one that declares it', TIMEOUT, async () => {
      for (const [code, declared] of [
        [-32_602, {}],
        [-32_601, { completions: {} }],
      ] as const) {
        assert.partialDeepStrictEqual(await complete(refusing(code), declared), [
          { error: { code } },
          { error: { code } },
        ]);
      }
    });
  });
}

// M-006 M-007
test('unknown items are refused with the code of their kind, and not forwarded', TIMEOUT, async () => {
  const memory = mirror();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const cases = [
    ['tools/call', { name: 'nobody__echo' }, -32602],
    ['tools/call', {}, -32602],
    ['tools/call', { name: 7 }, -32602],
    ['prompts/get', { name: 'nobody__greet' }, -32602],
    ['resources/read', { uri: 'nobody+file:///a' }, -32002],
    ['resources/read', {}, -32602],
    ['logging/setLevel', {}, -32602],
    ['resources/subscribe', {}, -32602],
  ] as const;
  for (const [method, params, code] of cases) {
    const { answer } = await client.request(method, params);
    assert.ok(answer.kind === 'error', method);
    assert.equal(answer.error.code, code, method);
  }
  const asked = memory.peers.flatMap(({ received }) => received.map((m) => ('method' in m ? m.method : '')));
  assert.ok(!asked.some((method) => ['tools/call', 'prompts/get', 'resources/read'].includes(method)), asked.join());
});

test('unknown methods are refused and not forwarded', TIMEOUT, async () => {
  const memory = mirror();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  for (const method of ['tools/destroy', 'server/discover', 'tasks/get', '', '__proto__']) {
    const { answer } = await client.request(method);
    assert.ok(answer.kind === 'error');
    assert.equal(answer.error.code, -32601, method);
  }
  const again = await client.request('initialize', { protocolVersion: '2025-11-25' });
  assert.ok(again.answer.kind === 'error');
  assert.equal(again.answer.error.code, -32600);
});

//
test('a result is translated to the client’s revision', TIMEOUT, async () => {
  const link = { type: 'resource_link', uri: 'file:///a', name: 'a' };
  const memory = memoryUpstream({
    lists: { tools: [{ ...ECHO, outputSchema: { type: 'object' } }] },
    request: (peer, request) => peer.send(result(request, { content: [link], structuredContent: { n: 1 } })),
  });
  await using gateway = await testCore({ up: { memory } });
  const now = await gateway.connect();
  assert.deepEqual(await now.result('tools/call', toolCall('up__echo')), {
    content: [{ ...link, uri: 'up+file:///a' }],
    structuredContent: { n: 1 },
  });
  const then = await gateway.connect({ revision: '2024-11-05' });
  const { content, structuredContent } = await then.result('tools/call', toolCall('up__echo'));
  assert.equal(structuredContent, undefined);
  assert.ok(Array.isArray(content) && content.every((block: { type: string }) => block.type === 'text'));
  const { tools } = await then.result('tools/list');
  assert.deepEqual(tools, [{ ...ECHO, name: 'up__echo' }]);
});

// L-002
test('initialize is answered with the requested revision, else with the latest', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: mirror() } });
  for (const revision of ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']) {
    const { initialized } = await gateway.connect({ revision });
    assert.equal(initialized.string('protocolVersion'), revision);
  }
  for (const revision of ['2026-07-28', '1999-01-01', '']) {
    const { initialized } = await gateway.connect({ revision });
    assert.equal(initialized.string('protocolVersion'), '2025-11-25');
  }
});
