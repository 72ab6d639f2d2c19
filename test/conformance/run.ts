/**
 * Runs the official conformance suite against a gateway, and prints the results.
 *
 *     node test/conformance/run.ts [--direct] [--only SCENARIO] [--json FILE]
 *                                  [--leg server|tasks|client] [--upstream http|stdio] [--era legacy|modern|both]
 *                                  [--revision 2025-06-18|2025-11-25|2026-07-28|0.1.16|tasks] [--endpoint single|merged]
 *                                  [--replicas N] [--workers N]
 *
 * `--direct` runs without the gateway, `--replicas 3` with three of them, one Redis, and a balancer that sends each request to any of them.
 * `--workers 2` runs one gateway with two workers.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { inLanes } from './lanes.ts';
import { choose, clientPlans, serverPlans, type Cell, type ClientPlan, type ServerPlan } from './plan.ts';
import { score, type Score } from './score.ts';
import { clientScenario, scenarios, serverLeg } from './suite.ts';
import { failureLines, matrixLines, ownerLines, rowLine, type Row } from './table.ts';
import { direct, gateway, type Target } from './targets.ts';
import { warm } from './warm.ts';

const { values: options } = parseArgs({
  options: {
    direct: { type: 'boolean' },
    only: { type: 'string' },
    leg: { type: 'string' },
    upstream: { type: 'string' },
    era: { type: 'string' },
    revision: { type: 'string' },
    endpoint: { type: 'string' },
    json: { type: 'string' },
    replicas: { type: 'string', default: '1' },
    workers: { type: 'string', default: '1' },
  },
});
const choice = choose(options);

/** Cells that have not begun by then fail, so that a gateway that hangs does not block the run. */
const LATEST_MS = 20 * 60_000;
const LANES = Math.min(2, availableParallelism());
const DRIVER = fileURLToPath(new URL('client-driver.ts', import.meta.url));

const rows: Row[] = [];
const out = await mkdtemp(join(tmpdir(), 'linkspan-conformance-'));

type Measured = Omit<Row, 'seconds' | 'scores'>;

async function add(row: Measured, run: (dir: string) => Promise<Score[]>): Promise<boolean> {
  const dir = join(out, row.target.replaceAll(' ', '-'), row.name.replaceAll(' ', '-'));
  await mkdir(dir, { recursive: true });
  const began = performance.now();
  const scores = await run(dir);
  if (scores.length === 0) return true;
  const measured = { ...row, seconds: (performance.now() - began) / 1000, scores };
  rows.push(measured);
  console.log(rowLine(measured));
  return scores.every(({ passed }) => passed);
}

async function measure({ selection, only, times }: Cell, url: string, dir: string): Promise<Score[]> {
  const found: Score[] = [];
  // The suite decides whether the server answers.
  if (selection === '2026-07-28') await warm(url).catch(() => undefined);
  for (let time = 1; time <= times; time++) {
    const own = join(dir, String(time));
    await mkdir(own);
    found.push(...(await serverLeg(selection, url, only, own)));
  }
  return found;
}

/** Returns a failure for every scenario of a cell that could not run. */
async function unmeasured({ selection, only, times }: Cell, dir: string, why: string): Promise<Score[]> {
  const names = await scenarios(selection, only, dir);
  return Array.from({ length: times }, () => names.map((name) => score(name, undefined, why))).flat();
}

/** A target that does not start fails its rows. One that does not end on request fails a row of its own. */
async function server(plan: ServerPlan): Promise<void> {
  const { behind, transport, cells } = plan;
  const way = plan.direct ? 'direct fixture' : undefined;
  const titled = (cell: Cell): Measured => ({
    target: `${way ?? `${transport} ${cell.endpoint}`} ${behind}`,
    server: { behind, endpoint: cell.endpoint, selection: cell.selection },
    name: cell.times === 1 ? cell.selection : `${cell.only} ×${cell.times}`,
    isRepeat: cell.times > 1,
  });
  let target: Target | undefined;
  let why = '';
  try {
    target = await (plan.direct
      ? direct(behind)
      : gateway(behind, transport, join(out, 'compiled'), {
          replicas: Number(options.replicas),
          workers: Number(options.workers),
        }));
  } catch (error) {
    why = `the target did not start: ${String(error)}`;
  }
  let isClean = true;
  for (const cell of cells) {
    const isLate = performance.now() > LATEST_MS;
    const run = (dir: string) => {
      if (target === undefined || isLate) return unmeasured(cell, dir, isLate ? 'the run took too long' : why);
      return measure(cell, target.url(cell.endpoint), dir);
    };
    isClean = (await add(titled(cell), run)) && isClean;
  }
  if (target === undefined) return;
  if (!isClean) await writeFile(join(out, `${way ?? transport}-${behind}.log`.replaceAll(' ', '-')), target.logs());
  try {
    await target[Symbol.asyncDispose]();
  } catch (error) {
    const failed = score('target', undefined, `it did not end when asked: ${String(error)}`);
    const row = { target: `${way ?? transport} ${behind}`, name: 'its end', isRepeat: false };
    await add(row, () => Promise.resolve([failed]));
  }
}

async function client({ front, revision, scenarios: wanted }: ClientPlan): Promise<void> {
  const quoted = [process.execPath, DRIVER].map((part) => `'${part}'`).join(' ');
  const command = `${quoted} --front ${front}${choice.direct ? ' --direct' : ''}`;
  const row = { target: `client of ${front}`, name: `as a client, ${revision}`, isRepeat: false };
  await add(row, async (dir) => {
    const scores: Score[] = [];
    for (const scenario of wanted) {
      const own = join(dir, scenario);
      await mkdir(own, { recursive: true });
      scores.push(await clientScenario(scenario, revision, command, own));
    }
    return scores;
  });
}

// The longest first, so that the lanes end together: over stdio every session is a process.
const servers = serverPlans(choice).toSorted((a, b) => b.transport.localeCompare(a.transport));
await inLanes(
  [...servers.map((plan) => () => server(plan)), ...clientPlans(choice).map((plan) => () => client(plan))],
  LANES,
);

rows.sort((a, b) => a.target.localeCompare(b.target));
const failedRows = rows.filter(({ scores }) => scores.some(({ passed }) => !passed));
const summary = [
  ...rows.map(rowLine),
  '',
  ...matrixLines(rows),
  ...ownerLines(rows),
  ...failedRows.flatMap((row) => [`\n${row.target}, ${row.name}`, ...failureLines(row)]),
];
console.log(`\n${summary.join('\n')}`);

const all = rows.flatMap((row) => row.scores);
const passed = all.filter((one) => one.passed).length;
const failed = all.length - passed;
if (options.json !== undefined) await writeFile(options.json, JSON.stringify({ passed, failed, rows }, undefined, 2));
if (failed === 0) await rm(out, { recursive: true });
else console.log(`logs of what failed: ${out}`);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
