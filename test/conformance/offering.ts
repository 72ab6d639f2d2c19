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
 * A client connected to something that lists the wanted tools. Each look is a new connection: the scripted servers of
 * the suite come up at their own pace, and what a server can do may be said once, when a session begins.
 *
 * @throws {Error} where they are not all listed after `limitMs`.
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
