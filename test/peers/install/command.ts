import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

interface CommandOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

const INSTALL_MS = 300_000;

const executeFile = promisify(execFile);

/** Runs a program to its end. @returns its stdout. @throws {Error} with its stderr, where it fails or takes too long. */
export async function command(file: string, args: readonly string[], options: CommandOptions = {}): Promise<string> {
  const { stdout } = await executeFile(file, [...args], {
    timeout: options.timeoutMs ?? INSTALL_MS,
    maxBuffer: 16 * 1024 * 1024,
    env: { ...process.env, ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  });
  return stdout;
}

/** Whether a program runs and ends well. */
export async function succeeds(file: string, args: readonly string[]): Promise<boolean> {
  try {
    await command(file, args);
    return true;
  } catch {
    return false;
  }
}
