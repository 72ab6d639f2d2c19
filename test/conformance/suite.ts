import { appendFile, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import * as z from 'zod';
import { Child } from '../support/child.ts';
import type { FrontRevision } from './front.ts';
import { inLanes } from './lanes.ts';
import { score, type Check, type Score } from './score.ts';

const LOOPBACK = fileURLToPath(new URL('loopback.ts', import.meta.url));
const ALPHA = fileURLToPath(import.meta.resolve('@modelcontextprotocol/conformance/dist/index.js'));
const STABLE = fileURLToPath(import.meta.resolve('conformance-stable/dist/index.js'));

const LIST_MS = 30_000;
const BATCH_MS = 120_000;
const SCENARIO_MS = 25_000;
/** Scenarios in single runs mostly wait for tasks. */
const AT_ONCE = 3;

export const SELECTIONS = ['2025-06-18', '2025-11-25', '2026-07-28', '0.1.16', 'tasks'] as const;
export type SelectionName = (typeof SELECTIONS)[number];

/** Scenarios of one version of the suite. */
interface Selection {
  readonly cli: string;
  readonly args: readonly string[];
  /** Returns whether a listed scenario belongs to the selection. */
  readonly takes: (scenario: string) => boolean;
  /** The expected number of scenarios, so that an update of the suite that drops one is noticed. */
  readonly size: number;
  /** Runs the scenarios one by one, because the suite cannot select exactly these. */
  readonly oneByOne: boolean;
}

const dated = (revision: string, size: number): Selection => ({
  cli: ALPHA,
  args: ['--spec-version', revision],
  takes: () => true,
  size,
  oneByOne: false,
});

const SELECTED: Readonly<Record<SelectionName, Selection>> = {
  '2025-06-18': dated('2025-06-18', 27),
  '2025-11-25': dated('2025-11-25', 33),
  '2026-07-28': dated('2026-07-28', 40),
  '0.1.16': { cli: STABLE, args: [], takes: () => true, size: 32, oneByOne: false },
  // The suite itself always skips the scenario about notifications.
  tasks: {
    cli: ALPHA,
    args: [],
    takes: (scenario) => scenario.startsWith('tasks-') && scenario !== 'tasks-status-notifications',
    size: 9,
    oneByOne: true,
  },
};

const CHECKS = z.array(
  z.object({
    id: z.string(),
    status: z.string(),
    description: z.string().optional(),
    errorMessage: z.string().optional(),
  }),
);

interface Run {
  readonly code: number | null;
  readonly output: string;
  readonly timedOut: boolean;
}

async function conformance(cli: string, args: readonly string[], limitMs: number, out: string): Promise<Run> {
  // In a group of its own, because in the client leg the suite kills only the shell that it has started.
  const child = await Child.start(process.execPath, ['--import', LOOPBACK, cli, ...args], {
    group: true,
    cwd: out,
    env: { NO_COLOR: '1' },
  });
  const ending = await Promise.race([child.ended, delay(limitMs, undefined, { ref: false })]);
  if (ending === undefined) await child.stop();
  return { code: ending?.code ?? null, output: stripVTControlCharacters(child.logs()), timedOut: ending === undefined };
}

const listed = new Map<SelectionName, Promise<readonly string[]>>();

async function list(name: SelectionName, out: string): Promise<readonly string[]> {
  const { cli, args, takes, size } = SELECTED[name];
  const run = await conformance(cli, ['list', '--server', ...args], LIST_MS, out);
  const names = [...run.output.matchAll(/^\s+- (\S+)/gm)].map(([, scenario = '']) => scenario).filter(takes);
  if (names.length !== size)
    throw new Error(`suite ${name} has ${names.length} scenarios, not ${size}:\n${run.output}`);
  return names;
}

/** Returns the names of the scenarios of a selection. The suite is asked once. */
export async function scenarios(name: SelectionName, only: string | undefined, out: string): Promise<string[]> {
  const names = listed.get(name) ?? list(name, out);
  listed.set(name, names);
  return (await names).filter((scenario) => only === undefined || scenario === only);
}

/** The suite writes `[server-]<scenario>-<time>/checks.json`. */
async function collect(dir: string): Promise<Map<string, Check[]>> {
  const found = new Map<string, Check[]>();
  for (const entry of await readdir(dir)) {
    const [, scenario] = /^(?:server-)?(.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z$/.exec(entry) ?? [];
    if (scenario === undefined) continue;
    const text = await readFile(join(dir, entry, 'checks.json'), 'utf8');
    // A suite that ended while it wrote the file has no result for the scenario, which is a failure of it.
    if (text !== '') found.set(scenario, CHECKS.parse(JSON.parse(text)));
  }
  return found;
}

function complaint({ output, timedOut, code }: Run, scenario: string): string {
  const line = output.split('\n').find((one) => one.includes(`Failed to run scenario ${scenario}`));
  if (line !== undefined) return line.trim();
  return timedOut ? 'no result: the suite took too long' : `no result: the suite ended with ${code}`;
}

async function runServer(name: SelectionName, url: string, what: readonly string[], out: string): Promise<Run> {
  const { cli, args } = SELECTED[name];
  const dir = join(out, 'checks');
  await mkdir(dir, { recursive: true });
  const timeout = cli === ALPHA ? ['--timeout', String(SCENARIO_MS)] : [];
  const run = await conformance(cli, ['server', '--url', url, ...what, ...args, ...timeout, '-o', dir], BATCH_MS, out);
  await appendFile(join(out, 'suite.log'), run.output);
  return run;
}

/**
 * Runs the suite against a server.
 *
 * @param only one scenario, or all of the selection.
 * @param out an existing folder for the files of the suite.
 */
export async function serverLeg(
  name: SelectionName,
  url: string,
  only: string | undefined,
  out: string,
): Promise<Score[]> {
  const expected = await scenarios(name, only, out);
  if (expected.length === 0) return [];
  const isWhole = only === undefined && !SELECTED[name].oneByOne;
  const whats = isWhole ? [['--suite', 'all']] : expected.map((scenario) => ['--scenario', scenario]);
  const runs: Run[] = [];
  const jobs = whats.map((what, index) => async () => {
    runs[index] = await runServer(name, url, what, out);
  });
  await inLanes(jobs, AT_ONCE);
  const found = await collect(join(out, 'checks'));
  return expected.map((scenario, index) => {
    const checks = found.get(scenario);
    const run = isWhole ? runs[0] : runs[index];
    const failure = checks === undefined && run !== undefined ? complaint(run, scenario) : undefined;
    return score(scenario, checks, failure);
  });
}

/** Returns whether a client scenario belongs to an extension: those of OAuth client credentials do. */
function isOfExtension(scenario: string): boolean {
  return scenario.startsWith('auth/client-credentials-');
}

/**
 * Runs the suite as the server of one client scenario.
 *
 * @param revision of the scripted server.
 * @param command for `sh -c`. The suite appends the URL of the scripted server.
 */
export async function clientScenario(
  scenario: string,
  revision: FrontRevision,
  command: string,
  out: string,
): Promise<Score> {
  const dir = join(out, 'checks');
  // Some names have a folder.
  const found = join(dir, dirname(scenario));
  await mkdir(found, { recursive: true });
  const what = ['--scenario', scenario, '--spec-version', revision, '--timeout', String(SCENARIO_MS)];
  // Scenarios of extensions belong to no revision.
  if (isOfExtension(scenario)) what.push('--force');
  const run = await conformance(ALPHA, ['client', '--command', command, ...what, '-o', dir], SCENARIO_MS + 15_000, out);
  await writeFile(join(out, 'suite.log'), run.output);
  const checks = (await collect(found)).get(basename(scenario));
  if (checks === undefined) return score(scenario, checks, complaint(run, scenario));
  return score(scenario, checks, run.code === 0 ? undefined : `the suite ended with ${run.code}`);
}
