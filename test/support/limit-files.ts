import { execFileSync } from 'node:child_process';

/**
 * Sets the limit of open files of a process, and returns the one before.
 *
 * @throws {Error} without the program `prlimit`, which is a part of util-linux.
 */
export function limitFiles(pid: number, limit: string): string {
  const before = prlimit(pid, '--nofile', '--output', 'SOFT', '--noheadings', '--raw').trim();
  prlimit(pid, `--nofile=${limit}:`);
  return before;
}

function prlimit(pid: number, ...args: readonly string[]): string {
  try {
    return execFileSync('prlimit', ['--pid', String(pid), ...args], { encoding: 'utf8' });
  } catch (thrown) {
    throw new Error('this test needs the program prlimit (package util-linux)', { cause: thrown });
  }
}
