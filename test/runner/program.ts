/** Runs the scripts and programs that are steps of the tests. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { ROOT } from './test-files.ts';

/** The longest time of a program, which is ended then and has failed. */
const PROGRAM_MS = 20 * 60_000;

/** The outcome of a script or program. */
export interface ProgramOutcome {
  readonly passed: number;
  readonly failed: number;
  /** A line for each failure that has a name. */
  readonly failures: readonly string[];
}

/** Runs a script of package.json, which passes if it exits with 0. */
export async function runScript(name: string): Promise<ProgramOutcome> {
  const { scripts } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
  const code = await exitCode(String(scripts[name]), [], true);
  return code === 0 ? counted(1, 0) : counted(0, 1, [`npm run ${name}: exit code ${code}`]);
}

/** Runs a program of `test/` that writes its counts to a file. */
export async function runProgram(file: string, args: readonly string[]): Promise<ProgramOutcome> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-run-'));
  const json = join(dir, 'counts.json');
  try {
    const code = await exitCode(process.execPath, [join(ROOT, file), ...args, '--json', json], false);
    const { passed, failed, failures = [] } = JSON.parse(await readFile(json, 'utf8'));
    if (code === 0 || failed > 0) return counted(Number(passed), Number(failed), failures);
    return counted(Number(passed), 1, [`${file}: exit code ${code}`]);
  } catch (error) {
    console.error(error);
    return counted(0, 1, [`${file}: ${error instanceof Error ? error.message : String(error)}`]);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

function counted(passed: number, failed: number, failures: readonly string[] = []): ProgramOutcome {
  return { passed, failed, failures };
}

async function exitCode(command: string, args: readonly string[], shell: boolean): Promise<number | string> {
  const PATH = [join(ROOT, 'node_modules', '.bin'), process.env['PATH']].join(delimiter);
  const child = spawn(command, [...args], {
    cwd: ROOT,
    shell,
    stdio: ['ignore', 'inherit', 'inherit'],
    env: { ...process.env, PATH },
    timeout: PROGRAM_MS,
    killSignal: 'SIGKILL',
  });
  await once(child, 'exit');
  return child.exitCode ?? `none: ended by ${child.signalCode}`;
}
