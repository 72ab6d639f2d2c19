import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** The path of the command line's source. */
export const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

/** The outcome of a command. */
export interface Ran {
  readonly code: number | string | null | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the command line from source, with only these variables in its environment. @param limitMs then it is killed. */
export function runCli(args: readonly string[], cwd: string, env: NodeJS.ProcessEnv, limitMs: number): Promise<Ran> {
  return new Promise((resolve) => {
    execFile(process.execPath, [MAIN, ...args], { cwd, env, timeout: limitMs }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : error.code, stdout, stderr });
    });
  });
}
