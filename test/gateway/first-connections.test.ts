import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Principal } from '../../src/policy/principal.ts';
import { testCore, toolCall } from '../support/core.ts';
import { memoryUpstream, result } from '../support/memory-upstream.ts';
import { ModernClient } from '../support/modern-client.ts';
import { SessionServer } from '../support/session-server.ts';

const TIMEOUT = { timeout: 120_000 };
const FORM = { elicitation: { form: {} } };

const principal = (key: string): Principal => ({ key, label: key, scopes: [] });

for (const isolation of ['session', 'principal', 'call'] as const) {
  // D6
  test(`isolation ${isolation}: first calls of principals share no remote session`, TIMEOUT, async () => {
    await using server = await SessionServer.start();
    const target = { kind: 'http', url: server.url, headers: {} } as const;
    await using gateway = await testCore({ up: { target, isolation, era: 'auto' } });
    const clients = ['ann', 'bob', 'eve'].map((key) => new ModernClient(gateway, {}, principal(key)));
    await clients[0]?.result('tools/list');
    // The lists are on the disk, and the era is not known any more.
    await gateway.restart();
    const replies = await Promise.all(
      clients.map((client) => client.request('tools/call', toolCall('up__count')).reply),
    );
    for (const { result: counted, error } of replies) {
      assert.deepEqual(counted?.['content'], [{ type: 'text', text: '1' }], JSON.stringify(error));
    }
  });
}

//
test('a first request gets no process with the client features of another one', TIMEOUT, async () => {
  const declared: string[] = [];
  const memory = memoryUpstream({
    capabilities: { prompts: {} },
    lists: { prompts: [{ name: 'act', arguments: [{ name: 'declares' }] }] },
    request: (peer, request) => {
      const { declares } = Object(request.params?.value('arguments'));
      if (request.method === 'prompts/get') declared.push(`${declares} ${peer.capabilities.toString()}`);
      peer.send(result(request, { messages: [] }));
    },
  });
  await using gateway = await testCore({ up: { memory, era: 'auto' } });
  const asked = [{}, FORM].map(async (capabilities) => {
    const prompt = { name: 'act', arguments: { declares: JSON.stringify(capabilities) } };
    return await new ModernClient(gateway, capabilities).request('prompts/get', prompt, { view: 'up' }).reply;
  });
  for (const { error } of await Promise.all(asked)) assert.equal(error, undefined);
  const form = JSON.stringify(FORM);
  assert.deepEqual(new Set(declared), new Set([`${form} ${form}`, '{} {}']));
});
