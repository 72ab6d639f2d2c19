import { readFile, readdir } from 'node:fs/promises';

const NAME = 'LINKSPAN_TEST_RUN';

interface Leftover {
  readonly pid: number;
  readonly command: string;
}

/** Returns the environment that marks a process whose environment is cleaned. Empty outside a test run. */
export function marker(): Readonly<Record<string, string>> {
  const id = process.env[NAME];
  return id === undefined ? {} : { [NAME]: id };
}

/** Marks all processes that this one starts from now on. */
export function mark(): void {
  process.env[NAME] ??= `${process.pid}-${Date.now()}`;
}

async function content(path: string): Promise<string> {
  try {
    return await readFile(path, 'latin1');
  } catch {
    // The process has ended in the meantime, or belongs to another user.
    return '';
  }
}

/** Returns the other processes with the mark. Empty if there is no `/proc`. */
export async function leftovers(): Promise<Leftover[]> {
  const id = process.env[NAME];
  if (id === undefined || process.platform !== 'linux') return [];
  const found: Leftover[] = [];
  for (const entry of await readdir('/proc')) {
    const pid = Number(entry);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    const environment = await content(`/proc/${entry}/environ`);
    if (!environment.split('\0').includes(`${NAME}=${id}`)) continue;
    found.push({ pid, command: (await content(`/proc/${entry}/cmdline`)).replaceAll('\0', ' ').trim() });
  }
  return found;
}
