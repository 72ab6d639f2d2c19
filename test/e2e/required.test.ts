import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
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
