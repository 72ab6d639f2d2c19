import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { join } from 'node:path';
import { test } from 'node:test';
import { post, rpc } from '../downstream/client.ts';
import { answerOf, modernEvents, modernPost } from '../support/modern-wire.ts';
import { MISSING, Replicas } from '../support/replicas.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000, ...(MISSING === undefined ? {} : { skip: MISSING }) };
const COUNT = { command: process.execPath, args: [join(import.meta.dirname, '../fixtures/servers/count-stdio.ts')] };

/** Adds one to the count. Returns the count, and the process that has it. */
async function add(url: string, headers: Record<string, string> = {}): Promise<{ count: number; pid: string }> {
  const got = await modernPost(url, 'tools/call', { name: 'count__add', arguments: {} }, { headers });
  const [, count, pid] = /(\d+) of (\d+)/.exec(JSON.stringify(answerOf(got).result)) ?? [];
  assert.ok(count !== undefined && pid !== undefined, got.text);
  return { count: Number(count), pid };
}

test('a modern principal has one state at a stdio server behind two replicas', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, { mcpServers: { count: COUNT } });
  const urls = replicas.each.map((replica) => replica.endpoint());
  const counts: number[] = [];
  const pids = new Set<string>();
  for (let n = 0; n < 12; n++) {
    const { count, pid } = await add(n < 6 ? (urls[n % 2] ?? '') : replicas.url);
    counts.push(count);
    pids.add(pid);
  }
  assert.deepEqual(
    counts,
    counts.map((_, n) => n + 1),
  );
  assert.equal(pids.size, 1);
  const many = await Promise.all(Array.from({ length: 20 }, () => add(replicas.url)));
  assert.deepEqual(
    many.map(({ count }) => count).toSorted((a, b) => a - b),
    Array.from({ length: 20 }, (_, n) => n + 13),
  );
});

test('requests without a session have one state at a stdio server behind two replicas', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, {
    mcpServers: { count: COUNT },
    gateway: { sessions: { required: false } },
  });
  const [one, two] = replicas.each.map((replica) => replica.endpoint());
  assert.ok(one !== undefined && two !== undefined);
  const body = rpc(1, 'tools/call', { name: 'count__add', arguments: {} });
  const texts: string[] = [];
  for (const url of [one, two, one, two]) texts.push((await post(url, body)).text);
  assert.deepEqual(
    texts.map((text) => Number(/(\d+) of \d+/.exec(text)?.[1])),
    [1, 2, 3, 4],
    texts.join('\n'),
  );
});

test('principals and endpoints have states of their own behind two replicas', OPTIONS, async () => {
  const keys = { ann: 'a-key-of-ann-0123456789abcdef', bob: 'a-key-of-bob-0123456789abcdef' };
  const apiKeys = Object.entries(keys).map(([name, key]) => ({ name, sha256: hash('sha256', key) }));
  await using replicas = await Replicas.start(2, { mcpServers: { count: COUNT }, gateway: { auth: { apiKeys } } });
  const as = (name: 'ann' | 'bob') => ({ authorization: `Bearer ${keys[name]}` });
  for (const n of [1, 2, 3]) {
    for (const name of ['ann', 'bob'] as const) {
      const url = replicas.at(n % 2).endpoint();
      assert.equal((await add(url, as(name))).count, n, name);
    }
  }
});

test('a client that listens at one replica hears of changes made at another', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, { mcpServers: { count: COUNT } });
  const [one, two] = [replicas.at(0).endpoint(), replicas.at(1).endpoint()];
  await add(one);
  const listed = answerOf(await modernPost(two, 'resources/list'));
  const uri = /"uri":"([^"]*now[^"]*)"/.exec(JSON.stringify(listed.result))?.[1] ?? '';
  const notifications = { resourceSubscriptions: [uri], toolsListChanged: true };
  const stream = await modernEvents(two, 'subscriptions/listen', { notifications }, { id: 7 });
  await stream.until(({ messages }) => messages.length > 0);
  const acknowledged = JSON.stringify(stream.messages[0]);
  assert.ok(acknowledged.includes('/acknowledged"') && acknowledged.includes(JSON.stringify(uri)), acknowledged);
  await add(one);
  await add(two);
  const isUpdate = ({ method }: { method?: string }) => method === 'notifications/resources/updated';
  await stream.until(({ messages }) => messages.filter(isUpdate).length === 2);
  assert.match(JSON.stringify(stream.messages.find(isUpdate)), /"io\.modelcontextprotocol\/subscriptionId":7/);
  assert.equal(stream.messages.filter(({ method }) => method?.endsWith('acknowledged')).length, 1);
  // The owner leaves, and with it the connection. The client has to listen again.
  replicas.at(0).kill('SIGTERM');
  await stream.ended();
});

test('a connection moves when its replica leaves or dies, and no call fails', OPTIONS, async () => {
  await using replicas = await Replicas.start(3, { mcpServers: { count: COUNT } });
  const [one, two, three] = replicas.each.map((replica) => replica.endpoint());
  assert.ok(one !== undefined && two !== undefined && three !== undefined);
  const before = await add(one);
  assert.deepEqual(await add(two), { count: 2, pid: before.pid });
  replicas.at(0).kill('SIGTERM');
  let first = before;
  // The leaving replica passes requests on as well, when it has handed the connection over.
  await waitUntil(async () => (first = await add(one)).pid !== before.pid);
  const moved = [first, await add(two), await add(three)];
  assert.deepEqual(
    moved.map(({ count }) => count),
    [1, 2, 3],
  );
  assert.equal(new Set(moved.map(({ pid }) => pid)).size, 1);
  await replicas.at(0).ended;
  assert.equal((await add(two)).count, 4);

  const passedOn = await Promise.all([1, 2].map(async (index) => await passedOnBy(replicas, index)));
  await add(two);
  const owner = (await passedOnBy(replicas, 1)) === passedOn[0] ? 1 : 2;
  replicas.at(owner).kill('SIGKILL');
  await replicas.at(owner).ended;
  const other = replicas.at(3 - owner).endpoint();
  assert.equal((await add(other)).count, 1, 'the state was in the process that died');
  assert.equal((await add(other)).count, 2);
});

/** Returns the number of requests that a replica has passed on. */
async function passedOnBy(replicas: Replicas, index: number): Promise<number> {
  const text = await (await fetch(`${replicas.at(index).operatorUrl}/metrics`)).text();
  return Number(/^linkspan_forwarded_requests_total\{outcome="answered"\} (\d+)$/m.exec(text)?.[1]);
}
