import assert from 'node:assert/strict';
import { test } from 'node:test';
import { logRedisTrouble } from '../../../src/compose/replicas/redis-trouble.ts';
import { createLogger } from '../../../src/telemetry/log.ts';
import { stopTime } from '../../support/stopped-time.ts';

// R12
test('the log has a line when Redis fails, and one when it can be used again', async (t) => {
  const time = stopTime(t);
  const lines: string[] = [];
  let failure: string | undefined;
  await using _trouble = logRedisTrouble(
    () => failure,
    createLogger('info', { write: (line) => void lines.push(line) }),
  );
  const logged = () => lines.splice(0).map((line) => Object(JSON.parse(line)));
  time.pass(5_000);
  assert.deepEqual(logged(), []);
  failure = 'Redis cannot be used: no answer within 250 ms';
  for (let second = 0; second < 30; second++) time.pass(1_000);
  const [failed, ...more] = logged();
  assert.deepEqual([failed.level, failed.reason, more.length], [50, failure, 0]);
  failure = undefined;
  time.pass(1_000);
  const [recovered, ...others] = logged();
  assert.deepEqual([recovered.level, recovered.msg, recovered.seconds], [40, 'Redis can be used again', 30]);
  assert.equal(others.length, 0);
});
