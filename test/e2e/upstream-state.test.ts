import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, messagesOf, post, rpc, send } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { legacyUpstream } from '../support/http-upstream.ts';
import { referenceServers } from '../support/reference-servers.ts';
import { childrenOf } from '../support/stdio.ts';

const TIMEOUT = { timeout: 60_000 };
const THOUGHT = { thought: 'one', thoughtNumber: 1, totalThoughts: 9, nextThoughtNeeded: true };
const ROOT = join(import.meta.dirname, '../..');

type Members = Readonly<Record<string, unknown>>;

function membersOf(value: unknown): Members {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}

/** Calls a tool in a session. Returns the answer: a result or an error. */
async function call(url: string, session: string, name: string, given: object): Promise<Members> {
  const got = await post(url, rpc(1, 'tools/call', { name, arguments: given }), session);
  return membersOf(messagesOf(got).find(({ id }) => id === 1));
}

/** Returns how many thoughts the server of this session remembers, and what the answer says about lost state. */
async function think(url: string, session: string): Promise<{ readonly thoughts: unknown; readonly lost: unknown }> {
  const answer = await call(url, session, 'thinking__sequentialthinking', THOUGHT);
  const result = membersOf(answer['result']);
  const thoughts = membersOf(result['structuredContent'])['thoughtHistoryLength'];
  return { thoughts, lost: membersOf(result['_meta'])['io.linkspan/stateLost'] };
}

test('N-03 at the process limit each session keeps its state, and a new one is refused', TIMEOUT, async () => {
  const thinking = { ...referenceServers(tmpdir())['sequential-thinking'], queueWait: '300ms' };
  await using gateway = await startGateway({ mcpServers: { thinking }, gateway: { limits: { processes: 2 } } });
  const url = gateway.endpoint();
  const [a, b] = [await initialize(url), await initialize(url)];
  for (const session of [a, b]) assert.deepEqual(await think(url, session), { thoughts: 1, lost: undefined });
  const refused = await call(url, await initialize(url), 'thinking__sequentialthinking', THOUGHT);
  assert.partialDeepStrictEqual(refused['error'], {
    data: { code: 'overloaded', upstream: 'thinking', executed: 'no', retryable: true },
  });
  assert.match(String(membersOf(refused['error'])['message']), /all processes .*gateway\.limits\.processes: 2/);
  for (const session of [a, b]) assert.deepEqual(await think(url, session), { thoughts: 2, lost: undefined });
});

test('N-03 after a restart of the gateway the first answer says that the thoughts are lost', TIMEOUT, async () => {
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

test('N-07 an npx server is one process, started once for its lists and its first session', TIMEOUT, async () => {
  const thinking = {
    command: 'npx',
    args: ['-y', '@modelcontextprotocol/server-sequential-thinking'],
    cwd: ROOT,
    env: { npm_config_update_notifier: 'false' },
  };
  await using gateway = await startGateway({ mcpServers: { thinking } });
  const url = gateway.endpoint();
  const session = await initialize(url);
  await post(url, rpc(1, 'tools/list'), session);
  const before = childrenOf(gateway.pid);
  assert.deepEqual(await think(url, session), { thoughts: 1, lost: undefined });
  assert.deepEqual(childrenOf(gateway.pid), before, 'no other process');
  const { text } = await send(`${gateway.operatorUrl}/status`, {});
  const [status] = JSON.parse(text).upstreams;
  assert.partialDeepStrictEqual(status, { id: 'thinking', connections: 1, processes: 1 });
  assert.ok(status.memoryBytes > 10 << 20, `${status.memoryBytes} bytes`);
  assert.equal(status.advice, undefined);
  await think(url, await initialize(url));
  const later = JSON.parse((await send(`${gateway.operatorUrl}/status`, {})).text).upstreams[0];
  assert.match(later.advice, /isolation: principal.*isolation: shared/);
  const isAboutTwo = (line: string) =>
    line.includes('"msg":"processes of upstreams"') && line.includes('"processes":2');
  const logged = JSON.parse(await gateway.waitForLog((line) => (isAboutTwo(line) ? line : undefined)));
  assert.match(logged.byUpstream.thinking.advice, /isolation: shared/);
  assert.ok(logged.byUpstream.thinking.memoryBytes > 20 << 20);
});

test('N-60 with the defaults, 200 sessions of a remote upstream keep their connections', TIMEOUT, async () => {
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
  const who = async (session: string) => JSON.stringify((await call(url, session, 'remote__who', {}))['result']);
  const first = await Promise.all(clients.map(who));
  assert.equal(new Set(first).size, 200);
  assert.deepEqual(await Promise.all(clients.map(who)), first);
  assert.equal(upstream.requests('initialize').length, 201, 'one more, for the lists');
});
