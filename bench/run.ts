/**
 * `npm run bench`: the cost of a request in front of the same upstream, for nginx, the gateway and the SDK's own
 * parts.
 * With `--growth`, how cost grows with sessions, upstreams, tools and connections; with `--hostile`, the cost of
 * hostile input.
 * See README.md beside this file.
 */
import { writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { readOrEnd } from './command-line.ts';
import { withFolder } from './folder.ts';
import { GROWTH } from './growth/series.ts';
import { HOSTILE } from './hostile/series.ts';
import { type Options, readOptions } from './options.ts';
import { pinThisProcess } from './program.ts';
import { medianInterval, medianOf, ratio, ratios, type ScenarioResult, targetResults } from './results.ts';
import type { Scenario } from './scenarios.ts';
import { boundResults, boundTable } from './sheet.ts';
import { OTHERS_CORE, Stage, SUBJECT_CORE } from './stage.ts';
import { playSuite } from './suite.ts';
import { scenarioTable, targetTable } from './table.ts';

/** The outcome of a run. */
interface Outcome {
  readonly report: object;
  readonly isWhole: boolean;
}

async function play(scenario: Scenario, options: Options): Promise<ScenarioResult> {
  return await withFolder(async (dir) => {
    await using stage = new Stage(scenario, options, dir);
    return await stage.play();
  });
}

async function playRequests(options: Options): Promise<Outcome> {
  const results: ScenarioResult[] = [];
  for (const scenario of options.scenarios) {
    const result = await play(scenario, options);
    results.push(result);
    console.log(scenarioTable(result));
  }
  console.log(targetTable(results));
  const scenarios = results.map((result) => ({
    ...result.scenario,
    subjects: result.rows.map((row) => ({
      ...row,
      median: medianOf(row),
      ratio: ratio(result, row.subject, result.scenario.baseline),
      ratioToGateway: ratio(result, row.subject, 'gateway'),
      intervalToGateway: medianInterval(ratios(result, row.subject, 'gateway')),
    })),
  }));
  const isWhole = results.every(({ rows }) => rows.every(({ failure }) => failure === undefined));
  return { report: { scenarios, targets: targetResults(results) }, isWhole };
}

async function playSeries(options: Options): Promise<Outcome> {
  if (options.isPinned) pinThisProcess(OTHERS_CORE);
  const all = options.suite === 'growth' ? GROWTH : HOSTILE;
  const sheets = await withFolder((dir) => playSuite(all, options, dir));
  const targets = boundResults(sheets, 'gateway');
  console.log(boundTable(targets));
  const isWhole = sheets.every(({ rows }) => rows.every(({ failure }) => failure === undefined));
  return { report: { series: sheets, targets }, isWhole };
}

const options = readOrEnd(
  'npm run bench -- [--growth | --hostile] [--only IDS] [--subjects IDS] [--seconds 3] [--rounds 3] [--slice MS] [--connections 16] ' +
    '[--against FOLDERS] [--one-process] [--gateway FOLDER] [--no-pin] [--json FILE]',
  () => readOptions(),
);
const { suite, seconds, rounds, connections, isPinned, checkout, against, sliceMs } = options;
const where = isPinned ? `subjects on core ${SUBJECT_CORE}, the rest on core ${OTHERS_CORE}` : 'not pinned to cores';
const how =
  suite === 'request'
    ? `${connections} connections, ${rounds} rounds of ${sliceMs === undefined ? `${seconds} s` : `${sliceMs} ms`}`
    : suite;
console.log(`Node ${process.version}, ${how}, ${where}`);
console.log(
  `gateway of ${checkout}${against.length === 0 ? '' : `, against ${against.map(({ folder }) => folder).join(', ')}`}\n`,
);

const { report, isWhole } = await (suite === 'request' ? playRequests(options) : playSeries(options));
if (options.jsonFile !== undefined) {
  const machine = {
    when: new Date().toISOString(),
    node: process.version,
    cpu: cpus()[0]?.model,
    cores: cpus().length,
  };
  const all = {
    ...machine,
    options: { suite, seconds, sliceMs, rounds, connections, isPinned, checkout, against },
    ...report,
  };
  await writeFile(options.jsonFile, JSON.stringify(all, undefined, 2));
}
if (!isWhole) process.exitCode = 1;
