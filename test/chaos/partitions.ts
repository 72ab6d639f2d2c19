/**
 * Tries three replicas, Redis and a balancer in network namespaces of their own. In each trial packets between one replica and others vanish for longer
 * than a lease, in both directions or in one:
 *
 *     node test/chaos/partitions.ts [--only TEXT] [--seed 1] [--keep DIR]
 *
 * The rules are those of the chaos trials (`docs/reliability.md`). Needs root on Linux; elsewhere it ends with 1 and says so.
 */
import { parseArgs } from 'node:util';
import { MISSING } from '../support/replicas.ts';
import { check } from './check.ts';
import { keepTrial } from './keep.ts';
import { NamespaceNetwork } from './network.ts';
import { DIRECTIONS, type Fault, PARTITION_FAULTS, planChaos } from './plan.ts';
import { addFigures, figuresText, noFigures } from './summary.ts';
import { runTrial } from './trial.ts';

const { values: options } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    seed: { type: 'string', default: '1' },
    keep: { type: 'string' },
  },
});

/** Calls begin within this time. */
const WINDOW_MS = 12_000; // subject
const BEGIN_MS = 1_500; // subject
/** A lease lasts for 5 s and is renewed each second. */
const LAST_MS = 7_500; // subject

const figures = noFigures();

/** Carries out one partition. Returns whether it broke no rule. */
async function tryPartition(name: string, seed: number, fault: Fault): Promise<boolean> {
  const plan = planChaos(seed, WINDOW_MS, [fault]);
  const beganMs = performance.now();
  let logs: readonly string[] = [];
  const trial = await runTrial(plan, { hasNamespaces: true, onLogs: (given) => (logs = given) });
  const violations = check(trial);
  addFigures(figures, trial, violations);
  const seconds = ((performance.now() - beganMs) / 1_000).toFixed(1);
  console.log(`${name}: ${violations.length} violations, ${seconds} s`);
  for (const { rule, about, text } of violations) console.log(`  (${rule}) ${about}: ${text}`);
  if (options.keep !== undefined && violations.length > 0) await keepTrial(options.keep, trial, violations, logs);
  return violations.length === 0;
}

async function main(): Promise<void> {
  if (MISSING !== undefined) throw new Error(MISSING);
  const { missing } = NamespaceNetwork;
  if (missing !== undefined) throw new Error(`partitions were not tried: ${missing}`);
  let failed = 0;
  let seed = Number(options.seed);
  for (const kind of PARTITION_FAULTS) {
    for (const direction of DIRECTIONS) {
      const name = `${kind}, ${direction}`;
      seed++;
      if (!name.includes(options.only)) continue;
      const replica = seed % 3;
      const fault: Fault = { kind, replica, direction, atMs: BEGIN_MS, untilMs: BEGIN_MS + LAST_MS };
      if (!(await tryPartition(name, seed, fault))) failed++;
    }
  }
  console.log(figuresText(figures));
  process.exitCode = failed === 0 && figures.seeds > 0 ? 0 : 1;
}

await main();
