import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { type Events, getEvents, initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { assertWithin } from '../support/promised-time.ts';
import { MISSING, Replicas } from '../support/replicas.ts';
import { SessionServer, WATCHED } from '../support/session-server.ts';
import { isGone } from '../support/stdio.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000, ...(MISSING === undefined ? {} : { skip: MISSING }) };
const PID = { command: process.execPath, args: [join(import.meta.dirname, '../fixtures/servers/pid-stdio.ts')] };
const CHILDREN_MS = 5_000; // subject

/** Opens the GET stream of a session. Until the lease of its owner has lapsed, that is refused. */
async function listen(url: string, session: string): Promise<Events> {
  for (;;) {
    const stream = await getEvents(url, session);
    if (stream.status === 200) return stream;
    stream.close();
  }
}

// R11
test('after SIGKILL another replica restores a session, and reports what was missed', OPTIONS, async () => {
  await using upstream = await SessionServer.start();
  await using replicas = await Replicas.start(2, { mcpServers: { demo: { url: upstream.url } } });
  const [owner, other] = [replicas.at(0), replicas.at(1).endpoint('demo')];
  const session = await initialize(owner.endpoint('demo'));
  const call = async (url: string, method: string, params: object) => await post(url, rpc(1, method, params), session);
  const count = (url: string) => call(url, 'tools/call', { name: 'count', arguments: {} });
  assert.match((await count(owner.endpoint('demo'))).text, /"text":"1"/);
  await call(owner.endpoint('demo'), 'logging/setLevel', { level: 'warning' });
  await call(owner.endpoint('demo'), 'resources/subscribe', { uri: WATCHED });
  const served = upstream.sessions.find((each) => each.count > 0);
  assert.ok(served !== undefined);
  await waitUntil(() => served.levels.length === 1 && served.subscribed.length === 1);

  owner.kill('SIGKILL');
  served.server.registerTool('meanwhile', {}, () => ({ content: [] }));
  const stream = await listen(other, session);
  const heard = ({ messages }: Events, name: string) => messages.filter(({ method }) => method === name).length;
  await stream.until((events) => heard(events, 'notifications/resources/updated') > 0);
  // A client that lists the tools after each notification gets the new one.
  let listed = '';
  for (let changes = 0; !listed.includes('"meanwhile"');) {
    await stream.until((events) => heard(events, 'notifications/tools/list_changed') > changes);
    changes = heard(stream, 'notifications/tools/list_changed');
    listed = (await call(other, 'tools/list', {})).text;
  }
  await waitUntil(() => served.subscribed.length === 2 && served.levels.length === 2);
  assert.deepEqual(
    [served.subscribed, served.levels],
    [
      [WATCHED, WATCHED],
      ['warning', 'warning'],
    ],
  );
  assert.match((await count(other)).text, /"text":"2"/, 'the session at the upstream goes on');
  stream.close();
});

// R11 REL-26
test('the processes of a replica are gone within 5 s of its SIGKILL', OPTIONS, async (t) => {
  await assertWithin(t, CHILDREN_MS, async () => {
    await using replicas = await Replicas.start(1, { mcpServers: { pid: PID } });
    const url = replicas.at(0).endpoint();
    const got = await post(url, rpc(1, 'tools/call', { name: 'pid__pid', arguments: {} }), await initialize(url));
    const pid = Number(/"text":"(\d+) /.exec(JSON.stringify(messagesOf(got)))?.[1]);
    assert.ok(!isGone(pid));
    const killedMs = performance.now();
    replicas.at(0).kill('SIGKILL');
    await waitUntil(() => isGone(pid));
    return performance.now() - killedMs;
  });
});
