/** Questions of servers during a call, with servers and clients of other SDKs. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { answerOf, modernEvents, modernPost } from '../support/modern-wire.ts';
import { command } from './install/command.ts';
import { goPrograms } from './install/go.ts';
import { startSetting } from './setting.ts';

const MODERN = { client: 'typescript2', mode: 'modern' } as const;
const ROUNDS = 8;
const MISSING_CAPABILITY = -32_021;
const INVALID_PARAMS = -32_602;

/** Calls a tool that needs an undeclared capability. Returns whether it is refused, possibly by the server itself. */
async function isRefused(endpoint: string, tool: string): Promise<boolean> {
  const { error, result } = answerOf(await modernPost(endpoint, 'tools/call', { name: tool, arguments: {} }));
  return error?.code === MISSING_CAPABILITY || error?.code === INVALID_PARAMS || result?.['isError'] === true;
}

for (const id of ['python1-http', 'python1-sse', 'python1-stdio', 'python2-sse', 'go-http-sessions']) {
  // N-41
  test(`${id} continues with other calls after a refused question`, async () => {
    await using setting = await startSetting(id);
    const endpoint = setting.gateway.endpoint(id);
    const lost: unknown[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      for (const tool of ['ask_name', 'ask_model', 'ask_roots']) {
        const echo = (text: string) => modernPost(endpoint, 'tools/call', { name: 'echo', arguments: { text } });
        // First without another call: over one pipe the gateway cannot attribute a question to one of two calls.
        const alone = await isRefused(endpoint, tool);
        const next = await echo('next');
        const [refused, beside] = await Promise.all([isRefused(endpoint, tool), echo('beside')]);
        if (!alone || !refused) lost.push(`${tool}: not refused`);
        for (const answer of [next, beside, await echo('after')]) {
          const { error } = answerOf(answer);
          if (error !== undefined) lost.push(`${tool}: ${error.code} ${error.message}`);
        }
      }
    }
    assert.deepEqual(lost, [], `${lost.length} of ${ROUNDS * 3 * 5}`);
  });
}

for (const id of ['typescript1-http', 'python2-sse']) {
  // N-41
  test(`a listen on ${id} after a refused question gets its subscriptions`, async () => {
    await using setting = await startSetting(id);
    const endpoint = setting.gateway.endpoint(id);
    const uri = setting.uri('watched');
    for (let round = 0; round < ROUNDS * 2; round++) {
      assert.equal(await isRefused(endpoint, 'ask_roots'), true);
      const notifications = { resourceSubscriptions: [uri] };
      const listening = await modernEvents(endpoint, 'subscriptions/listen', { notifications });
      await listening.until(({ messages }) => messages.length > 0);
      const [acknowledged] = listening.messages;
      listening.close();
      assert.ok(JSON.stringify(acknowledged).includes(uri), `round ${round}: ${JSON.stringify(acknowledged)}`);
    }
  });
}

for (const id of ['python1-sse', 'python2-sse', 'typescript1-sse']) {
  // N-42
  test(`${id} configured without type asks in ten modern calls at once`, async () => {
    // The transport of 2024-11-05 does not attribute questions to calls, so the gateway must keep the calls apart.
    await using setting = await startSetting(id, {
      config: ({ place }) => (place.kind === 'stdio' ? {} : { url: place.url }),
    });
    await using client = await setting.connect(MODERN, ['elicitation']);
    const calls = await Promise.allSettled(Array.from({ length: 10 }, () => client.call('ask_name')));
    const outcomes = calls.map((one) => (one.status === 'fulfilled' ? one.value.text : String(one.reason)));
    assert.deepEqual(
      outcomes,
      Array.from({ length: 10 }, () => 'Hello, Ada'),
    );
  });
}

for (const id of ['typescript1-http', 'python1-stdio', 'typescript1-stdio']) {
  // N-44
  test(`a client of the Go SDK is asked for its roots by ${id}`, async () => {
    const programs = await goPrograms();
    await using setting = await startSetting(id);
    const text = await command(join(programs, 'client'), [
      setting.place.kind === 'stdio' ? '' : setting.place.url,
      'ask_roots',
    ]);
    assert.equal(text.trim(), 'file:///peer');
  });
}
