import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import * as z from 'zod';
import { Child } from '../support/child.ts';
import { score, type Check, type Score } from './score.ts';

const LOOPBACK = fileURLToPath(new URL('loopback.ts', import.meta.url));
const ALPHA = fileURLToPath(import.meta.resolve('@modelcontextprotocol/conformance/dist/index.js'));
const STABLE = fileURLToPath(import.meta.resolve('conformance-stable/dist/index.js'));

const LIST_MS = 30_000;
const BATCH_MS = 180_000;
const SCENARIO_MS = 25_000;

/** Which scenarios of which version of the suite. */
export interface Selection {
  readonly name: string;
  readonly cli: string;
  readonly args: readonly string[];
  /** How many it has to have: an update of the suite that drops one is noticed. */
  readonly size: number;
}

export const SERVER_SELECTIONS: readonly Selection[] = [
  { name: '2025-06-18', cli: ALPHA, args: ['--spec-version', '2025-06-18'], size: 27 },
  { name: '2025-11-25', cli: ALPHA, args: ['--spec-version', '2025-11-25'], size: 33 },
  { name: '0.1.16', cli: STABLE, args: [], size: 32 },
];

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
  // In a group of its own: in the client leg the suite kills the shell it started and nothing below it.
  const child = await Child.start(process.execPath, ['--import', LOOPBACK, cli, ...args], {
    group: true,
    cwd: out,
    env: { NO_COLOR: '1' },
  });
  const ending = await Promise.race([child.ended, delay(limitMs, undefined, { ref: false })]);
  if (ending === undefined) await child.stop();
  return { code: ending?.code ?? null, output: stripVTControlCharacters(child.logs()), timedOut: ending === undefined };
}

const listed = new Map<string, readonly string[]>();

/** Names of the scenarios of a selection; asked once. */
async function scenarios({ name, cli, args, size }: Selection, out: string): Promise<readonly string[]> {
  const known = listed.get(name);
  if (known !== undefined) return known;
  const run = await conformance(cli, ['list', '--server', ...args], LIST_MS, out);
  const names = [...run.output.matchAll(/^\s+- (\S+)/gm)].map(([, scenario = '']) => scenario);
  if (names.length !== size)
    throw new Error(`suite ${name} has ${names.length} scenarios, not ${size}:\n${run.output}`);
  listed.set(name, names);
  return names;
}

/** The suite leaves `[server-]<scenario>-<time>/checks.json`. */
async function collect(dir: string): Promise<Map<string, Check[]>> {
  const found = new Map<string, Check[]>();
  for (const entry of await readdir(dir)) {
    const [, scenario] = /^(?:server-)?(.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z$/.exec(entry) ?? [];
    if (scenario === undefined) continue;
    found.set(scenario, CHECKS.parse(JSON.parse(await readFile(join(dir, entry, 'checks.json'), 'utf8'))));
  }
  return found;
}

function complaint({ output, timedOut, code }: Run, scenario: string): string {
  const line = output.split('\n').find((said) => said.includes(`Failed to run scenario ${scenario}`));
  if (line !== undefined) return line.trim();
  return timedOut ? 'no result: the suite took too long' : `no result: the suite ended with ${code}`;
}

/**
 * Points the suite at a server.
 *
 * @param only one scenario, or all of the selection.
 * @param out an existing directory for what the suite leaves.
 */
export async function serverLeg(
  selection: Selection,
  url: string,
  only: string | undefined,
  out: string,
): Promise<Score[]> {
  const expected = (await scenarios(selection, out)).filter((name) => only === undefined || name === only);
  if (expected.length === 0) return [];
  const dir = join(out, 'checks');
  await mkdir(dir, { recursive: true });
  const what = only === undefined ? ['--suite', 'all'] : ['--scenario', only];
  const timeout = selection.cli === ALPHA ? ['--timeout', String(SCENARIO_MS)] : [];
  const args = ['server', '--url', url, ...what, ...selection.args, ...timeout, '-o', dir];
  const run = await conformance(selection.cli, args, BATCH_MS, out);
  await writeFile(join(out, 'suite.log'), run.output);
  const found = await collect(dir);
  return expected.map((name) => {
    const checks = found.get(name);
    return score(name, checks, checks === undefined ? complaint(run, name) : undefined);
  });
}

/**
 * Lets the suite play the server for one client scenario.
 *
 * @param command for `sh -c`; the URL of the scripted server is appended.
 */
export async function clientScenario(scenario: string, command: string, out: string): Promise<Score> {
  const dir = join(out, 'checks');
  await mkdir(dir, { recursive: true });
  const what = ['--scenario', scenario, '--spec-version', '2025-11-25', '--timeout', String(SCENARIO_MS)];
  const run = await conformance(ALPHA, ['client', '--command', command, ...what, '-o', dir], SCENARIO_MS + 15_000, out);
  await writeFile(join(out, 'suite.log'), run.output);
  const checks = (await collect(dir)).get(scenario);
  if (checks === undefined) return score(scenario, checks, complaint(run, scenario));
  return score(scenario, checks, run.code === 0 ? undefined : `the suite ended with ${run.code}`);
}
