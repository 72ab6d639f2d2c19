import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { RunningGateway } from './gateway.ts';
import { waitUntil } from './wait-until.ts';

const POLL_MS = 5;

/** The environment of a gateway that can report its {@link liveBytes}. */
export const MEASURED = {
  NODE_OPTIONS: `--import=${fileURLToPath(new URL('../fixtures/heap-on-signal.ts', import.meta.url))}`,
};

/** Returns the bytes that a gateway uses after a full collection, which no state of the collector or of the machine changes. */
export async function liveBytes(gateway: RunningGateway): Promise<number> {
  const reports = () => [...gateway.logs().matchAll(/^\{"msg":"heap","bytes":(\d+)\}$/gm)];
  const before = reports().length;
  gateway.kill('SIGPWR');
  await waitUntil(async () => {
    await sleep(POLL_MS);
    return reports().length > before;
  });
  return Number(reports().at(-1)?.[1]);
}
