import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { legacyUpstream } from '../support/http-upstream.ts';
import { referenceServers } from '../support/reference-servers.ts';
import { membersOf } from '../support/members.ts';
import { callTool, think, THOUGHT } from '../support/thinking.ts';

const TIMEOUT = { timeout: 120_000 };

// N-03
test('at the process limit each session keeps its state, and a new one is refused', TIMEOUT, async () => {
  const server = referenceServers(tmpdir())['sequential-thinking'];
  // A process that only reads lists makes room for a session, however long that takes. Only the refused call waits briefly.
  const mcpServers = { thinking: { ...server, queueWait: '50s' }, brief: { ...server, queueWait: '300ms' } };
  await using gateway = await startGateway({ mcpServers, gateway: { limits: { processes: 2 } } });
  const url = gateway.endpoint();
  const [a, b] = [await initialize(url), await initialize(url)];
  assert.match((await post(url, rpc(1, 'tools/list'), a)).text, /brief__sequentialthinking/);
  for (const session of [a, b]) assert.deepEqual(await think(url, session), { thoughts: 1, lost: undefined });
  const refused = await callTool(url, await initialize(url), 'brief__sequentialthinking', THOUGHT);
  assert.partialDeepStrictEqual(refused['error'], {
    data: { code: 'overloaded', upstream: 'brief', executed: 'no', retryable: true },
  });
  assert.match(String(membersOf(refused['error'])['message']), /all processes .*gateway\.limits\.processes: 2/);
  for (const session of [a, b]) assert.deepEqual(await think(url, session), { thoughts: 2, lost: undefined });
});

// N-03
test('after a restart of the gateway the first answer says that the thoughts are lost', TIMEOUT, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-state-'));
  try {
    const file = { mcpServers: { thinking: referenceServers(dir)['sequential-thinking'] } };
    let session: string;
    {
      await using gateway = await startGateway(file, { dir });
      session = await initialize(gateway.endpoint());
      assert.deepEqual(await think(gateway.endpoint(), session), { thoughts: 1, lost: undefined });
    }
    await using gateway = await startGateway(file, { dir });
    const first = await think(gateway.endpoint(), session);
    assert.equal(first.thoughts, 1);
    assert.partialDeepStrictEqual(first.lost, { upstream: 'thinking', reason: 'restored' });
    assert.deepEqual(await think(gateway.endpoint(), session), { thoughts: 2, lost: undefined });
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

// N-60
test('with the defaults, 200 sessions of a remote upstream keep their connections', TIMEOUT, async () => {
  let sessions = 0;
  const initialized = {
    protocolVersion: '2025-11-25',
    capabilities: { tools: {} },
    serverInfo: { name: 'r', version: '1' },
  };
  await using upstream = await legacyUpstream({
    tools: [{ name: 'who', inputSchema: { type: 'object' } }],
    answers: {
      initialize: ({ response }) => {
        response.setHeader('mcp-session-id', `s${++sessions}`);
        return initialized;
      },
      'tools/call': ({ headers }) => ({ content: [{ type: 'text', text: String(headers['mcp-session-id']) }] }),
    },
  });
  await using gateway = await startGateway({ mcpServers: { remote: { url: upstream.url } } });
  const url = gateway.endpoint();
  const clients = await Promise.all(Array.from({ length: 200 }, () => initialize(url)));
  const who = async (session: string) => JSON.stringify((await callTool(url, session, 'remote__who', {}))['result']);
  const first = await Promise.all(clients.map(who));
  assert.equal(new Set(first).size, 200);
  assert.deepEqual(await Promise.all(clients.map(who)), first);
  assert.equal(upstream.requests('initialize').length, 201, 'one more, for the lists');
});
