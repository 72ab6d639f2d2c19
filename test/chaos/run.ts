/**
 * Tries three replicas with random faults, and checks the histories of clients against the ledgers of upstreams:
 *
 *     node test/chaos/run.ts [--seeds COUNT] [--from SEED] [--window MS] [--namespaces] [--events] [--json FILE] [--keep DIR]
 *
 * A seed decides the calls and the faults, not the order in which processes get the processor: a failing seed may pass the next time.
 * `--namespaces` puts each replica into a network namespace, so that cut ways drop packets; it needs root. `--events` keeps the events of streams in Redis, so that any replica resumes them. `--keep` writes the histories and the logs of trials with violations. `docs/reliability.md` explains the rules.
 */
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { MISSING } from '../support/replicas.ts';
import { check } from './check.ts';
import { keepTrial } from './keep.ts';
import { planChaos, WINDOW_MS } from './plan.ts';
import { addFigures, figuresText, noFigures } from './summary.ts';
import { runTrial } from './trial.ts';

const { values: options } = parseArgs({
  options: {
    seeds: { type: 'string', default: '5' },
    from: { type: 'string', default: '1' },
    window: { type: 'string', default: String(WINDOW_MS) },
    namespaces: { type: 'boolean', default: false },
    events: { type: 'boolean', default: false },
    json: { type: 'string' },
    keep: { type: 'string' },
  },
});

const figures = noFigures();

/** Returns the texts of the errors in logs, with their numbers. They are no violations, and worth a look. */
function errorsIn(logs: readonly string[]): string {
  const texts = logs.flatMap((log) => [...log.matchAll(/^\{"level":[56]0.*"msg":"([^"]*)"/gm)].map(([, text]) => text));
  const counts = [...Map.groupBy(texts, (text) => text)].map(([text, all]) => `${all.length} × ${text}`);
  return counts.length === 0 ? '' : `; logged: ${counts.join(', ')}`;
}

/** Carries out one seed. Returns its violations. */
async function trySeed(seed: number): Promise<readonly string[]> {
  const plan = planChaos(seed, Number(options.window));
  const beganMs = performance.now();
  let logs: readonly string[] = [];
  const trial = await runTrial(plan, {
    hasNamespaces: options.namespaces,
    keepsEvents: options.events,
    onLogs: (given) => (logs = given),
  });
  const violations = check(trial);
  addFigures(figures, trial, violations);
  const seconds = ((performance.now() - beganMs) / 1_000).toFixed(1);
  const faults = plan.faults.map((fault) => `${fault.kind}${'replica' in fault ? ` ${fault.replica}` : ''}`);
  console.log(`seed ${seed}: ${violations.length} violations, ${seconds} s; ${faults.join(', ')}${errorsIn(logs)}`);
  const lines = violations.map(({ rule, about, text }) => `(${rule}) ${about}: ${text}`);
  for (const line of lines) console.log(`  ${line}`);
  if (options.keep !== undefined && violations.length > 0) await keepTrial(options.keep, trial, violations, logs);
  return lines;
}

async function main(): Promise<void> {
  if (MISSING !== undefined) throw new Error(MISSING);
  const first = Number(options.from);
  const seeds = Array.from({ length: Number(options.seeds) }, (_, n) => first + n);
  let failed = 0;
  const failures: string[] = [];
  for (const seed of seeds) {
    const found = await trySeed(seed).catch((thrown: unknown) => {
      console.log(`seed ${seed}: the trial itself failed: ${String(thrown)}`);
      return [`the trial itself failed: ${String(thrown)}`];
    });
    if (found.length > 0) failed++;
    for (const line of found) failures.push(`seed ${seed}: ${line}`);
  }
  console.log(figuresText(figures));
  if (options.json !== undefined) {
    await writeFile(options.json, JSON.stringify({ passed: seeds.length - failed, failed, failures, figures }));
  }
  process.exitCode = failed === 0 ? 0 : 1;
}

await main();
// Version 1 of the SDK opens streams again for three minutes after its clients were closed.
process.exit();
