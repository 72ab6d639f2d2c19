import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { join } from 'node:path';
import { test } from 'node:test';
import { z } from 'zod';
import {
  BOTH,
  type Got,
  getEvents,
  initialize,
  messagesOf,
  post,
  postForEvents,
  rpc,
  send,
} from '../downstream/client.ts';
import { connectSdk1 } from '../support/sdk-client.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { act, startRemote } from '../support/nonce-remote.ts';
import { assertWithin } from '../support/promised-time.ts';
import { MISSING, Replicas } from '../support/replicas.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000, ...(MISSING === undefined ? {} : { skip: MISSING }) };
const SERVERS = join(import.meta.dirname, '../fixtures/servers');
const PID = { command: process.execPath, args: [join(SERVERS, 'pid-stdio.ts')] };
const NONCE = { command: process.execPath, args: [join(SERVERS, 'nonce-stdio.ts')] };

const PARAMS = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
const REFUSED_MS = 500; // subject
const ENDED_MS = 1_000; // subject
const INPUT_REQUIRED = z.object({ requestState: z.string(), inputRequests: z.record(z.string(), z.unknown()) });

/** Returns the number of requests that a replica has passed on, by outcome. */
async function forwarded(replicas: Replicas, index: number): Promise<Readonly<Record<string, number>>> {
  const text = await (await fetch(`${replicas.at(index).operatorUrl}/metrics`)).text();
  const found = text.matchAll(/^linkspan_forwarded_requests_total\{outcome="(\w+)"\} (\d+)$/gm);
  return Object.fromEntries([...found].map(([, outcome = '', count]) => [outcome, Number(count)]));
}

/** Returns the number of the replica that has a session in memory: the only one that passes nothing on. */
async function ownerOf(replicas: Replicas, session: string): Promise<number> {
  const owners = [];
  for (const index of replicas.each.keys()) {
    const before = await forwarded(replicas, index);
    const { status, text } = await post(replicas.at(index).endpoint(), rpc('probe', 'ping'), session);
    assert.equal(status, 200, text);
    const after = await forwarded(replicas, index);
    if (before['answered'] === after['answered']) owners.push(index);
  }
  assert.equal(owners.length, 1);
  return owners[0] ?? -1;
}

test('a legacy session is served through a balancer that spreads its requests', OPTIONS, async () => {
  await using replicas = await Replicas.start(3, { mcpServers: { pid: PID } });
  await using connected = await connectSdk1(replicas.url);
  const { client } = connected;
  const texts = new Set<string>();
  for (let n = 0; n < 30; n++) {
    const result = await client.callTool({ name: 'pid__pid', arguments: { n: n % 3 } });
    texts.add(JSON.stringify(result.content));
  }
  const pids = new Set([...texts].map((text) => /\d+/.exec(text)?.[0]));
  assert.equal(pids.size, 1, 'one process of the upstream has served the session');
  const passedOn = await Promise.all([0, 1, 2].map((index) => forwarded(replicas, index)));
  const counts = passedOn.map(({ answered = 0 }) => answered);
  assert.equal(counts.filter((count) => count === 0).length, 1, `two replicas passed requests on: ${counts.join()}`);
  assert.ok(counts.reduce((sum, count) => sum + count, 0) >= 20);
});

test('streams, questions, their answers and cancellations cross replicas', OPTIONS, async () => {
  await using replicas = await Replicas.start(3, { mcpServers: { nonce: NONCE } });
  const [one, two, three] = [replicas.at(0), replicas.at(1), replicas.at(2)].map((replica) => replica.endpoint());
  assert.ok(one !== undefined && two !== undefined && three !== undefined);
  const session = await initialize(one, '2025-11-25', {}, { elicitation: {} });
  await post(two, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), session);

  const listening = await getEvents(three, session);
  assert.equal(listening.status, 200);
  await post(two, rpc(1, 'logging/setLevel', { level: 'info' }), session);
  const call = await postForEvents(three, rpc(2, 'tools/call', act('nonce:1:1;', ['progress', 'elicit'])), session);
  await call.until(({ messages }) => messages.some(({ method }) => method === 'elicitation/create'));
  const question = call.messages.find(({ method }) => method === 'elicitation/create');
  const answer = { jsonrpc: '2.0', id: question?.id, result: { action: 'accept', content: { nonce: 'nonce:1:1;' } } };
  const { status } = await post(two, JSON.stringify(answer), session);
  assert.equal(status, 202);
  await call.until(({ messages }) => messages.some(({ id }) => id === 2));
  assert.ok(call.messages.some(({ method }) => method === 'notifications/progress'));

  const cancelled = await postForEvents(two, rpc(3, 'tools/call', act('nonce:2:2;', ['elicit'])), session);
  await cancelled.until(({ messages }) => messages.some(({ method }) => method === 'elicitation/create'));
  const cancel = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 3 } };
  await post(three, JSON.stringify(cancel), session);
  await waitUntil(async () => {
    const got = await post(one, rpc(5, 'tools/call', { name: 'nonce__ledger' }), session);
    return JSON.stringify(messagesOf(got)).includes(String.raw`\"cancelled\":1`);
  });
  // The process of the upstream ends, and the report about its lost state goes to the stream of the session.
  await post(one, rpc(6, 'tools/call', act('nonce:4:4;', ['doom'])), session);
  await listening.until(({ messages }) => messages.some(({ method }) => method === 'notifications/message'));
  listening.close();
});

test('a request is answered alike by its owner and through another replica', OPTIONS, async () => {
  const limits = { body: '4KiB' };
  await using replicas = await Replicas.start(2, { mcpServers: { pid: PID }, gateway: { limits } });
  const session = await initialize(replicas.url);
  const owner = await ownerOf(replicas, session);
  const call = rpc(1, 'tools/call', { name: 'pid__pid' });
  const long = rpc(2, 'ping', { long: 'x'.repeat(5_000) });
  const asked: readonly { readonly body: string | Buffer; readonly headers?: Readonly<Record<string, string>> }[] = [
    { body: call },
    { body: call, headers: { accept: 'application/json' } },
    { body: call, headers: { accept: 'text/event-stream' } },
    { body: call, headers: { accept: 'image/png' } },
    { body: call, headers: { 'content-type': 'text/plain' } },
    { body: call, headers: { 'content-encoding': 'gzip' } },
    { body: call, headers: { 'mcp-protocol-version': '1999-01-01' } },
    { body: rpc(3, 'tools/call', { name: 'pid__unknown' }) },
    { body: '{"jsonrpc":"2.0","method":"notifications/initialized"}' },
    { body: '[]' },
    { body: '{' },
    { body: '' },
    { body: Buffer.from('{"jsonrpc":"2.0","id":4,"method":"\xff"}', 'latin1') },
    { body: long },
  ];
  for (const { body, headers } of asked) {
    const answers = [];
    for (const replica of [replicas.at(owner), replicas.at(1 - owner)]) {
      const all = { 'content-type': 'application/json', accept: BOTH, 'mcp-session-id': session, ...headers };
      const response = await fetch(replica.endpoint(), { method: 'POST', body, headers: all });
      // Event ids are random.
      const text = (await response.text()).replaceAll(/^id: .*$/gm, 'id');
      answers.push({ status: response.status, type: response.headers.get('content-type'), text });
    }
    const [here, elsewhere] = answers;
    assert.deepEqual(elsewhere, here, JSON.stringify({ body: body.toString().slice(0, 99), headers }));
  }
});

test('a call that waits for its client is continued by a retry at any replica', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await Replicas.start(2, { mcpServers: { nonce: { url: `${remote.url}/mcp` } } });
  const [one, two] = [replicas.at(0).endpoint(), replicas.at(1).endpoint()];
  const options = { capabilities: { elicitation: { form: {} } } };
  const call = act('nonce:5:5;', ['elicit']);
  const first = answerOf(await modernPost(one, 'tools/call', call, options)).result;
  assert.equal(first?.['resultType'], 'input_required', JSON.stringify(first));
  const { requestState, inputRequests } = INPUT_REQUIRED.parse(first);
  const [key = ''] = Object.keys(inputRequests);
  const inputResponses = { [key]: { action: 'accept', content: { nonce: 'nonce:5:5;' } } };
  const retry = { ...call, requestState, inputResponses };
  const last = answerOf(await modernPost(two, 'tools/call', retry, options));
  assert.match(JSON.stringify(last.result), /nonce:5:5;/, JSON.stringify(last));
  assert.equal(await remote.ran('nonce:5:5;'), 1);
  assert.equal((await forwarded(replicas, 1))['answered'], 1);
  const again = answerOf(await modernPost(two, 'tools/call', retry, options));
  assert.deepEqual(again.result, last.result, 'a repeated retry gets the same end');
  assert.equal(await remote.ran('nonce:5:5;'), 1);
});

test('a retry after the death of its replica gets the end of the call, or the truth', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await Replicas.start(2, { mcpServers: { nonce: { url: `${remote.url}/mcp` } } });
  const [one, two] = [replicas.at(0).endpoint(), replicas.at(1).endpoint()];
  const options = { capabilities: { elicitation: { form: {} } } };
  const park = async (nonce: string) => {
    const call = act(nonce, ['elicit']);
    const first = answerOf(await modernPost(one, 'tools/call', call, options));
    const { requestState, inputRequests } = INPUT_REQUIRED.parse(first.result);
    const [key = ''] = Object.keys(inputRequests);
    return { ...call, requestState, inputResponses: { [key]: { action: 'accept', content: { nonce } } } };
  };
  const [ended, waiting] = [await park('nonce:6:6;'), await park('nonce:7:7;')];
  const before = answerOf(await modernPost(one, 'tools/call', ended, options));
  replicas.at(0).kill('SIGKILL');
  await replicas.at(0).ended;
  const retry = async (params: Record<string, unknown>) => {
    let answer = answerOf(await modernPost(two, 'tools/call', params, options));
    // Until its lease has lapsed the dead replica counts as the owner, which cannot be reached.
    while (answer.error?.code === -31023) {
      assert.match(
        JSON.stringify(answer.error.data),
        /"executed":"unknown","retryable":true/,
        'the call itself did run',
      );
      answer = answerOf(await modernPost(two, 'tools/call', params, options));
    }
    return answer;
  };
  assert.deepEqual((await retry(ended)).result, before.result);
  const { error } = await retry(waiting);
  assert.equal(error?.code, -31017);
  assert.match(JSON.stringify(error?.data), /"executed":"unknown"/);
  for (const nonce of ['nonce:6:6;', 'nonce:7:7;']) assert.equal(await remote.ran(nonce), 1);
});

// SEC-12
test('a session that ends at one replica is ended at all within a second', OPTIONS, async (t) => {
  await using replicas = await Replicas.start(3, { mcpServers: { pid: PID } });
  const urls = replicas.each.map((replica) => replica.endpoint());
  await assertWithin(t, ENDED_MS, async () => {
    const session = await initialize(replicas.url);
    const owner = await ownerOf(replicas, session);
    const listening = await getEvents(urls[(owner + 1) % 3] ?? '', session);
    const headers = { 'mcp-session-id': session };
    const beganMs = performance.now();
    assert.equal((await send(urls[(owner + 2) % 3] ?? '', { method: 'DELETE', headers })).status, 204);
    const answers = await Promise.all(urls.map((url) => post(url, rpc(1, 'ping'), session)));
    const endedMs = performance.now() - beganMs;
    for (const { status, text } of answers) assert.equal(status, 404, text);
    await listening.ended();
    return endedMs;
  });
});

// SEC-10
test('a session of one principal is unknown to another at every replica', OPTIONS, async () => {
  const keys = { ann: 'a-key-of-ann-0123456789abcdef', bob: 'a-key-of-bob-0123456789abcdef' };
  const apiKeys = Object.entries(keys).map(([name, key]) => ({ name, sha256: hash('sha256', key) }));
  await using replicas = await Replicas.start(2, { mcpServers: { pid: PID }, gateway: { auth: { apiKeys } } });
  const as = (name: 'ann' | 'bob') => ({ authorization: `Bearer ${keys[name]}` });
  const session = await initialize(replicas.at(0).endpoint(), '2025-11-25', as('ann'));
  for (const replica of replicas.each) {
    for (const url of [replica.endpoint(), replica.endpoint('pid')]) {
      assert.equal((await post(url, rpc(1, 'ping'), session, as('bob'))).status, 404);
    }
    assert.equal((await post(replica.endpoint('pid'), rpc(1, 'ping'), session, as('ann'))).status, 404);
    assert.equal((await post(replica.endpoint(), rpc(1, 'ping'), session)).status, 401);
    const own = await post(replica.endpoint(), rpc(1, 'tools/call', { name: 'pid__pid' }), session, as('ann'));
    assert.equal(own.status, 200);
  }
});

// T-035
test('a 2024-11-05 client posts to any replica', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, { mcpServers: { pid: PID } });
  const [one, two] = [replicas.at(0).url, replicas.at(1).url];
  const stream = await getEvents(`${one}/sse`, undefined);
  await stream.until(({ seen }) => seen.length > 0);
  const path = stream.seen[0]?.data ?? '';
  const params = { protocolVersion: '2024-11-05', capabilities: {}, clientInfo: { name: 'old', version: '1' } };
  for (const [n, url] of [one, two, two, one].entries()) {
    const text = n === 0 ? rpc(n, 'initialize', params) : rpc(n, 'tools/call', { name: 'pid__pid' });
    assert.equal((await post(`${url}${path}`, text)).status, 202);
    await stream.until(({ seen }) => seen.some(({ event, data }) => event === 'message' && JSON.parse(data).id === n));
  }
  const invented = path.replace(/[\w-]{10}$/, 'x'.repeat(10));
  for (const url of [one, two]) assert.equal((await post(`${url}${invented}`, rpc(9, 'ping'))).status, 404);
  stream.close();
});

// REL-27
test('a replica that was stopped for long finds its sessions elsewhere', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await Replicas.start(2, { mcpServers: { nonce: { url: `${remote.url}/mcp` } } });
  const session = await initialize(replicas.url);
  const owner = await ownerOf(replicas, session);
  const [zombie, other] = [replicas.at(owner), replicas.at(1 - owner)];
  const listening = await getEvents(zombie.endpoint(), session);
  zombie.pause();
  // If the zombie was heard just before, the request is sent, and nobody knows whether it is handled. Else it waits.
  const lost = await post(other.endpoint(), rpc(0, 'tools/call', act('nonce:0:0;', [])), session);
  const isUnknown = lost.text.includes('"code":"outcome-unknown","executed":"unknown"');
  assert.ok(isUnknown || lost.status === 200, lost.text);
  const taken = await post(other.endpoint(), rpc(1, 'tools/call', act('nonce:1:1;', [])), session);
  zombie.resume();
  assert.equal(taken.status, 200, taken.text);
  const late = await post(zombie.endpoint(), rpc(2, 'tools/call', act('nonce:2:2;', [])), session);
  assert.equal(late.status, 200, late.text);
  await listening.ended();
  assert.equal(await ownerOf(replicas, session), 1 - owner);
  for (const nonce of ['nonce:1:1;', 'nonce:2:2;']) assert.equal(await remote.ran(nonce), 1);
  const ran = await remote.ran('nonce:0:0;');
  assert.equal(ran, isUnknown ? 0 : 1, 'the old owner refuses what it finds in its sockets');
  const metrics = await (await fetch(`${zombie.operatorUrl}/metrics`)).text();
  assert.match(metrics, /^linkspan_fenced_sessions_total 1$/m);
  assert.match(metrics, /^linkspan_lease_troubles_total\{trouble="lapsed"\} 1$/m);
});

// R11 REL-26
test('a session goes on after its replica was killed, and no call runs twice', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await Replicas.start(3, { mcpServers: { nonce: { url: `${remote.url}/mcp` } } });
  const urls = replicas.each.map((replica) => replica.endpoint());
  const session = await initialize(replicas.url);
  const owner = await ownerOf(replicas, session);
  const [next, last] = [urls[(owner + 1) % 3] ?? '', urls[(owner + 2) % 3] ?? ''];
  assert.equal((await post(next, rpc(1, 'tools/call', act('nonce:1:1;', [])), session)).status, 200);

  const cut = post(last, rpc(2, 'tools/call', act('nonce:2:2;', ['log'], { pauseMs: 60_000 })), session).then(
    (got) => JSON.stringify(messagesOf(got)),
    () => 'the connection broke',
  );
  await waitUntil(async () => (await remote.ran('nonce:2:2;')) === 1);
  replicas.at(owner).kill('SIGKILL');
  assert.match(await cut, /"executed":"unknown"|the connection broke/);
  // Until the next replica knows that its channel to the owner has closed, a call on it has an unknown outcome.
  await waitUntil(async () => (await post(next, rpc(9, 'ping'), session)).status === 200);

  const got = await post(next, rpc(3, 'tools/call', act('nonce:3:3;', [])), session);
  assert.equal(got.status, 200, got.text);
  assert.match(got.text, /nonce:3:3;/);
  assert.equal((await post(last, rpc(4, 'tools/call', act('nonce:4:4;', [])), session)).status, 200);
  for (const nonce of ['nonce:1:1;', 'nonce:2:2;', 'nonce:3:3;', 'nonce:4:4;'])
    assert.equal(await remote.ran(nonce), 1, nonce);
});

// R12
test('while Redis is stopped, modern requests and sessions in memory go on', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await Replicas.start(2, { mcpServers: { nonce: { url: `${remote.url}/mcp` } } });
  const session = await initialize(replicas.url);
  const owner = await ownerOf(replicas, session);
  const url = replicas.at(owner).endpoint();
  assert.equal((await post(url, rpc(1, 'tools/call', act('nonce:1:1;', [])), session)).status, 200);
  replicas.redis.pause();
  assert.equal((await post(url, rpc(2, 'tools/call', act('nonce:2:2;', [])), session)).status, 200);
  const elsewhere = replicas.at(1 - owner).endpoint();
  // Longer than an answer of the table is used again.
  for (const pausedMs = performance.now(); performance.now() - pausedMs < 1_500;) {
    const passedOn = await post(elsewhere, rpc(6, 'ping'), session);
    assert.equal(passedOn.status, 200, passedOn.text);
  }
  const modern = await modernPost(url, 'tools/call', act('nonce:3:3;', []));
  assert.match(JSON.stringify(answerOf(modern).result), /nonce:3:3;/);
  const refused = await post(url, rpc(4, 'initialize', PARAMS));
  assert.match(refused.text, /"code":-31023/);
  assert.match(refused.text, /"executed":"no","retryable":true/);
  await waitUntil(async () =>
    (await (await fetch(`${replicas.at(owner).operatorUrl}/readyz`)).text()).includes('Redis'),
  );
  const ready = await fetch(`${replicas.at(owner).operatorUrl}/readyz`);
  assert.equal(ready.status, 200, 'requests that need no Redis are served');
  const metrics = await (await fetch(`${replicas.at(owner).operatorUrl}/metrics`)).text();
  assert.match(metrics, /^linkspan_redis_down 1$/m);
  replicas.redis.resume();
  await waitUntil(async () => (await post(replicas.url, rpc(5, 'ping'), session)).status === 200);
  for (const replica of replicas.each) {
    await waitUntil(() =>
      initialize(replica.endpoint()).then(
        () => true,
        () => false,
      ),
    );
  }
});

// R12
test('a request that needs a stopped Redis is refused within half a second', OPTIONS, async (t) => {
  await using replicas = await Replicas.start(2, { mcpServers: {} });
  const [one = '', two = ''] = replicas.each.map((replica) => replica.endpoint());
  const refusedMs = async (asked: Promise<Got>, status: number) => {
    const beganMs = performance.now();
    const got = await asked;
    const tookMs = performance.now() - beganMs;
    assert.equal(got.status, status, got.text);
    assert.match(got.text, /"code":"store-unavailable","executed":"no","retryable":true/);
    return tookMs;
  };
  await assertWithin(t, REFUSED_MS, async () => {
    let session = '';
    await waitUntil(async () => (session = await initialize(one).catch(() => '')) !== '');
    replicas.redis.pause();
    try {
      // The other replica has to look the session up.
      const opening = refusedMs(post(one, rpc(1, 'initialize', PARAMS)), 200);
      return Math.max(...(await Promise.all([opening, refusedMs(post(two, rpc(2, 'ping'), session), 503)])));
    } finally {
      replicas.redis.resume();
    }
  });
});

// REL-28
test('after a Redis that was stopped longer than a lease no session moves', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, { mcpServers: { pid: PID } });
  const sessions = await Promise.all(replicas.each.map((replica) => initialize(replica.endpoint())));
  replicas.redis.pause();
  const untilMs = performance.now() + 8_000;
  await waitUntil(() => performance.now() > untilMs);
  replicas.redis.resume();
  for (const replica of replicas.each) {
    for (const session of sessions) {
      await waitUntil(async () => (await post(replica.endpoint(), rpc(1, 'ping'), session)).status === 200);
    }
  }
  for (const [index, replica] of replicas.each.entries()) {
    const metrics = await (await fetch(`${replica.operatorUrl}/metrics`)).text();
    assert.match(metrics, /^linkspan_lease_troubles_total\{trouble="failed"\} [1-9]/m);
    assert.doesNotMatch(metrics, /^linkspan_lease_troubles_total\{trouble="lapsed"\} [1-9]/m);
    assert.equal(await ownerOf(replicas, sessions[index] ?? ''), index);
  }
});

// R13
test('after a flush all sessions are unknown, and new ones work', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, { mcpServers: { pid: PID } });
  const session = await initialize(replicas.url);
  await replicas.redis.flush();
  for (const replica of replicas.each) {
    await waitUntil(async () => (await post(replica.endpoint(), rpc(1, 'ping'), session)).status === 404);
  }
  await waitUntil(async () => {
    const next = await initialize(replicas.url);
    const statuses = [];
    for (const replica of replicas.each) statuses.push((await post(replica.endpoint(), rpc(1, 'ping'), next)).status);
    return statuses.every((status) => status === 200);
  });
});
