import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { SessionServer } from '../support/session-server.ts';
import { modernPost } from '../support/modern-wire.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const QUICK = fileURLToPath(new URL('../fixtures/servers/quick-stdio.sh', import.meta.url));

const quick = (own: Readonly<Record<string, unknown>> = {}) => ({ command: 'sh', args: [QUICK], ...own });

/** Asks as a load balancer does, which sends no client before the answer is 200. */
async function readyz({ operatorUrl }: RunningGateway): Promise<{ readonly status: number; readonly text: string }> {
  const response = await fetch(`${operatorUrl}/readyz`);
  return { status: response.status, text: await response.text() };
}

async function becomesReady(gateway: RunningGateway): Promise<void> {
  await waitUntil(async () => (await readyz(gateway)).status === 200);
}

test('/readyz becomes 200 without a client: a required upstream is started', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: { files: quick({ required: true }), other: quick() } });
  await becomesReady(gateway);
  const states = await (await fetch(`${gateway.operatorUrl}/status`)).text();
  assert.match(states, /"id":"other"[^}]*"state":"configured"/, 'others wait for their first use');
});

test('/readyz becomes 200 after reloads that make upstreams required or replace them', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: { files: quick() } });
  assert.equal((await readyz(gateway)).status, 200);
  const env = { LABEL: 'new' };
  for (const own of [{ required: true }, { required: true, env }, { required: true, env, isolation: 'shared' }]) {
    const before = gateway.logs().split('"config applied"').length;
    await gateway.configure({ mcpServers: { files: quick(own) } });
    await waitUntil(() => gateway.logs().split('"config applied"').length > before);
    await becomesReady(gateway);
  }
});

/** A required server whose processes can start only while the test has opened a gate. */
async function gated() {
  const gate = join(await mkdtemp(join(tmpdir(), 'linkspan-required-')), 'open');
  const args = ['-c', 'test -e "$0" && exec sh "$1"', gate, QUICK];
  const open = () => writeFile(gate, '');
  await open();
  return {
    server: { command: 'sh', args, required: true },
    open,
    close: () => rm(gate),
    [Symbol.asyncDispose]: () => rm(dirname(gate), { recursive: true }),
  };
}

/** Calls the tool of a session. Returns the id of the process that has answered, or undefined if the call has failed. */
async function pidOf(gateway: RunningGateway, session: string): Promise<number | undefined> {
  const got = await post(gateway.endpoint(), rpc(1, 'tools/call', { name: 'files__pid', arguments: {} }), session);
  const { result } = messagesOf(got).find(({ id }) => id === 1) ?? {};
  return result === undefined ? undefined : Number(/"text":"(\d+)"/.exec(JSON.stringify(result))?.[1]);
}

test('/readyz stays 200 while sessions are served, though a new one gets no process', TIMEOUT, async () => {
  await using files = await gated();
  await using gateway = await startGateway({ mcpServers: { files: files.server } });
  await becomesReady(gateway);
  const [first, other] = [await initialize(gateway.endpoint()), await initialize(gateway.endpoint())];
  const pid = await pidOf(gateway, first);
  await files.close();
  for (let attempt = 0; attempt < 6; attempt++) {
    assert.equal(await pidOf(gateway, other), undefined);
    assert.deepEqual(await readyz(gateway), { status: 200, text: '{"ready":true,"reasons":[]}' });
  }
  assert.match(await (await fetch(`${gateway.operatorUrl}/metrics`)).text(), /^linkspan_upstream_up\{.*\} 1$/m);
  assert.equal(await pidOf(gateway, first), pid, 'the session still has its process');
});

test('/readyz becomes 200 without a client, after a start for a client has failed', TIMEOUT, async () => {
  await using files = await gated();
  await using gateway = await startGateway({ mcpServers: { files: files.server } });
  await becomesReady(gateway);
  const session = await initialize(gateway.endpoint());
  const pid = await pidOf(gateway, session);
  assert.ok(pid !== undefined);
  await files.close();
  process.kill(pid, 'SIGKILL');
  // The first call may fail with its process, and not at the start of another one.
  await waitUntil(async () => (await pidOf(gateway, session)) === undefined && (await readyz(gateway)).status === 503);
  await files.open();
  await becomesReady(gateway);
});

/** Calls the tool of a remote server with sessions. Returns whether it was answered. */
async function isCounted(gateway: RunningGateway, session: string): Promise<boolean> {
  const got = await post(gateway.endpoint(), rpc(1, 'tools/call', { name: 'remote__count', arguments: {} }), session);
  return messagesOf(got).find(({ id }) => id === 1)?.result !== undefined;
}

test('/readyz is 503 while a required remote server is down, and 200 once it is up', TIMEOUT, async () => {
  await using server = await SessionServer.start();
  await using gateway = await startGateway({ mcpServers: { remote: { url: server.url, required: true } } });
  await becomesReady(gateway);
  const [first, other] = [await initialize(gateway.endpoint()), await initialize(gateway.endpoint())];
  assert.ok(await isCounted(gateway, first));
  server.outage = 503;
  await waitUntil(async () => !(await isCounted(gateway, other)) && (await readyz(gateway)).status === 503);
  assert.equal((await readyz(gateway)).status, 503, 'connections that are open do not serve');
  server.outage = undefined;
  await becomesReady(gateway);
});

// REL-10
test('/readyz is 503 while calls over the open connection get no answer', TIMEOUT, async () => {
  await using server = await SessionServer.start();
  const remote = { url: server.url, required: true, isolation: 'shared' };
  await using gateway = await startGateway({ mcpServers: { remote } });
  await becomesReady(gateway);
  const session = await initialize(gateway.endpoint());
  assert.ok(await isCounted(gateway, session));
  for (const outage of [503, 'cut'] as const) {
    server.outage = outage;
    await waitUntil(async () => !(await isCounted(gateway, session)) && (await readyz(gateway)).status === 503);
    assert.match((await readyz(gateway)).text, outage === 503 ? /HTTP 503/ : /broke the connection/);
    assert.match(await (await fetch(`${gateway.operatorUrl}/metrics`)).text(), /^linkspan_upstream_up\{.*\} 0$/m);
    server.outage = undefined;
    await becomesReady(gateway);
    assert.ok(await isCounted(gateway, session));
    await waitUntil(async () =>
      (await (await fetch(`${gateway.operatorUrl}/status`)).text()).includes('"state":"ready"'),
    );
  }
});

// REL-10
test('/readyz is 503 once a client of the other era finds a remote server down', TIMEOUT, async () => {
  await using server = await SessionServer.start();
  await using gateway = await startGateway({ mcpServers: { remote: { url: server.url, required: true } } });
  await becomesReady(gateway);
  assert.ok(await isCounted(gateway, await initialize(gateway.endpoint())));
  server.outage = 'cut';
  await modernPost(gateway.endpoint(), 'tools/call', { name: 'remote__count', arguments: {} });
  await waitUntil(async () => (await readyz(gateway)).status === 503);
  assert.doesNotMatch((await readyz(gateway)).text, /for clients of/);
  server.outage = undefined;
  await becomesReady(gateway);
});

test('/readyz stays 200 while a required remote server opens no further session', TIMEOUT, async () => {
  await using server = await SessionServer.start();
  await using gateway = await startGateway({ mcpServers: { remote: { url: server.url, required: true } } });
  await becomesReady(gateway);
  const [first, other] = [await initialize(gateway.endpoint()), await initialize(gateway.endpoint())];
  assert.ok(await isCounted(gateway, first));
  server.isFull = true;
  for (let call = 0; call < 3; call++) {
    assert.equal(await isCounted(gateway, other), false);
    assert.equal((await readyz(gateway)).status, 200, 'it serves the first session');
    assert.ok(await isCounted(gateway, first));
    assert.equal((await readyz(gateway)).status, 200);
  }
  const status = await (await fetch(`${gateway.operatorUrl}/status`)).text();
  assert.match(status, /"state":"degraded"/, 'nobody knows whether it opens sessions again');
});
