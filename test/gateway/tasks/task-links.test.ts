import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ResultTranslator } from '../../../src/gateway/forward/result-translator.ts';
import { Sender } from '../../../src/gateway/forward/sender.ts';
import { QuestionPolicy } from '../../../src/gateway/questions/question-policy.ts';
import { UpgradedTasks } from '../../../src/gateway/tasks/upgraded-tasks.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Answer } from '../../../src/protocol/jsonrpc.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { coreTaskUpstream } from '../../support/task-upstreams.ts';

const STATE = { taskId: 't', status: 'working', createdAt: 'now', lastUpdatedAt: 'now', ttl: 60_000 };
const WORKING: Answer = { kind: 'result', result: JSON.stringify(STATE) };
const LOST: Answer = { kind: 'error', error: { code: -32603, message: 'lost' } };

/** Tasks at one upstream, with room for one task of each principal. */
async function upgraded() {
  const { memory } = coreTaskUpstream();
  const at = new GatewayParts({ up: { memory } }, {}, { limits: { parkedPerPrincipal: 1 } });
  const { upstreams, metrics, stateLosses, log, config } = at;
  const policy = new QuestionPolicy({ rulesOf: (id) => upstreams.get(id)?.config, metrics, log });
  const tasks = new UpgradedTasks({
    sender: new Sender(metrics, stateLosses),
    translator: new ResultTranslator(RawObject.EMPTY, policy),
    settings: () => config,
    onLimit: () => undefined,
  });
  const upstream = at.upstream('up');
  const { group, client } = at.group();
  return {
    tasks,
    principal: client.caller.principal.key,
    exchange: () => at.exchange(client, group, { method: 'tasks/get' }).exchange,
    /** Returns the task over a connection of its own. */
    site: async () => ({ upstream, holder: group, task: 't', link: await upstream.link(at.group().group) }),
    [Symbol.asyncDispose]: () => at[Symbol.asyncDispose](),
  };
}

test('a task that ends during a poll keeps no connection open', async () => {
  await using at = await upgraded();
  const [first, polled] = [await at.site(), await at.site()];
  at.tasks.begin(at.exchange(), first, RawObject.of({ task: STATE }), RawObject.of(STATE));
  const state = await at.tasks.get(at.exchange(), polled, async () => {
    at.tasks.end(polled);
    return WORKING;
  });
  assert.equal(state.kind === 'result' && RawObject.parse(state.result).string('status'), 'working');
  assert.deepEqual([first.link.tasks.size, polled.link.tasks.size], [0, 0]);
});

test('a task does not end with the connection that an ended task of its id had', async () => {
  await using at = await upgraded();
  const [first, closed, later] = [await at.site(), await at.site(), await at.site()];
  at.tasks.begin(at.exchange(), first, RawObject.of({ task: STATE }), RawObject.of(STATE));
  await closed.link.connection.close();
  await at.tasks.get(at.exchange(), closed, async () => LOST);
  at.tasks.end(first);
  at.tasks.begin(at.exchange(), later, RawObject.of({ task: STATE }), RawObject.of(STATE));
  await first.link.connection.close();
  assert.equal(at.tasks.hasRoom(at.principal), false);
  await later.link.connection.close();
  assert.equal(at.tasks.hasRoom(at.principal), true);
});
