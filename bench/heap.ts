import { fileURLToPath } from 'node:url';
import type { Gateway } from './gateway-program.ts';

const LONGEST_MS = 60_000;

/** Loaded into the gateway. On SIGPWR it prints the bytes in use after a full collection. */
const REPORT = fileURLToPath(new URL('../test/fixtures/heap-on-signal.ts', import.meta.url));

/** The environment of a gateway whose heap is measured. */
export const WITH_HEAP_REPORT = { NODE_OPTIONS: `--import=${REPORT}` };

/** Returns the bytes that a gateway uses after a full collection. It must have been started with {@link WITH_HEAP_REPORT}. */
export async function heapBytes({ program }: Gateway): Promise<number> {
  const reports = async () => [...(await program.log()).matchAll(/^\{"msg":"heap","bytes":(\d+)\}$/gm)];
  const before = (await reports()).length;
  program.child.kill('SIGPWR');
  return await program.until(async () => {
    const [, bytes] = (await reports())[before] ?? [];
    return bytes === undefined ? undefined : Number(bytes);
  }, LONGEST_MS);
}
