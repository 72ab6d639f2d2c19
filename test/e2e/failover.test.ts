import assert from 'node:assert/strict';
import { test } from 'node:test';
import { check } from '../chaos/check.ts';
import { FAILOVER_FAULTS, planFailover } from '../chaos/plan.ts';
import { runTrial } from '../chaos/trial.ts';
import { MISSING } from '../support/replicas.ts';

const OPTIONS = { timeout: 150_000, ...(MISSING === undefined ? {} : { skip: MISSING }) };

for (const [seed, kind] of FAILOVER_FAULTS.entries()) {
  // R13 REL-01 REL-02 REL-03 REL-29
  test(`three replicas keep their promises in a failover: ${kind}`, OPTIONS, async () => {
    const trial = await runTrial(planFailover(seed + 1, kind), { hasSentinel: true });
    assert.deepEqual(check(trial), []);
    const calls = trial.histories.flatMap(({ attempts }) => attempts);
    assert.ok(calls.some(({ ends }) => ends[0]?.kind === 'ok'));
  });
}
