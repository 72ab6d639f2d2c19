import { execFile } from 'node:child_process';
import { MAIN } from './program.ts';

/** The outcome of a command. */
export interface Ran {
  readonly code: number | string | null | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the command line with only these variables in its environment, and the cache of compiled code of this run. @param limitMs then it is killed. */
export function runCli(args: readonly string[], cwd: string, env: NodeJS.ProcessEnv, limitMs: number): Promise<Ran> {
  return new Promise((resolve) => {
    const code = process.env['NODE_COMPILE_CACHE'];
    const variables = code === undefined ? env : { NODE_COMPILE_CACHE: code, ...env };
    execFile(process.execPath, [MAIN, ...args], { cwd, env: variables, timeout: limitMs }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : error.code, stdout, stderr });
    });
  });
}
