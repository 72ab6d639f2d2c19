/** Sessions of servers of other SDKs that the gateway continues after a restart. */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { getEvents, initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { waitUntil } from '../support/wait-until.ts';
import { SERVER_CELLS, startServer } from './servers.ts';

const TIMEOUT = { timeout: 120_000 };
const UPDATED = 'notifications/resources/updated';

/** Calls a tool, and returns all messages of its answer. */
async function call(endpoint: string, session: string, name: string): Promise<string> {
  const messages = messagesOf(await post(endpoint, rpc(1, 'tools/call', { name, arguments: {} }), session));
  return JSON.stringify(messages.at(-1));
}

for (const id of ['typescript1-http', 'typescript2-http', 'python1-http', 'python2-http', 'go-http-sessions']) {
  // D7
  test(`after a kill a session goes on with its session at ${id}`, TIMEOUT, async () => {
    const cell = SERVER_CELLS.find((each) => each.id === id) ?? assert.fail(id);
    await using server = await startServer(cell);
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-peers-'));
    try {
      const start = () => startGateway({ mcpServers: { [id]: server.config } }, { dir });
      const uri = `peer://${id}/watched`;
      let session: string;
      {
        await using gateway = await start();
        const endpoint = gateway.endpoint(id);
        session = await initialize(endpoint);
        await post(endpoint, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), session);
        await post(endpoint, rpc(2, 'resources/subscribe', { uri }), session);
        for (const count of ['1', '2']) assert.match(await call(endpoint, session, 'count'), new RegExp(`"${count}"`));
        const file = join(dir, 'state', 'sessions.jsonl');
        await waitUntil(async () => (await readFile(file, 'utf8')).includes('"attach"'));
        gateway.kill('SIGKILL');
        await gateway.ended;
      }
      await using gateway = await start();
      const endpoint = gateway.endpoint(id);
      const stream = await getEvents(endpoint, session);
      const updates = () => stream.messages.filter(({ method }) => method === UPDATED).length;
      // For the time without the gateway.
      await stream.until(() => updates() >= 1);
      const third = await call(endpoint, session, 'count');
      assert.match(third, /"3"/);
      assert.doesNotMatch(third, /stateLost/);
      const before = updates();
      await call(endpoint, session, 'touch');
      await stream.until(() => updates() > before);
      stream.close();
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });
}
