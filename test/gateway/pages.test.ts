import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { testCore } from '../support/core.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result } from '../support/memory-upstream.ts';
import { inputRequiredIn, modernRequest } from '../support/modern-client.ts';
import { stopTime } from '../support/stopped-time.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const URL_FORM = { elicitation: { form: {}, url: {} } };
const PAGE = { mode: 'url', message: 'Sign in', url: 'https://example.org/in', elicitationId: 'el-1' };
const SHOWN = { method: 'elicitation/create', params: { mode: 'url', message: 'Sign in', url: PAGE.url } };

const DONE: Readonly<Record<string, object>> = {
  'tools/call': { content: [{ type: 'text', text: 'in' }] },
  'prompts/get': { messages: [] },
  'resources/read': { contents: [] },
  'completion/complete': { completion: { values: [] } },
};
const ASKED: Readonly<Record<string, object>> = {
  'tools/call': { name: 'up__t', arguments: {} },
  'prompts/get': { name: 'up__p' },
  'resources/read': { uri: 'up+test://a' },
};

/** A server of 2025-11-25 that does nothing before a page was opened. */
function guarded(): MemoryUpstream & { readonly opened: () => void; readonly report: (peer: Peer) => void } {
  let isOpen = false;
  const memory = memoryUpstream({
    capabilities: { tools: {}, prompts: {}, resources: {}, completions: {} },
    lists: {
      tools: [{ name: 't', inputSchema: { type: 'object' } }],
      prompts: [{ name: 'p', arguments: [{ name: 'a' }] }],
      resources: [{ uri: 'test://a', name: 'a' }],
    },
    request: (peer, request) => {
      const error = { code: -32042, message: 'Sign in first', data: { elicitations: [PAGE] } };
      peer.send(
        isOpen
          ? result(request, DONE[request.method] ?? {})
          : `{"jsonrpc":"2.0","id":${request.id},"error":${JSON.stringify(error)}}`,
      );
    },
  });
  const report = (peer: Peer) => {
    const params = JSON.stringify({ elicitationId: PAGE.elicitationId });
    peer.send(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":${params}}`);
  };
  const opened = () => {
    isOpen = true;
    for (const peer of memory.open) report(peer);
  };
  return { ...memory, opened, report };
}

// X-020 REL-06
test('a retry whose client goes while it waits for the page gives back its place', TIMEOUT, async (t) => {
  const memory = guarded();
  await using gateway = await testCore({ up: { memory } }, { limits: { inFlightPerSession: 1 } });
  const options = { capabilities: URL_FORM };
  const params = ASKED['tools/call'] ?? {};
  const { inputRequests, requestState } = inputRequiredIn(
    await modernRequest(gateway, 'tools/call', params, options).reply,
  );
  const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, { action: 'accept' }]));
  // The wait does not end by itself.
  stopTime(t);
  const retry = modernRequest(gateway, 'tools/call', { ...params, requestState, inputResponses }, options);
  await waitUntil(async () => (await modernRequest(gateway, 'tools/call', params, options).reply).error !== undefined);
  retry.call.cancel('gone');
  await retry.reply;
  inputRequiredIn(await modernRequest(gateway, 'tools/call', params, options).reply);
});

// SEC-12 X-026
test('a page that another principal’s process reports does not end a wait', TIMEOUT, async () => {
  // Each process counts its pages from 1.
  const memory = guarded();
  await using gateway = await testCore({ up: { memory } });
  const [ann, bob] = ['ann', 'bob'].map((key) => ({
    capabilities: URL_FORM,
    principal: { key, label: key, scopes: [] },
  }));
  const params = ASKED['tools/call'] ?? {};
  inputRequiredIn(await modernRequest(gateway, 'tools/call', params, ann).reply);
  const before = new Set(memory.open);
  const { inputRequests, requestState } = inputRequiredIn(
    await modernRequest(gateway, 'tools/call', params, bob).reply,
  );
  const ofBob = [...memory.open].filter((peer) => !before.has(peer));
  assert.equal(ofBob.length, 1);
  for (const peer of before) memory.report(peer);
  const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, { action: 'accept' }]));
  const retry = modernRequest(gateway, 'tools/call', { ...params, requestState, inputResponses }, bob);
  for (const peer of before) memory.report(peer);
  // Requests after it are answered without it.
  for (let i = 0; i < 3; i++) inputRequiredIn(await modernRequest(gateway, 'tools/call', params, ann).reply);
  assert.equal(memory.requests('tools/call').length, 5, 'the retry has waited');
  for (const peer of ofBob) memory.report(peer);
  inputRequiredIn(await retry.reply);
});

//
suite('an upstream of 2025-11-25 that requires a URL elicitation first', () => {
  for (const [method, params] of Object.entries(ASKED)) {
    test(`${method}: the client gets the URL, and its retry is sent after it`, TIMEOUT, async () => {
      const memory = guarded();
      await using gateway = await testCore({ up: { memory } });
      const options = { capabilities: URL_FORM };
      const { inputRequests, requestState } = inputRequiredIn(
        await modernRequest(gateway, method, params, options).reply,
      );
      assert.deepEqual(Object.values(inputRequests), [SHOWN]);
      const [key = ''] = Object.keys(inputRequests);
      const retry = { ...params, requestState, inputResponses: { [key]: { action: 'accept' } } };
      const second = modernRequest(gateway, method, retry, options);
      // Others ask meanwhile, and the retry does not go with them.
      for (let i = 0; i < 3; i++) inputRequiredIn(await modernRequest(gateway, method, params, options).reply);
      assert.equal(memory.requests(method).length, 4);
      memory.opened();
      assert.partialDeepStrictEqual(await second.reply, { result: { resultType: 'complete', ...DONE[method] } });
      const calls = memory.requests(method).map((one) => JSON.parse(one.params?.toString() ?? '{}'));
      assert.equal(calls.length, 5);
      assert.deepEqual(calls[4], calls[0]);
      for (const one of calls) assert.ok(!('requestState' in one) && !('inputResponses' in one));
    });

    test(`${method}: a user who declines ends it with an error of its own`, TIMEOUT, async () => {
      const memory = guarded();
      await using gateway = await testCore({ up: { memory } });
      const options = { capabilities: URL_FORM };
      const { inputRequests, requestState } = inputRequiredIn(
        await modernRequest(gateway, method, params, options).reply,
      );
      const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, { action: 'decline' }]));
      const { result: ended, error } = await modernRequest(
        gateway,
        method,
        { ...params, requestState, inputResponses },
        options,
      ).reply;
      if (method === 'tools/call') assert.partialDeepStrictEqual(ended, { resultType: 'complete', isError: true });
      else assert.equal(error?.code, -31019, JSON.stringify(ended));
      assert.equal(memory.requests(method).length, 1);
    });

    //
    test(`${method}: a request that did not declare it gets the missing capability`, TIMEOUT, async () => {
      await using gateway = await testCore({ up: { memory: guarded() } });
      const { error } = await modernRequest(gateway, method, params, { capabilities: { elicitation: {} } }).reply;
      assert.partialDeepStrictEqual(error, {
        code: -32021,
        data: { requiredCapabilities: { elicitation: { url: {} } } },
      });
    });
  }

  //
  test('a retry without a response for the URL is asked again', TIMEOUT, async () => {
    const memory = guarded();
    await using gateway = await testCore({ up: { memory } });
    const options = { capabilities: URL_FORM };
    const params = ASKED['tools/call'] ?? {};
    const first = inputRequiredIn(await modernRequest(gateway, 'tools/call', params, options).reply);
    const retry = { ...params, requestState: first.requestState, inputResponses: {} };
    const again = inputRequiredIn(await modernRequest(gateway, 'tools/call', retry, options).reply);
    assert.deepEqual(again.inputRequests, first.inputRequests);
  });

  // X-025 X-012
  test('a request that may not require input fails, and never with -32042', TIMEOUT, async () => {
    await using gateway = await testCore({ up: { memory: guarded() } });
    const params = { ref: { type: 'ref/prompt', name: 'up__p' }, argument: { name: 'a', value: '' } };
    const options = { capabilities: URL_FORM };
    const { error } = await modernRequest(gateway, 'completion/complete', params, options).reply;
    assert.equal(error?.code, -31012, JSON.stringify(error));
  });
});
