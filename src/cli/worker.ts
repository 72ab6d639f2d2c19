import { runWorker } from '../compose/workers/worker.ts';

/** Runs a worker of the gateway that has started this process. Resolves with the exit code when that gateway asks it to end. */
export async function worker(): Promise<number> {
  await runWorker();
  return 0;
}
