import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { collectInput } from '../../../src/gateway/questions/collect-input.ts';
import { OpenedPages } from '../../../src/gateway/questions/opened-pages.ts';
import { QuestionPolicy } from '../../../src/gateway/questions/question-policy.ts';
import type { GatewayError } from '../../../src/errors.ts';
import { RawObject } from '../../../src/json/json.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';

/** Two calls of one session, each in a round of its upstream that asks nothing. */
function rounds() {
  const at = new GatewayParts({ up: { memory: memoryUpstream({}) } });
  const policy = new QuestionPolicy({ rulesOf: () => undefined, metrics: at.metrics, log: at.log });
  const { session } = at.session();
  const asked = { inputRequests: [], requestState: '"s"', rest: RawObject.EMPTY };
  const begin = () => {
    const { exchange } = at.exchange(session.clientOf(session.caller.principal), session);
    return { exchange, retry: collectInput(policy, exchange, 'up', asked, new OpenedPages(0)) };
  };
  return { at, begin };
}

//
test('a round without questions takes its pause, unless its call is cancelled', async (t) => {
  const time = stopTime(t);
  const { at, begin } = rounds();
  await using _ = at;
  const [kept, cancelled] = [begin(), begin()];
  const ends: unknown[] = [];
  void kept.retry.then((retry) => ends.push(retry));
  cancelled.retry.catch(({ code }: GatewayError) => ends.push(code));
  cancelled.exchange.cancel(undefined);
  time.pass(249);
  await nextTurn();
  assert.deepEqual(ends, ['cancelled']);
  time.pass(1);
  await nextTurn();
  assert.deepEqual(ends, ['cancelled', { inputResponses: undefined, requestState: '"s"' }]);
});
