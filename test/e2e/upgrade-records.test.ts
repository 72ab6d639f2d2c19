/** Tests that replicas of two versions restore each other's sessions. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { getEvents, initialize, post, rpc } from '../downstream/client.ts';
import { SpyUpstream } from '../support/handles/spy-upstream.ts';
import { NO_HISTORY, OlderVersion } from '../support/older-version.ts';
import { MISSING, Replicas } from '../support/replicas.ts';
import { waitUntil } from '../support/wait-until.ts';

const SKIP = MISSING ?? NO_HISTORY;
const OPTIONS = { timeout: 170_000, ...(SKIP === undefined ? {} : { skip: SKIP }) };

// R10
test('the record of a session is restored by another version, both ways', OPTIONS, async () => {
  await using older = await OlderVersion.checkout();
  await using spy = await SpyUpstream.start();
  const config = { mcpServers: { leg: { url: spy.url, start: 'eager' } } };
  await using replicas = await Replicas.start(2, config, {}, 'in turn', [older.program]);
  await replicas.untilAllKnown();
  // Replica 0 ends, and 1 restores its session; then the other way round.
  for (const owner of [0, 1]) {
    const other = 1 - owner;
    const uri = `test://watched/${owner}`;
    const url = replicas.at(owner).endpoint();
    const session = await initialize(url);
    await post(url, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), session);
    const subscribed = await post(url, rpc(1, 'resources/subscribe', { uri }), session);
    assert.match(subscribed.text, /"result"/);
    const echo = { name: 'leg__echo', arguments: { nonce: 'before' } };
    assert.match((await post(url, rpc(2, 'tools/call', echo), session)).text, /before/);
    replicas.at(owner).kill('SIGTERM');
    await replicas.at(owner).ended;

    const stream = await getEvents(replicas.at(other).endpoint(), session);
    assert.equal(stream.status, 200);
    const again = { name: 'leg__echo', arguments: { nonce: 'after' } };
    const got = await post(replicas.at(other).endpoint(), rpc(3, 'tools/call', again), session);
    assert.match(got.text, /after/);
    assert.doesNotMatch(got.text, /stateLost/, 'the session at the upstream is continued');
    await waitUntil(async () => {
      spy.update(uri);
      return stream.seen.some(({ data }) => data.includes(uri));
    });
    stream.close();
    if (owner === 0) await replicas.restart(0, older.program);
  }
});
