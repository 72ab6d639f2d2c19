import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Violation } from './check.ts';
import type { Trial } from './history.ts';

/** Writes the histories of a trial with violations, and the logs of its replicas. */
export async function keepTrial(
  dir: string,
  trial: Trial,
  violations: readonly Violation[],
  logs: readonly string[],
): Promise<void> {
  const own = join(dir, `seed-${trial.plan.seed}`);
  await mkdir(own, { recursive: true });
  const plain = { ...trial, histories: trial.histories.map((history) => ({ ...history, seen: [...history.seen] })) };
  await writeFile(join(own, 'trial.json'), JSON.stringify({ violations, ...plain }, undefined, 1));
  for (const [index, text] of logs.entries()) await writeFile(join(own, `replica-${index}.log`), text);
}
