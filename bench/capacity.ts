/**
 * `npm run load`: how many streams, sessions and calls a gateway carries, and what it does beyond that. See README.md beside this file.
 */
import { writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { KNEE, OVERLOAD } from './capacity/knee.ts';
import type { Outcome, Scenario, ScenarioOptions } from './capacity/scenario.ts';
import { DRIP, MEMORY, MEMORY_HEAP, SLOW } from './capacity/slow.ts';
import { PRINCIPALS } from './capacity/stage.ts';
import { IDLE, MIXED } from './capacity/streams.ts';
import { readOrEnd } from './command-line.ts';
import { withFolder } from './folder.ts';
import { machineNow } from './machine.ts';
import { named } from './options.ts';
import { canPin } from './program.ts';
import { boundResults, boundTable, type Row, type Sheet } from './sheet.ts';
import { OTHERS_CORE, SUBJECT_CORE } from './stage.ts';
import { figure, table } from './table.ts';

const SCENARIOS: readonly Scenario[] = [IDLE, MIXED, KNEE, SLOW, DRIP, OVERLOAD, MEMORY, MEMORY_HEAP];
const STREAMS = 10_000;

interface Played {
  readonly id: string;
  readonly minutes: number;
  readonly loadBefore: readonly string[];
  readonly loadAfter: readonly string[];
  readonly sheet: Sheet;
  readonly details: object;
}

const USAGE =
  `npm run load -- [--only ${SCENARIOS.map(({ id }) => id).join(',')}] [--minutes 3] [--streams ${STREAMS}] [--rate 2000] ` +
  '[--neighbours 0] [--no-pin] [--json FILE]';

const { values, scenarios } = readOrEnd(USAGE, () => {
  const { values } = parseArgs({
    allowNegative: true,
    options: {
      only: { type: 'string' },
      minutes: { type: 'string' },
      streams: { type: 'string', default: String(STREAMS) },
      rate: { type: 'string' },
      neighbours: { type: 'string', default: '0' },
      pin: { type: 'boolean', default: true },
      json: { type: 'string' },
    },
  });
  return { values, scenarios: values.only === undefined ? SCENARIOS : named(SCENARIOS, values.only, 'only') };
});
const isPinned = values.pin && availableParallelism() > 1 && canPin();

function optional(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number(text);
}

function options(minutes: number): ScenarioOptions {
  const { rate, streams, neighbours } = values;
  return { minutes, rate: optional(rate), streams: Number(streams), neighbours: Number(neighbours) };
}

async function outcomeOf(scenario: Scenario, minutes: number): Promise<Outcome | string> {
  try {
    return await withFolder((dir) => {
      const place = {
        dir,
        subjectCore: isPinned ? SUBJECT_CORE : undefined,
        othersCore: isPinned ? OTHERS_CORE : undefined,
      };
      return scenario.run(place, options(minutes));
    });
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message : String(thrown);
  }
}

async function play(scenario: Scenario): Promise<Played> {
  const { id, title, bounds } = scenario;
  const minutes = optional(values.minutes) ?? scenario.minutes;
  const { load: loadBefore } = machineNow();
  console.log(`${id}: ${title}; ${minutes} min, load of the machine ${loadBefore.join(' ')}`);
  const outcome = await outcomeOf(scenario, minutes);
  const row = { point: id, subject: 'gateway' };
  const rows: readonly Row[] = [
    typeof outcome === 'string' ? { ...row, figures: {}, failure: outcome } : { ...row, figures: outcome.figures },
  ];
  const sheet = { id, title, rows, bounds: bounds.map((bound) => ({ ...bound, point: id })) };
  const shown = Object.entries(rows[0]?.figures ?? {}).map(([name, value]) => [name, figure(value)]);
  console.log(typeof outcome === 'string' ? `  not measured: ${outcome}\n` : `${table(shown)}\n`);
  const details = typeof outcome === 'string' ? {} : outcome.details;
  return { id, minutes, loadBefore, loadAfter: machineNow().load, sheet, details };
}

const machine = machineNow();
console.log(
  `${machine.commit}, Node ${machine.node}, ${machine.cores} cores, ${isPinned ? 'gateway on core 0' : 'not pinned'}`,
);
console.log(`default config, no limit raised: the clients are ${PRINCIPALS} principals with an API key each\n`);
const played: Played[] = [];
for (const scenario of scenarios) played.push(await play(scenario));
const targets = boundResults(
  played.map(({ sheet }) => sheet),
  'gateway',
);
console.log(boundTable(targets));
if (values.json !== undefined) {
  await writeFile(
    values.json,
    JSON.stringify({ machine, isPinned, options: values, scenarios: played, targets }, undefined, 2),
  );
}
if (played.some(({ sheet }) => sheet.rows.some(({ failure }) => failure !== undefined))) process.exitCode = 1;
