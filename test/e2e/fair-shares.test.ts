/** Tests that principals share requests, processes, sessions and parked calls, over real sockets and processes. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { getEvents, type Got, initialize, post, rpc } from '../downstream/client.ts';
import { modernUpstream, type Served } from '../support/http-upstream.ts';
import { type OpenGateway, openGateway } from '../support/open-gateway.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 180_000 };
/** Calls that are sent at once. */
const BATCH = 100;
const SERVER = fileURLToPath(new URL('../fixtures/servers/pid-stdio.ts', import.meta.url));

const NAMES = ['greedy', 'modest', 'heavy'] as const;
type Name = (typeof NAMES)[number];
const keyOf = (name: Name) => `a-key-of-${name}-0123456789abcdef`;
const apiKeys = NAMES.map((name) => ({ name, sha256: createHash('sha256').update(keyOf(name)).digest('hex') }));
const auth = { apiKeys };
const bearer = (name: Name) => ({ authorization: `Bearer ${keyOf(name)}` });

async function metric(gateway: OpenGateway, name: string): Promise<number> {
  const line = (await gateway.metrics()).split('\n').find((one) => one.startsWith(name));
  return Number(line?.split(' ').at(-1) ?? Number.NaN);
}

/** Returns the caller that a call at the upstream names in its arguments. */
function whoOf({ params }: Served): string {
  const { arguments: args } = params;
  return typeof args === 'object' && args !== null && 'who' in args ? String(args.who) : '';
}

/**
 * Sends calls of principals to an upstream with one slot, while its first call is held up. Resolves with the order in which the upstream
 * gets them afterwards.
 */
async function orderOf(counts: Partial<Record<Name, number>>, own: object = {}): Promise<readonly string[]> {
  const order: string[] = [];
  let held: Served | undefined;
  await using upstream = await modernUpstream({
    tools: [{ name: 'echo', inputSchema: { type: 'object' } }],
    answers: {
      'tools/call': (served) => {
        if (held === undefined) {
          held = served;
          return undefined;
        }
        order.push(whoOf(served));
        return { resultType: 'complete', content: [] };
      },
    },
  });
  await using gateway = await openGateway(
    { up: { url: upstream.url, era: 'modern', concurrency: 1, queue: 2_000, queueWait: '5m' } },
    { auth, limits: { inFlightPerSession: 2_000 }, ...own },
  );
  const call = (who: Name): Promise<Got> => {
    const params = { name: 'up__echo', arguments: { who } };
    return modernPost(gateway.url, 'tools/call', params, { headers: bearer(who) });
  };
  const calls: Promise<Got>[] = [];
  const send = async (who: Name, count: number, queued: number) => {
    for (let i = 0; i < count; i++) calls.push(call(who));
    await waitUntil(async () => (await metric(gateway, 'linkspan_upstream_requests_queued{upstream="up"}')) === queued);
  };
  calls.push(call('greedy'));
  await waitUntil(() => held !== undefined);
  let queued = 0;
  for (const who of NAMES) {
    for (let left = counts[who] ?? 0; left > 0; left -= BATCH) {
      const count = Math.min(left, BATCH);
      await send(who, count, (queued += count));
    }
  }
  held?.result({ content: [] });
  for (const got of await Promise.all(calls)) assert.equal(answerOf(got).error, undefined);
  return order;
}

test('10 calls behind 1000 of another principal are served in turn', TIMEOUT, async () => {
  const order = await orderOf({ greedy: 1_000, modest: 10 });
  assert.equal(order.length, 1_010);
  const places = order.flatMap((who, place) => (who === 'modest' ? [place] : []));
  assert.equal(places.length, 10);
  for (const [index, place] of places.entries()) assert.ok(place <= 2 * index + 1, places.join(', '));
});

test('a role of weight 3 has three turns while another principal has one', TIMEOUT, async () => {
  const access = {
    roles: { all: { upstreams: ['*'] }, production: { weight: 3 } },
    grants: [
      { roles: ['all'], anyone: true },
      { roles: ['production'], keys: ['heavy'] },
    ],
  };
  const order = await orderOf({ modest: 40, heavy: 40 }, { access });
  const first = order.slice(0, 40);
  const turns = first.filter((who) => who === 'heavy').length;
  assert.ok(turns >= 29 && turns <= 31, `${turns} of 40 turns`);
});

/** Initializes a session and calls a tool of a stdio upstream, which takes a process of its own for it. */
async function startProcess(url: string, who: Name): Promise<{ readonly session: string; readonly got: Got }> {
  const session = await initialize(url, undefined, bearer(who));
  const got = await callTool(url, who, session);
  return { session, got };
}

function callTool(url: string, who: Name, session: string): Promise<Got> {
  return post(url, rpc(1, 'tools/call', { name: 'up__pid', arguments: {} }), session, bearer(who));
}

test('one principal gets all processes but the last eighth, and keeps what it has', TIMEOUT, async () => {
  await using gateway = await openGateway(
    { up: { command: process.execPath, args: [SERVER], isolation: 'session', queueWait: '20ms', start: 'lazy' } },
    { auth, limits: { processes: 8 } },
  );
  const { url } = gateway;
  const mine: string[] = [];
  const pids: string[] = [];
  for (let i = 0; i < 7; i++) {
    const { session, got } = await startProcess(url, 'greedy');
    assert.match(got.text, /"result"/);
    mine.push(session);
    pids.push(textOf(got));
  }
  const refused = (await startProcess(url, 'greedy')).got;
  assert.match(refused.text, /you have 7 of 8 processes, and the rest is kept for other clients/);
  assert.match(refused.text, /"executed":"no"/);
  assert.match((await startProcess(url, 'modest')).got.text, /"result"/);
  assert.match(
    (await startProcess(url, 'heavy')).got.text,
    /all processes are in use by other clients \(gateway\.limits\.processes: 8\)/,
  );
  assert.equal(await metric(gateway, 'linkspan_fair_share_refusals_total{pool="processes"}'), 1);
  const still = await Promise.all(mine.map(async (session) => textOf(await callTool(url, 'greedy', session))));
  assert.deepEqual(still, pids, 'the processes are the same');
});

function textOf(got: Got): string {
  return /"text":"([^"]*)"/.exec(got.text)?.[1] ?? got.text;
}

test('one principal gets all sessions but the last eighth, and none of them ends', TIMEOUT, async () => {
  await using gateway = await openGateway({}, { auth, limits: { sessions: 16 } });
  const { url } = gateway;
  const open = async (who: Name) => {
    const session = await initialize(url, undefined, bearer(who));
    const stream = await getEvents(url, session, bearer(who));
    return { session, stream };
  };
  const mine = [];
  for (let i = 0; i < 14; i++) mine.push(await open('greedy'));
  await assert.rejects(open('greedy'), /you have 14 of 16 sessions \(gateway.limits.sessions\), and the rest is kept/);
  const others = [await open('modest'), await open('heavy')];
  await assert.rejects(open('modest'), /all 16 sessions are in use by other clients/);
  assert.equal(await metric(gateway, 'linkspan_fair_share_refusals_total{pool="sessions"}'), 1);
  assert.ok([...mine, ...others].every(({ stream }) => !stream.isEnded));
  for (const { stream } of [...mine, ...others]) stream.close();
});

test('a principal without room releases an idle session of its own, which comes back', TIMEOUT, async () => {
  await using gateway = await openGateway({}, { auth, limits: { sessions: 8 } });
  const { url } = gateway;
  const sessions: string[] = [];
  for (let i = 0; i < 9; i++) sessions.push(await initialize(url, undefined, bearer('greedy')));
  const [first = ''] = sessions;
  assert.equal((await post(url, rpc(1, 'ping'), first, bearer('greedy'))).status, 200);
  assert.equal(await metric(gateway, 'linkspan_sessions'), 7);
});
