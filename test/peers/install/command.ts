import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

interface CommandOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

/** Longest time of one command, such as a download. */
const COMMAND_MS = 240_000;

const executeFile = promisify(execFile);

/**
 * Runs a program to its end. @returns its stdout.
 *
 * @throws {Error} that names the program, with its stderr if it fails, or the limit if it takes too long.
 */
export async function command(file: string, args: readonly string[], options: CommandOptions = {}): Promise<string> {
  const { timeoutMs = COMMAND_MS, cwd, env } = options;
  try {
    const { stdout } = await executeFile(file, [...args], {
      timeout: timeoutMs,
      killSignal: 'SIGKILL',
      maxBuffer: 16 * 1024 * 1024,
      env: { ...process.env, ...env },
      ...(cwd === undefined ? {} : { cwd }),
    });
    return stdout;
  } catch (thrown) {
    if (!(thrown instanceof Error && 'killed' in thrown && thrown.killed === true)) throw thrown;
    const line = [file, ...args].join(' ');
    throw new Error(`not done within ${timeoutMs / 1000} s (is the network slow?): ${line}`, { cause: thrown });
  }
}

/** Returns whether a program exits with code 0. */
export async function succeeds(file: string, args: readonly string[]): Promise<boolean> {
  try {
    await command(file, args);
    return true;
  } catch {
    return false;
  }
}
