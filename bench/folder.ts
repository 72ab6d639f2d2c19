import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Gives `act` a folder, and removes it however the process ends. */
export async function withFolder<T>(act: (dir: string) => Promise<T>): Promise<T> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-bench-'));
  const remove = () => rmSync(dir, { recursive: true, force: true, maxRetries: 3 });
  process.once('exit', remove);
  try {
    return await act(dir);
  } finally {
    process.removeListener('exit', remove);
    remove();
  }
}
