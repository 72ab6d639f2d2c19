/**
 * `npm run bench`: what a request costs in front of the same upstream, by nginx, by the gateway and by the SDK's own parts.
 * See README.md beside this file.
 */
import { rmSync } from 'node:fs';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Options, readOptions } from './options.ts';
import { medianOf, ratio, type ScenarioResult, targetResults } from './results.ts';
import type { Scenario } from './scenarios.ts';
import { OTHERS_CORE, Stage, SUBJECT_CORE } from './stage.ts';
import { scenarioTable, targetTable } from './table.ts';

async function play(scenario: Scenario, options: Options): Promise<ScenarioResult> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-bench-'));
  const remove = () => rmSync(dir, { recursive: true, force: true });
  process.once('exit', remove);
  try {
    await using stage = new Stage(scenario, options, dir);
    return await stage.play();
  } finally {
    process.removeListener('exit', remove);
    remove();
  }
}

function report(options: Options, results: readonly ScenarioResult[]): object {
  const { seconds, rounds, connections, isPinned } = options;
  return {
    when: new Date().toISOString(),
    node: process.version,
    cpu: cpus()[0]?.model,
    cores: availableParallelism(),
    options: { seconds, rounds, connections, isPinned },
    scenarios: results.map((result) => ({
      ...result.scenario,
      subjects: result.rows.map((row) => ({
        ...row,
        median: medianOf(row),
        ratio: ratio(result, row.subject, result.scenario.baseline),
      })),
    })),
    targets: targetResults(results),
  };
}

function optionsOrEnd(): Options {
  try {
    return readOptions();
  } catch (thrown) {
    if (!(thrown instanceof TypeError)) throw thrown;
    console.error(thrown.message);
    process.exit(2);
  }
}

const options = optionsOrEnd();
const { seconds, rounds, connections, isPinned } = options;
const where = isPinned ? `subjects on core ${SUBJECT_CORE}, the rest on core ${OTHERS_CORE}` : 'not pinned to cores';
console.log(`Node ${process.version}, ${connections} connections, ${rounds} rounds of ${seconds} s, ${where}\n`);

const results: ScenarioResult[] = [];
for (const scenario of options.scenarios) {
  const result = await play(scenario, options);
  results.push(result);
  console.log(scenarioTable(result));
}
console.log(targetTable(results));
if (options.jsonFile !== undefined)
  await writeFile(options.jsonFile, JSON.stringify(report(options, results), undefined, 2));
if (results.some(({ rows }) => rows.some(({ failure }) => failure !== undefined))) process.exitCode = 1;
