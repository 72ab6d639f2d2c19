import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { type OpenAudit, openTestAudit } from '../../support/audit.ts';
import { testCore } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';
import { ModernClient, modernRequest } from '../../support/modern-client.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const ROOM_FOR_ONE = { limits: { sessionsPerPrincipal: 1 } };
const WANTS_TOOLS = { notifications: { toolsListChanged: true } };
const OTHER = { elicitation: {} };

function upstream() {
  return memoryUpstream({
    capabilities: { tools: { listChanged: true } },
    lists: { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] },
  });
}

/** Makes requests wait for their audit records. */
function holdAudit(t: TestContext, { trail }: OpenAudit) {
  const waiting: (() => void)[] = [];
  t.mock.method(trail, 'commit', () => new Promise<number>((resolve) => waiting.push(() => resolve(1))));
  return {
    /** Resolves when a request waits. */
    reached: () => waitUntil(() => waiting.length > 0),
    open: () => waiting.forEach((resume) => resume()),
  };
}

test('a group whose listen is being prepared is not released to make room', TIMEOUT, async (t) => {
  await using audit = await openTestAudit({ required: true });
  await using gateway = await testCore({ up: { memory: upstream() } }, ROOM_FOR_ONE, undefined, audit.trail);
  const gate = holdAudit(t, audit);
  const listen = modernRequest(gateway, 'subscriptions/listen', WANTS_TOOLS);
  await gate.reached();
  const error = await new ModernClient(gateway, OTHER).error('tools/list');
  assert.match(error.message, /sessionsPerPrincipal/);
  gate.open();
  await waitUntil(() => listen.messages.length > 0);
  listen.call.close();
  await listen.reply;
  await new ModernClient(gateway, OTHER).result('tools/list');
});

test('a listen whose group is released while it is prepared ends at once', TIMEOUT, async (t) => {
  await using audit = await openTestAudit({ required: true });
  await using gateway = await testCore({ up: { memory: upstream() } }, {}, undefined, audit.trail);
  const gate = holdAudit(t, audit);
  const listen = modernRequest(gateway, 'subscriptions/listen', WANTS_TOOLS);
  await gate.reached();
  gateway.core.groups.releaseWhere(() => true);
  gate.open();
  const { result: ended } = await listen.reply;
  assert.partialDeepStrictEqual(ended, { resultType: 'complete' });
});

test('groups that are being made at the same time count toward sessionsPerPrincipal', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: upstream() } }, ROOM_FOR_ONE);
  const list = (capabilities: object) => modernRequest(gateway, 'tools/list', {}, { capabilities }).reply;
  const [first, second] = await Promise.all([list({}), list(OTHER)]);
  assert.equal(first.error, undefined);
  assert.match(second.error?.message ?? '', /sessionsPerPrincipal/);
  assert.equal((await list(OTHER)).error, undefined, 'the first one is made, and can be released');
});
