/** Changes of lists, and resources and prompts that do not exist, at servers of other SDKs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { initialize, post, postForEvents, rpc } from '../downstream/client.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { startSetting } from './setting.ts';

const SESSION = { client: 'typescript1', mode: 'legacy' } as const;
const MODERN = { client: 'typescript2', mode: 'modern' } as const;
const INVALID_PARAMS = -32_602;
const WAIT_MS = 10_000;

for (const id of ['python1-http', 'python2-http', 'fastmcp4-http', 'typescript1-http', 'typescript2-http']) {
  // N-46
  test(`an unknown resource of ${id} is -32602 for a modern client`, async () => {
    await using setting = await startSetting(id);
    const uri = setting.uri('nothing/of/the/kind');
    const { error } = answerOf(await modernPost(setting.gateway.endpoint(id), 'resources/read', { uri }));
    assert.equal(error?.code, INVALID_PARAMS, JSON.stringify(error));
  });

  // N-91
  test(`an unknown prompt of ${id} is -32602 for a modern client`, async () => {
    await using setting = await startSetting(id);
    const { error } = answerOf(await modernPost(setting.gateway.endpoint(id), 'prompts/get', { name: 'nothing' }));
    assert.equal(error?.code, INVALID_PARAMS, JSON.stringify(error));
  });
}

for (const id of ['typescript1-http', 'python1-stdio', 'typescript2-http']) {
  for (const kind of [SESSION, MODERN]) {
    // A server of the Python SDK 1.x does not declare that it announces changes, so no modern client can listen for
    // them.
    if (id === 'python1-stdio' && kind === MODERN) continue;
    // N-48
    test(`each change that ${id} announces reaches a ${kind.mode} client`, async () => {
      await using setting = await startSetting(id);
      await using client = await setting.connect(kind);
      await client.watch();
      // `change` adds a tool, or nothing; `touch` and `echo` change no list.
      await client.call('change');
      await client.waitForNotification('notifications/tools/list_changed', WAIT_MS);
    });
  }
}

// N-48
test('a cancelled call of a session gets no answer, and its stream ends', async () => {
  await using setting = await startSetting('python1-stdio');
  const endpoint = setting.gateway.endpoint('python1-stdio');
  const session = await initialize(endpoint);
  const notify = (method: string, params = {}) =>
    post(endpoint, JSON.stringify({ jsonrpc: '2.0', method, params }), session);
  await notify('notifications/initialized');
  const slow = rpc(7, 'tools/call', { name: 'slow', arguments: {}, _meta: { progressToken: 'slow' } });
  const calling = postForEvents(endpoint, slow, session);
  // Answered after the call has begun, because both use one pipe.
  await post(endpoint, rpc(8, 'tools/call', { name: 'echo', arguments: { text: 'meanwhile' } }), session);
  await notify('notifications/cancelled', { requestId: 7 });
  const stream = await (await calling).ended();
  assert.deepEqual(
    stream.messages.filter(({ id }) => id !== undefined),
    [],
  );
});

// N-48
test('ids beyond 2^53 and of 200 characters are returned unchanged', async () => {
  await using setting = await startSetting('typescript1-http');
  const endpoint = setting.gateway.endpoint('typescript1-http');
  const session = await initialize(endpoint);
  for (const id of ['9007199254740993', `"${'i'.repeat(200)}"`]) {
    const body = `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}`;
    const { text } = await post(endpoint, body, session);
    assert.ok(text.includes(`"id":${id}`) && text.includes('"result"'), text);
  }
});

// N-48
test('a second initialize in a session is refused', async () => {
  await using setting = await startSetting('typescript1-http');
  const endpoint = setting.gateway.endpoint('typescript1-http');
  const session = await initialize(endpoint);
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
  const { text } = await post(endpoint, rpc(1, 'initialize', params), session);
  assert.match(text, /"error"/);
});
