import { spawnSync } from 'node:child_process';
import { Child } from './child.ts';

/** Throws unless `script` of util-linux is there: other programs of this name have other options. */
function assertScript(): void {
  const { status, stdout } = spawnSync('script', ['--version'], { encoding: 'utf8' });
  if (status === 0 && stdout.includes('util-linux')) return;
  throw new Error('this test needs `script` of util-linux for a terminal; on Debian: apt-get install bsdutils');
}

/**
 * Runs a shell command on a terminal of its own.
 *
 * @param typescript the file that receives the output of the terminal.
 * @throws {Error} if the machine has no `script` of util-linux.
 */
export function startOnTerminal(
  command: string,
  typescript: string,
  env: Readonly<Record<string, string>> = {},
): Promise<Child> {
  assertScript();
  return Child.start('script', ['--quiet', '--return', '--flush', '--command', command, typescript], { env });
}
