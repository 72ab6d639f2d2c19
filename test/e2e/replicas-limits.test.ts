import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { z } from 'zod';
import { type Got, initialize, post, rpc, send } from '../downstream/client.ts';
import { act, startRemote } from '../support/nonce-remote.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { MISSING, Replicas } from '../support/replicas.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000, ...(MISSING === undefined ? {} : { skip: MISSING }) };
const PID = { command: process.execPath, args: [join(import.meta.dirname, '../fixtures/servers/pid-stdio.ts')] };
const INPUT_REQUIRED = z.object({ requestState: z.string(), inputRequests: z.record(z.string(), z.unknown()) });

const INITIALIZE = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };

const OVERLOADED = /"code":"overloaded","executed":"no"/;

/** Opens a session that cannot be released, because an upstream keeps a process for it. */
async function openUsed(url: string): Promise<string> {
  const session = await initialize(url);
  assert.equal((await post(url, rpc(1, 'tools/call', { name: 'pid__pid' }), session)).status, 200);
  return session;
}

test('two replicas count the sessions of a principal together', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, {
    mcpServers: { pid: PID },
    gateway: { limits: { sessionsPerPrincipal: 4 } },
  });
  const [one, two] = [replicas.at(0).endpoint(), replicas.at(1).endpoint()];
  const sessions = [await openUsed(one), await openUsed(one), await openUsed(two), await openUsed(two)];
  for (const url of [one, two]) {
    const refused = await post(url, rpc(0, 'initialize', INITIALIZE));
    assert.match(refused.text, /you have 4 sessions that are in use/);
    assert.match(refused.text, OVERLOADED);
  }
  const headers = { 'mcp-session-id': sessions[3] };
  assert.equal((await send(one, { method: 'DELETE', headers })).status, 204);
  await waitUntil(
    async () => (await post(one, rpc(0, 'initialize', INITIALIZE))).headers['mcp-session-id'] !== undefined,
  );
  for (const session of sessions.slice(0, 3)) assert.equal((await post(two, rpc(2, 'ping'), session)).status, 200);
});

test('a session that nothing is kept for makes room for another one', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, {
    mcpServers: { pid: PID },
    gateway: { limits: { sessionsPerPrincipal: 2 } },
  });
  const [one, two] = [replicas.at(0).endpoint(), replicas.at(1).endpoint()];
  const [used, idle] = [await openUsed(two), await initialize(one)];
  const next = await initialize(one);
  for (const session of [used, next]) assert.equal((await post(one, rpc(1, 'ping'), session)).status, 200);
  assert.equal((await post(one, rpc(1, 'ping'), idle)).status, 200, 'it is restored, and another one makes room');
});

test('a replica that has just started has room for sessions', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, {
    mcpServers: { pid: PID },
    gateway: { limits: { sessionsPerPrincipal: 6 } },
  });
  await replicas.untilAllKnown();
  const [one, two] = [replicas.at(0).endpoint(), replicas.at(1).endpoint()];
  await replicas.at(1).stop();
  await waitUntil(async () => /^linkspan_replicas 1$/m.test(await metricsOf(replicas.at(0).operatorUrl)));
  const sessions: string[] = [];
  for (let n = 0; n < 6; n++) sessions.push(await initialize(one));
  await replicas.startAgain(1);
  // The other one releases what it has beyond its share of them, without loss.
  await waitUntil(
    async () => (await post(two, rpc(0, 'initialize', INITIALIZE))).headers['mcp-session-id'] !== undefined,
  );
  for (const session of sessions) assert.equal((await post(two, rpc(1, 'ping'), session)).status, 200);
});

/** Returns the metrics of a replica as text. */
async function metricsOf(operatorUrl: string): Promise<string> {
  return await (await fetch(`${operatorUrl}/metrics`)).text();
}

test('two replicas count the requests of a client group together', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await Replicas.start(2, {
    mcpServers: { nonce: { url: `${remote.url}/mcp` } },
    gateway: { limits: { inFlightPerSession: 4 } },
  });
  const [one, two] = [replicas.at(0).endpoint(), replicas.at(1).endpoint()];
  const call = (url: string, n: number, pauseMs = 0): Promise<Got> =>
    modernPost(url, 'tools/call', act(`nonce:${n}:1;`, [], { pauseMs }));
  const nonces = [1, 2, 3, 4].map((n) => `nonce:${n}:1;`);
  const under = [one, one, two, two].map((url, n) => call(url, n + 1, 3_000));
  await waitUntil(async () => {
    const ledger = await remote.ledger();
    return nonces.every((nonce) => ledger[nonce]?.ran === 1);
  });
  for (const url of [one, two]) assert.match((await call(url, 5)).text, OVERLOADED);
  for (const [n, answered] of (await Promise.all(under)).entries())
    assert.match(answered.text, RegExp(nonces[n] ?? ''));
  for (const url of [one, two]) assert.match((await call(url, 6)).text, /nonce:6:1;/);
});

// R12
test('without Redis each of two replicas serves half of the requests of a group', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await Replicas.start(2, {
    mcpServers: { nonce: { url: `${remote.url}/mcp` } },
    gateway: { limits: { inFlightPerSession: 4 } },
  });
  for (const [n, replica] of replicas.each.entries()) {
    const warm = await modernPost(replica.endpoint(), 'tools/call', act(`nonce:9:${n};`, []));
    assert.match(warm.text, /nonce:9/);
  }
  await replicas.untilAllKnown();
  replicas.redis.pause();
  for (const [n, replica] of replicas.each.entries()) {
    const nonces = [1, 2, 3, 4].map((call) => `nonce:${call}:${n};`);
    const answers = await Promise.all(
      nonces.map((nonce) => modernPost(replica.endpoint(), 'tools/call', act(nonce, [], { pauseMs: 3_000 }))),
    );
    const texts = answers.map(({ text }) => text);
    assert.equal(texts.filter((text) => OVERLOADED.test(text)).length, 2, texts.join('\n'));
    assert.equal(texts.filter((text) => text.includes('"content"')).length, 2);
  }
  replicas.redis.resume();
});

test('two replicas count the parked calls of a principal together', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await Replicas.start(2, {
    mcpServers: { nonce: { url: `${remote.url}/mcp` } },
    gateway: { limits: { parkedPerPrincipal: 2 } },
  });
  const [one, two] = [replicas.at(0).endpoint(), replicas.at(1).endpoint()];
  const options = { capabilities: { elicitation: { form: {} } } };
  const park = async (url: string, nonce: string) =>
    answerOf(await modernPost(url, 'tools/call', act(nonce, ['elicit']), options));
  const first = INPUT_REQUIRED.parse((await park(one, 'nonce:1:1;')).result);
  INPUT_REQUIRED.parse((await park(two, 'nonce:2:1;')).result);
  for (const [n, url] of [one, two].entries()) {
    const { error } = await park(url, `nonce:3:${n};`);
    assert.match(JSON.stringify(error), /2 calls of yours wait for answers already/);
  }
  const [key = ''] = Object.keys(first.inputRequests);
  const inputResponses = { [key]: { action: 'accept', content: { nonce: 'nonce:1:1;' } } };
  const retry = { ...act('nonce:1:1;', ['elicit']), requestState: first.requestState, inputResponses };
  const ended = answerOf(await modernPost(one, 'tools/call', retry, options));
  assert.match(JSON.stringify(ended.result), /nonce:1:1;/);
  INPUT_REQUIRED.parse((await park(one, 'nonce:4:1;')).result);
});

test('two replicas keep a rate together', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, {
    mcpServers: { pid: PID },
    gateway: {
      rates: [{ name: 'few', to: { anyone: true }, limit: 20, window: '1h' }],
      limits: { inFlightPerPrincipal: 100 },
    },
  });
  const urls = replicas.each.map((replica) => replica.endpoint());
  const call = async (n: number) => answerOf(await modernPost(urls[n % 2] ?? '', 'tools/call', { name: 'pid__pid' }));
  const answers = await Promise.all(Array.from({ length: 60 }, (_, n) => call(n)));
  assert.equal(answers.filter(({ result }) => result !== undefined).length, 20);
  const refused = answers.find(({ error }) => error !== undefined)?.error;
  const data = z.object({ code: z.string(), executed: z.string(), retryAfterMs: z.number() }).parse(refused?.data);
  assert.deepEqual([data.code, data.executed], ['rate-limited', 'no']);
  assert.ok(data.retryAfterMs > 3_000_000);
});

test('a rate is counted at most once for a call that another replica executes', OPTIONS, async () => {
  await using replicas = await Replicas.start(2, {
    mcpServers: { pid: PID },
    gateway: { rates: [{ name: 'few', to: { anyone: true }, limit: 6, window: '1h' }] },
  });
  const [one, two] = [replicas.at(0).endpoint(), replicas.at(1).endpoint()];
  const session = await initialize(one);
  for (let n = 1; n <= 6; n++) {
    // The session is at the first replica, so that the second one passes the calls on.
    const { text } = await post(n % 2 === 0 ? one : two, rpc(n, 'tools/call', { name: 'pid__pid' }), session);
    assert.doesNotMatch(text, /rate-limited/, `call ${n}`);
  }
  assert.match((await post(two, rpc(7, 'tools/call', { name: 'pid__pid' }), session)).text, /"rate-limited"/);
});
