import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { Child } from '../support/child.ts';
import { marker } from '../support/leftovers.ts';
import { openGateway } from '../support/open-gateway.ts';

const SERVER = join(import.meta.dirname, '../fixtures/servers/ledger-http.ts');
/** One more than the failures that are a crash loop of a process. */
const TIMES = 6;

// N-01
test('a remote server that ends connections again and again is used again', { timeout: 120_000 }, async () => {
  await using server = await Child.start(process.execPath, [SERVER, 'sse'], { env: marker() });
  const origin = await server.waitForLine((line) => /^listening on (\S+)/.exec(line)?.[1]);
  await using gateway = await openGateway({ remote: { type: 'sse', url: `${origin}/sse` } });
  const call = async (session: string, way: string) => {
    const args = { call: way, attempt: 1, nonce: 'nonce:a:1:1;', way, steps: 0, pauseMs: 150 };
    const got = await post(gateway.url, rpc(1, 'tools/call', { name: 'remote__act', arguments: args }), session);
    return JSON.stringify(messagesOf(got));
  };
  for (let n = 0; n < TIMES; n++) {
    // The connection of a new session ends before it has answered a call.
    assert.match(await call(await initialize(gateway.url), 'vanish'), /"code":"upstream-lost"/);
  }
  assert.match(await call(await initialize(gateway.url), 'answer'), /nonce:a:1:1;/);
});
