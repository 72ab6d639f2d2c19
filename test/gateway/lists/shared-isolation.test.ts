import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Isolation } from '../../../src/config/values/upstream-config.ts';
import { META } from '../../../src/protocol/meta.ts';
import { type TestCore, testCore } from '../../support/core.ts';
import { type HttpUpstream, modernUpstream } from '../../support/http-upstream.ts';
import { membersOf } from '../../support/members.ts';
import { ModernClient } from '../../support/modern-client.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const COMMON = ['up__plain'];
const ASKING = ['up__plain', 'up__ask'];

const tool = (name: string) => ({ name, inputSchema: { type: 'object' } });

/** A server with a tool for clients that answer questions. */
function askingUpstream(): Promise<HttpUpstream> {
  return modernUpstream({
    capabilities: { tools: { listChanged: true } },
    answers: {
      'tools/list': ({ meta }) => {
        const asks = membersOf(meta[META.clientCapabilities])['elicitation'] !== undefined;
        const tools = asks ? [tool('plain'), tool('ask')] : [tool('plain')];
        return { resultType: 'complete', tools, ttlMs: 0, cacheScope: 'private' };
      },
    },
  });
}

async function namesOf(gateway: TestCore): Promise<readonly unknown[]> {
  const { tools } = await new ModernClient(gateway, { elicitation: {} }).result('tools/list');
  assert.ok(Array.isArray(tools));
  return tools.map(({ name }) => name);
}

test('a reload to isolation shared ends the use of lists for certain capabilities', TIMEOUT, async () => {
  await using upstream = await askingUpstream();
  await using gateway = await testCore({ up: upstream.config });
  assert.deepEqual(await namesOf(gateway), ASKING);
  const upstreams = (isolation: Isolation) => gateway.config.upstreams.map((one) => ({ ...one, isolation }));
  await gateway.reload({ upstreams: upstreams('shared') });
  await waitUntil(() => upstream.listens().length === 1);
  assert.deepEqual(await namesOf(gateway), COMMON);
});

test('lists for certain capabilities on disk are of no use with isolation shared', TIMEOUT, async () => {
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-shared-isolation-'));
  await using cleanups = new AsyncDisposableStack();
  cleanups.defer(() => rm(stateDir, { recursive: true, force: true }));
  await using upstream = await askingUpstream();
  for (const [isolation, expected] of [
    ['session', ASKING],
    ['shared', COMMON],
    ['session', ASKING],
  ] as const) {
    await using gateway = await testCore({ up: { ...upstream.config, isolation } }, { stateDir });
    await waitUntil(async () => (await namesOf(gateway)).length > 0);
    assert.deepEqual(await namesOf(gateway), expected, isolation);
  }
});
