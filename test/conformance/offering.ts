import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 100;

interface Listing extends AsyncDisposable {
  tools(): Promise<readonly { readonly name: string }[]>;
}

async function missing(listing: Listing, wanted: readonly string[]): Promise<string[]> {
  const names = new Set((await listing.tools()).map(({ name }) => name));
  return wanted.filter((name) => !names.has(name));
}

/**
 * Returns a client connected to a target that lists the wanted tools. Each try is a new connection: the scripted
 * servers of
 * the suite start at their own pace, and a server may declare its capabilities only when a session begins.
 *
 * @throws {Error} if they are not all listed after `limitMs`.
 */
export async function offering<T extends Listing>(
  connect: () => Promise<T>,
  wanted: readonly string[],
  limitMs: number,
): Promise<T> {
  const deadline = Date.now() + limitMs;
  for (;;) {
    const listing = await connect();
    const absent = await missing(listing, wanted);
    if (absent.length === 0) return listing;
    await listing[Symbol.asyncDispose]();
    if (Date.now() > deadline) throw new Error(`not listed within ${limitMs} ms: ${absent.join(', ')}`);
    await delay(POLL_MS);
  }
}
