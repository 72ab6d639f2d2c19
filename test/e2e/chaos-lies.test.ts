import assert from 'node:assert/strict';
import { test } from 'node:test';
import { check } from '../chaos/check.ts';
import { LIES, planChaos, type Plan } from '../chaos/plan.ts';
import { runTrial } from '../chaos/trial.ts';
import { MISSING } from '../support/replicas.ts';

const OPTIONS = { timeout: 300_000, ...(MISSING === undefined ? {} : { skip: MISSING }) };

/** Returns a plan without faults in which upstreams lie about one call of each kind. */
function planLies(): { readonly plan: Plan; readonly lying: ReadonlyMap<string, string> } {
  const { clients, ...rest } = planChaos(1);
  const lying = new Map<string, string>();
  const calm = clients.map((client, index) => ({
    ...client,
    calls: client.calls.map((call, n) => {
      const lie = n === 4 ? LIES[index] : undefined;
      if (lie !== undefined) lying.set(call.id, lie);
      return { ...call, way: lie ?? ('answer' as const), atMs: n * 100, pauseMs: 0, resetMs: undefined };
    }),
  }));
  return { plan: { ...rest, clients: calm, faults: [] }, lying };
}

test('a trial finds upstreams that run calls twice, mix answers, or run nothing', OPTIONS, async () => {
  const { plan, lying } = planLies();
  const trial = await runTrial(plan);
  const violations = check(trial);
  const rules = (lie: string) =>
    violations
      .filter(({ about }) => lying.get(about) === lie)
      .map(({ rule }) => rule)
      .toSorted();
  const others = violations.filter(({ about, rule }) => !lying.has(about) && rule !== 'd');
  assert.deepEqual(others, [], 'honest calls have no violation');
  assert.deepEqual(rules('twice'), ['a', 'b']);
  assert.deepEqual(rules('foreign'), ['b']);
  assert.deepEqual(rules('skip'), ['b']);
});
