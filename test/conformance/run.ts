/**
 * Runs the official conformance suite against a gateway, and prints what it found.
 *
 *     node test/conformance/run.ts [--direct] [--only SCENARIO] [--upstream http|stdio] [--endpoint single|merged]
 *                                  [--leg server|client] [--json FILE]
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { score, type Score } from './score.ts';
import { SERVER_SELECTIONS, clientScenario, serverLeg } from './suite.ts';
import { ENDPOINTS, UPSTREAMS, direct, gateway, type Target } from './targets.ts';

const { values: options } = parseArgs({
  options: {
    direct: { type: 'boolean', default: false },
    only: { type: 'string' },
    upstream: { type: 'string' },
    endpoint: { type: 'string' },
    leg: { type: 'string' },
    json: { type: 'string' },
  },
});

/** One line of the table. */
interface Row {
  readonly target: string;
  readonly selection: string;
  readonly seconds: number;
  readonly scores: readonly Score[];
}

const DRIVER = fileURLToPath(new URL('client-driver.ts', import.meta.url));

/** Those of 2025-11-25 that need no OAuth. */
const CLIENT_SCENARIOS = [
  'initialize',
  'tools_call',
  'elicitation-sep1034-client-defaults',
  'sse-retry',
  'json-schema-2020-12-preservation',
];

/** A race between the last notification and the answer: once proves little. */
const RACY = 'tools-call-with-progress';
const RACY_TIMES = 5;

const rows: Row[] = [];
const out = await mkdtemp(join(tmpdir(), 'linkspan-conformance-'));

const chosen = <T extends string>(all: readonly T[], wanted: string | undefined): readonly T[] =>
  all.filter((one) => wanted === undefined || one === wanted);

async function add(target: string, selection: string, run: (out: string) => Promise<Score[]>): Promise<boolean> {
  const dir = join(out, target.replaceAll(' ', '-'), selection.replaceAll(' ', '-'));
  await mkdir(dir, { recursive: true });
  const began = performance.now();
  const scores = await run(dir);
  if (scores.length === 0) return true;
  const row = { target, selection, seconds: (performance.now() - began) / 1000, scores };
  rows.push(row);
  const passed = scores.filter((one) => one.passed).length;
  console.log(
    `${target.padEnd(16)}${selection.padEnd(28)}${`${passed}/${scores.length}`.padStart(7)}${row.seconds.toFixed(1).padStart(7)} s`,
  );
  for (const { scenario, reasons } of scores.filter((one) => !one.passed)) {
    for (const reason of reasons) console.log(`  FAIL ${scenario}: ${reason}`);
  }
  return passed === scores.length;
}

/** A target that does not start, or does not end when asked, fails its line and leaves the others to run. */
async function pointAt(name: string, start: () => Promise<Target>): Promise<void> {
  try {
    await using target = await start();
    await measure(name, target);
  } catch (error) {
    await add(name, 'start to end', () => Promise.resolve([score('target', undefined, String(error))]));
  }
}

async function measure(name: string, target: Target): Promise<void> {
  let clean = true;
  for (const selection of SERVER_SELECTIONS) {
    const run = (dir: string) => serverLeg(selection, target.url, options.only, dir);
    clean = (await add(name, selection.name, run)) && clean;
  }
  const again = SERVER_SELECTIONS.find(({ name: revision }) => revision === '2025-11-25');
  if (again !== undefined && (options.only === undefined || options.only === RACY)) {
    const run = async (dir: string) => {
      const scores: Score[] = [];
      for (let time = 1; time <= RACY_TIMES; time++) {
        const own = join(dir, String(time));
        await mkdir(own);
        scores.push(...(await serverLeg(again, target.url, RACY, own)));
      }
      return scores;
    };
    clean = (await add(name, `${RACY} ×${RACY_TIMES}`, run)) && clean;
  }
  if (!clean) await writeFile(join(out, name.replaceAll(' ', '-'), 'target.log'), target.logs());
}

async function serverMatrix(): Promise<void> {
  if (options.direct) {
    await pointAt('direct', direct);
    return;
  }
  for (const upstream of chosen(UPSTREAMS, options.upstream)) {
    for (const endpoint of chosen(ENDPOINTS, options.endpoint)) {
      await pointAt(`${upstream} ${endpoint}`, () => gateway(upstream, endpoint, join(out, 'compiled')));
    }
  }
}

async function clientMatrix(): Promise<void> {
  const quoted = [process.execPath, DRIVER].map((part) => `'${part}'`).join(' ');
  const command = options.direct ? `${quoted} --direct` : quoted;
  await add('as a client', '2025-11-25', async (dir) => {
    const scores: Score[] = [];
    for (const scenario of chosen(CLIENT_SCENARIOS, options.only)) {
      const own = join(dir, scenario);
      await mkdir(own);
      scores.push(await clientScenario(scenario, command, own));
    }
    return scores;
  });
}

if (options.leg !== 'client') await serverMatrix();
if (options.leg !== 'server') await clientMatrix();

const scores = rows.flatMap((row) => row.scores);
const passed = scores.filter((one) => one.passed).length;
const failed = scores.length - passed;
if (options.json !== undefined) await writeFile(options.json, JSON.stringify({ passed, failed, rows }, undefined, 2));
if (failed === 0) await rm(out, { recursive: true });
else console.log(`logs of what failed: ${out}`);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
