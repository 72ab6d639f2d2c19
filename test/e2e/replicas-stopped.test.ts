import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, messagesOf, post, postForEvents, rpc, send } from '../downstream/client.ts';
import { act } from '../support/nonce-remote.ts';
import { MISSING, Replicas } from '../support/replicas.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000, ...(MISSING === undefined ? {} : { skip: MISSING }) };
const NONCE = {
  command: process.execPath,
  args: [join(import.meta.dirname, '../fixtures/servers/nonce-stdio.ts')],
};
const LOST = 'io.linkspan/stateLost';

/** Returns whether an answer reports that the state behind it is lost. */
function reportsLoss(result: unknown): boolean {
  return JSON.stringify(result ?? {}).includes(LOST);
}

// REL-27
test('the first answer of a replica that was stopped says that its state is lost', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, { mcpServers: { nonce: NONCE } });
  const [stopped, other] = [replicas.at(0), replicas.at(1)];
  const session = await initialize(stopped.endpoint());
  const slow = act('nonce:1:1;', ['progress'], { pauseMs: 1_500 });
  const first = await postForEvents(stopped.endpoint(), rpc(1, 'tools/call', slow), session);
  await first.until(({ messages }) => messages.some(({ method }) => method === 'notifications/progress'));
  // The process of the upstream goes on, and answers while the replica is stopped.
  stopped.pause();
  let second = await post(other.endpoint(), rpc(2, 'tools/call', act('nonce:2:2;', [])), session);
  await waitUntil(async () => {
    if (second.status === 200 && messagesOf(second).at(-1)?.result !== undefined) return true;
    second = await post(other.endpoint(), rpc(2, 'tools/call', act('nonce:3:3;', [])), session);
    return false;
  });
  const later = messagesOf(second).at(-1)?.result;
  assert.ok(!reportsLoss(later), 'the new owner knows of no state');

  stopped.resume();
  await first.until(({ messages }) => messages.some(({ id }) => id === 1));
  const { result } = first.messages.find(({ id }) => id === 1) ?? {};
  assert.match(JSON.stringify(result), /nonce:1:1;/);
  assert.ok(reportsLoss(result), JSON.stringify(result));
  assert.match(JSON.stringify(result), /"reason":"restored"/);
  const third = await post(stopped.endpoint(), rpc(3, 'tools/call', act('nonce:4:4;', [])), session);
  assert.equal(third.status, 200, third.text);
  assert.ok(!third.text.includes(LOST), 'reported once');
});

// SEC-12
test('a replica that was stopped does not take an ended session back', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, { mcpServers: { nonce: NONCE } });
  const [stopped, other] = [replicas.at(0), replicas.at(1)];
  const session = await initialize(stopped.endpoint());
  assert.equal((await post(stopped.endpoint(), rpc(1, 'ping'), session)).status, 200);
  stopped.pause();
  const headers = { 'mcp-session-id': session };
  // Until the lease of the stopped replica has lapsed, its session cannot be ended.
  await waitUntil(async () => (await send(other.endpoint(), { method: 'DELETE', headers })).status === 204);
  stopped.resume();
  assert.equal((await post(stopped.endpoint(), rpc(2, 'ping'), session)).status, 404);
  assert.equal((await post(other.endpoint(), rpc(3, 'ping'), session)).status, 404);
});

// R12
test('a state that begins while Redis is away is reported when it is lost', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, { mcpServers: { nonce: NONCE } });
  const [owner, other] = [replicas.at(0), replicas.at(1)];
  const session = await initialize(owner.endpoint());
  const call = (url: string, id: number) => post(url, rpc(id, 'tools/call', act(`nonce:${id}:${id};`, [])), session);
  replicas.redis.pause();
  const first = await call(owner.endpoint(), 1);
  assert.match(first.text, /nonce:1:1;/);
  assert.ok(!first.text.includes(LOST), 'the session has not moved');
  replicas.redis.resume();
  // Answers record the state as soon as Redis can be used again.
  await waitUntil(async () => {
    await call(owner.endpoint(), 2);
    return (await replicas.redis.keys('*:rec:*')).length > 0;
  });
  owner.kill('SIGKILL');
  let text = '';
  await waitUntil(async () => {
    text = (await call(other.endpoint(), 3)).text;
    return text.includes('nonce:3:3;') && text.includes('"result"');
  });
  assert.ok(text.includes(LOST), text);
});
