/** Tests that operators see and change all replicas of a gateway through any of them. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { z } from 'zod';
import { initialize, post, rpc } from '../downstream/client.ts';
import { freePort } from '../support/free-port.ts';
import { type GatewayFile, type RunningGateway, startGateway } from '../support/gateway.ts';
import { modernPost } from '../support/modern-wire.ts';
import { runCli } from '../support/cli.ts';
import { NO_HISTORY, OlderVersion } from '../support/older-version.ts';
import { RedisServer } from '../support/redis.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const PID = {
  command: process.execPath,
  args: [join(import.meta.dirname, '../fixtures/servers/pid-stdio.ts')],
};

let redis: RedisServer;
let settings: object;
const started: RunningGateway[] = [];

before(async () => {
  redis = await RedisServer.start();
  settings = { url: redis.url, wrappingKeys: [randomBytes(32).toString('base64')] };
});

after(async () => {
  for (const gateway of started) gateway.resume();
  await Promise.all(started.map((gateway) => gateway.stop(75_000)));
  await redis[Symbol.asyncDispose]();
});

const ACCESS = {
  roles: { all: { upstreams: ['*'], deny: [{ tools: ['none'] }] } },
  grants: [{ roles: ['all'], anyone: true }],
};

/** Starts replicas of the gateway with this prefix. @param own settings of `gateway.redis`. @param program their `main.ts`; default: that of this tree. */
async function start(
  prefix: string,
  count: number,
  own: object = {},
  program?: string,
): Promise<readonly RunningGateway[]> {
  const file: GatewayFile = {
    mcpServers: { pid: PID, other: PID },
    gateway: { redis: { ...settings, prefix, ...own }, access: ACCESS },
  };
  const replicas = await Promise.all(Array.from({ length: count }, () => startGateway(file, { program })));
  started.push(...replicas);
  return replicas;
}

async function admin({ dir, operatorUrl }: RunningGateway, path: string, method = 'GET', body?: object) {
  const { token } = z
    .object({ token: z.string() })
    .parse(JSON.parse(await readFile(join(dir, 'state', 'operator.json'), 'utf8')));
  const response = await fetch(`${operatorUrl}/admin/v1${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  const answer: unknown = JSON.parse(text);
  return { status: response.status, text, answer };
}

const SILENT = z.array(z.object({ replica: z.string(), why: z.string() })).optional();
const SESSIONS = z.object({
  sessions: z.array(z.object({ id: z.string(), replica: z.string().optional() })),
  unanswered: SILENT,
});
const STATUS = z.object({
  sessions: z.number(),
  replicas: z.array(z.object({ replica: z.string(), isAsked: z.boolean(), isReady: z.boolean() })).optional(),
  unanswered: SILENT,
});
const DONE = z.object({ message: z.string(), unconfirmed: z.array(z.string()).optional() });

/** Returns whether a replica refuses calls of an upstream because of an operator. */
async function isDisabledAt(replica: RunningGateway, upstream = 'pid'): Promise<boolean> {
  const { text } = await modernPost(replica.endpoint(), 'tools/call', { name: `${upstream}__pid`, arguments: {} });
  return text.includes('an operator has disabled it');
}

/** Waits until a replica has logged an operation for which another one was asked. */
async function hasLogged(replica: RunningGateway, operation: string): Promise<void> {
  await replica.waitForLog((line) => {
    const isIt = line.includes(`"operation":"${operation}"`) && line.includes('"through":"127.0.0.1:');
    return isIt && line.includes('"msg":"operator request"') ? line : undefined;
  });
}

test('any replica lists the sessions of all, and ends them wherever they are', OPTIONS, async () => {
  const [a, b] = await start('lists', 2);
  assert.ok(a !== undefined && b !== undefined);
  const sessions = [await initialize(a.endpoint()), await initialize(b.endpoint())];
  for (const asked of [a, b]) {
    const listed = SESSIONS.parse((await admin(asked, '/sessions')).answer);
    assert.equal(listed.sessions.length, 2);
    assert.equal(new Set(listed.sessions.map(({ replica }) => replica)).size, 2);
    assert.equal(listed.unanswered, undefined);
    const status = STATUS.parse((await admin(asked, '/status')).answer);
    assert.equal(status.sessions, 2);
    assert.deepEqual(
      status.replicas?.map(({ isAsked, isReady }) => ({ isAsked, isReady })),
      [
        { isAsked: true, isReady: true },
        { isAsked: false, isReady: true },
      ],
    );
  }
  const { sessions: rows } = SESSIONS.parse((await admin(a, '/sessions')).answer);
  for (const { id } of rows) assert.equal((await admin(a, `/sessions/${id}`, 'DELETE')).status, 200);
  for (const [index, session] of sessions.entries()) {
    const { status } = await post((index === 0 ? a : b).endpoint(), rpc(1, 'ping'), session);
    assert.equal(status, 404);
  }
  assert.equal((await admin(a, '/sessions/none', 'DELETE')).status, 404);
  await hasLogged(b, 'endSession');
});

test('a change through one replica holds at all, also at one that joins later', OPTIONS, async () => {
  const [a, b] = await start('changes', 2);
  assert.ok(a !== undefined && b !== undefined);
  for (const id of ['pid', 'other']) {
    const done = await admin(a, `/upstreams/${id}/disable`, 'POST', { drainSeconds: 0 });
    assert.equal(DONE.parse(done.answer).unconfirmed, undefined, done.text);
  }
  assert.equal(await isDisabledAt(b), true);
  await hasLogged(b, 'disableUpstream');
  await admin(b, '/upstreams/other/restart', 'POST', { drainSeconds: 0 });
  assert.equal(await isDisabledAt(a, 'other'), false);
  await admin(b, '/log-level', 'PUT', { level: 'debug' });
  assert.match((await admin(a, '/log-level')).text, /"level":"debug"/);

  const [c] = await start('changes', 1);
  assert.ok(c !== undefined);
  assert.equal(await isDisabledAt(c), true);
  assert.equal(await isDisabledAt(c, 'other'), false);
  assert.match((await admin(c, '/log-level')).text, /"level":"debug"/);
  // What is known of a change outlives the replica that was asked.
  await a.stop(75_000);
  await b.stop(75_000);
  const [d] = await start('changes', 1);
  assert.ok(d !== undefined);
  assert.equal(await isDisabledAt(d), true);
});

test('a replica that is stopped is named, and hears of a change when it goes on', OPTIONS, async () => {
  const [a, b] = await start('stopped', 2);
  assert.ok(a !== undefined && b !== undefined);
  await initialize(b.endpoint());
  const before = STATUS.parse((await admin(a, '/status')).answer);
  const name = before.replicas?.find(({ isAsked }) => !isAsked)?.replica;
  b.pause();
  const beganMs = performance.now();
  // At once, before the lease of the other one lapses.
  const [asked, told] = await Promise.all([
    admin(a, '/status'),
    admin(a, '/upstreams/pid/disable', 'POST', { drainSeconds: 0 }),
  ]);
  const status = STATUS.parse(asked.answer);
  assert.ok(performance.now() - beganMs < 4_000, 'the answer does not wait for the lease'); // subject
  assert.deepEqual(
    status.unanswered?.map(({ replica }) => replica),
    [name],
  );
  assert.equal(status.sessions, 0);
  const done = DONE.parse(told.answer);
  assert.deepEqual(done.unconfirmed, [name]);
  assert.ok(done.message.includes(`${name} (`), done.message);
  // Its lease lapses, so that it joins again when it goes on.
  await waitUntil(async () => STATUS.parse((await admin(a, '/status')).answer).replicas === undefined);
  b.resume();
  await waitUntil(() => isDisabledAt(b));
});

test('an upstream that a reload adds is disabled as at the other replicas', OPTIONS, async () => {
  const [a, b] = await start('reload', 2);
  assert.ok(a !== undefined && b !== undefined);
  const file = await readFile(b.configFile, 'utf8');
  const { mcpServers, ...rest } = z.looseObject({ mcpServers: z.object({ pid: z.unknown() }) }).parse(JSON.parse(file));
  await writeFile(b.configFile, JSON.stringify({ ...rest, mcpServers: { pid: mcpServers.pid } }));
  assert.match((await admin(b, '/config/reload', 'POST', {})).text, /applied/);
  const done = DONE.parse((await admin(a, '/upstreams/other/disable', 'POST', { drainSeconds: 0 })).answer);
  assert.equal(done.unconfirmed?.length, 1, done.message);
  await writeFile(b.configFile, file);
  assert.match((await admin(b, '/config/reload', 'POST', {})).text, /applied/);
  await waitUntil(() => isDisabledAt(b, 'other'));
});

const OLDER = { ...OPTIONS, ...(NO_HISTORY === undefined ? {} : { skip: NO_HISTORY }) };

test('a replica of an older version is named, with the others around it', OLDER, async () => {
  await using older = await OlderVersion.checkout();
  const [a, b] = await start('older', 2);
  const [c] = await start('older', 1, {}, older.program);
  assert.ok(a !== undefined && b !== undefined && c !== undefined);
  const status = STATUS.parse((await admin(a, '/status')).answer);
  assert.equal(status.replicas?.length, 2);
  assert.deepEqual(
    status.unanswered?.map(({ why }) => why),
    ['it has another version'],
  );
  const done = DONE.parse((await admin(a, '/upstreams/pid/disable', 'POST', { drainSeconds: 0 })).answer);
  assert.equal(done.unconfirmed?.length, 1, done.message);
  assert.deepEqual([await isDisabledAt(b), await isDisabledAt(c)], [true, false]);
});

test('the command line shows the replicas, and those that have not answered', OPTIONS, async () => {
  const [a, b] = await start('cli', 2);
  assert.ok(a !== undefined && b !== undefined);
  await initialize(b.endpoint());
  const on = (...args: readonly string[]) =>
    runCli([...args, '--state-dir', join(a.dir, 'state')], a.dir, process.env, 60_000);
  const { stdout } = await on('status');
  assert.match(stdout, /^Replicas +127\.0\.0\.1:\d+: ready, this one was asked\n +127\.0\.0\.1:\d+: ready$/m);
  assert.match((await on('ls', 'sessions')).stdout, /REPLICA\n.* 127\.0\.0\.1:\d+$/m);
  assert.equal((await on('log-level', 'debug')).code, 0);
  // One whose address leads nowhere stays a member.
  const addresses = { internal: `127.0.0.1:${await freePort()}`, advertise: `127.0.0.1:${await freePort()}` };
  await start('cli', 1, addresses);
  assert.match((await on('ls', 'sessions')).stdout, /^Replicas that have not answered: 127\.0\.0\.1:\d+ \(it /m);
  const { code, stdout: told } = await on('log-level', 'info');
  assert.equal(code, 1);
  assert.match(told, /Replicas that have not confirmed it: 127\.0\.0\.1:\d+/);
});

test('the only replica answers as a single process does', OPTIONS, async () => {
  const [alone] = await start('alone', 1);
  assert.ok(alone !== undefined);
  await initialize(alone.endpoint());
  for (const path of ['/status', '/sessions', '/clients', '/streams', '/calls', '/upstreams']) {
    const { text } = await admin(alone, path);
    assert.doesNotMatch(text, /"replicas?"|"unanswered"/, path);
  }
});
