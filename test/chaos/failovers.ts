/**
 * Tries three replicas whose Redis has a replica and a sentinel. In each trial the sentinel makes the replica the master in the middle of calls, because it was told
 * to (the old master accepts writes for a moment longer) or because the master was killed:
 *
 *     node test/chaos/failovers.ts [--trials 20] [--seed 1] [--keep DIR]
 *
 * The rules are those of the chaos trials (`docs/reliability.md`).
 */
import { parseArgs } from 'node:util';
import { MISSING } from '../support/replicas.ts';
import { check } from './check.ts';
import { keepTrial } from './keep.ts';
import { FAILOVER_FAULTS, planFailover } from './plan.ts';
import { addFigures, figuresText, noFigures } from './summary.ts';
import { runTrial } from './trial.ts';

const { values: options } = parseArgs({
  options: {
    trials: { type: 'string', default: '20' },
    seed: { type: 'string', default: '1' },
    keep: { type: 'string' },
  },
});

const figures = noFigures();

/** Carries out one trial. Returns whether it broke no rule. */
async function tryFailover(seed: number): Promise<boolean> {
  const kind = FAILOVER_FAULTS[seed % FAILOVER_FAULTS.length] ?? 'fail Redis over';
  const plan = planFailover(seed, kind);
  const beganMs = performance.now();
  let logs: readonly string[] = [];
  const trial = await runTrial(plan, { hasSentinel: true, onLogs: (given) => (logs = given) });
  const violations = check(trial);
  addFigures(figures, trial, violations);
  const seconds = ((performance.now() - beganMs) / 1_000).toFixed(1);
  console.log(`seed ${seed}, ${kind}: ${violations.length} violations, ${seconds} s`);
  for (const { rule, about, text } of violations) console.log(`  (${rule}) ${about}: ${text}`);
  if (options.keep !== undefined && violations.length > 0) await keepTrial(options.keep, trial, violations, logs);
  return violations.length === 0;
}

async function main(): Promise<void> {
  if (MISSING !== undefined) throw new Error(MISSING);
  const first = Number(options.seed);
  let failed = 0;
  for (let seed = first; seed < first + Number(options.trials); seed++) if (!(await tryFailover(seed))) failed++;
  console.log(figuresText(figures));
  process.exitCode = failed === 0 && figures.seeds > 0 ? 0 : 1;
}

await main();
