import assert from 'node:assert/strict';
import { test } from 'node:test';
import { initialize, messagesOf, post, rpc } from '../../downstream/client.ts';
import { freePort } from '../../support/free-port.ts';
import { legacyUpstream } from '../../support/http-upstream.ts';
import { answerOf, modernPost } from '../../support/modern-wire.ts';
import { openGateway } from '../../support/open-gateway.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOLS = [{ name: 'echo', inputSchema: { type: 'object' } }];
const LISTS = { prompts: { listChanged: true }, tools: { listChanged: true } };
const PLAIN = { ...LISTS, completions: {}, resources: { listChanged: true } };
const ALL = { ...LISTS, completions: {}, logging: {}, resources: { subscribe: true, listChanged: true } };

async function discover(url: string): Promise<unknown> {
  return answerOf(await modernPost(url, 'server/discover')).result?.['capabilities'];
}

async function declaredToSession(url: string): Promise<unknown> {
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'x', version: '1' } };
  return answerOf(await post(url, rpc(0, 'initialize', params))).result?.['capabilities'];
}

const ERAS = [
  ['legacy', declaredToSession],
  ['modern', discover],
] as const;

for (const [era, declared] of ERAS) {
  test(`the first ${era} client of two servers hears of all that they may have`, TIMEOUT, async () => {
    const capabilities = { tools: {}, resources: { subscribe: true }, logging: {}, completions: {} };
    await using one = await legacyUpstream({ capabilities, tools: TOOLS });
    await using other = await legacyUpstream({ capabilities, tools: TOOLS });
    await using gateway = await openGateway({ one: { url: one.url }, other: { url: other.url } });
    assert.deepEqual(await declared(gateway.url), ALL);
    await modernPost(gateway.url, 'tools/list');
    assert.deepEqual(await declared(gateway.url), ALL);
  });

  test(`a server that cannot be reached adds nothing to the capabilities of a ${era} client`, TIMEOUT, async () => {
    await using up = await legacyUpstream({ tools: TOOLS });
    const down = { url: `http://127.0.0.1:${await freePort()}/mcp` };
    await using gateway = await openGateway({ up: { url: up.url }, down });
    // It waits until each upstream is listed or has failed.
    await modernPost(gateway.url, 'tools/list');
    assert.deepEqual(await declared(gateway.url), PLAIN);
  });
}

test('a capability that no server turns out to have is answered nevertheless', TIMEOUT, async () => {
  const [one, other] = [await legacyUpstream({ tools: TOOLS }), await legacyUpstream({ prompts: [{ name: 'p' }] })];
  await using _one = one;
  await using _other = other;
  await using gateway = await openGateway({ one: { url: one.url }, other: { url: other.url } });
  const session = await initialize(gateway.url);
  await post(gateway.url, rpc(1, 'prompts/list'), session);
  const answer = async (method: string, params: object) =>
    messagesOf(await post(gateway.url, rpc(2, method, params), session)).at(-1);
  assert.deepEqual((await answer('logging/setLevel', { level: 'info' }))?.result, {});
  const argument = { name: 'a', value: '' };
  const completed = await answer('completion/complete', { ref: { type: 'ref/prompt', name: 'other__p' }, argument });
  assert.deepEqual(completed?.result, { completion: { values: [] } });
  assert.ok((await answer('resources/subscribe', { uri: 'one+file:///a' }))?.error !== undefined);
});
