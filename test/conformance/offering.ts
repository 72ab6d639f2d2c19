import { setTimeout as delay } from 'node:timers/promises';
import type { Sdk1 } from '../support/sdk-client.ts';

const POLL_MS = 100;

async function missing({ client }: Sdk1, wanted: readonly string[]): Promise<string[]> {
  if (client.getServerCapabilities()?.tools === undefined) return [...wanted];
  const { tools } = await client.listTools();
  const names = new Set(tools.map(({ name }) => name));
  return wanted.filter((name) => !names.has(name));
}

/**
 * A client connected to something that lists the wanted tools. Each look is a new session: the scripted servers of the
 * suite come up at their own pace, and what a server can do is said once, when the session begins.
 *
 * @throws {Error} where they are not all listed after `limitMs`.
 */
export async function offering(
  connect: () => Promise<Sdk1>,
  wanted: readonly string[],
  limitMs: number,
): Promise<Sdk1> {
  const deadline = Date.now() + limitMs;
  for (;;) {
    const sdk = await connect();
    const absent = await missing(sdk, wanted);
    if (absent.length === 0) return sdk;
    await sdk[Symbol.asyncDispose]();
    if (Date.now() > deadline) throw new Error(`not listed within ${limitMs} ms: ${absent.join(', ')}`);
    await delay(POLL_MS);
  }
}
