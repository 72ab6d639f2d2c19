import { join } from 'node:path';
import { z } from 'zod';
import type { Act, Step } from '../fixtures/servers/nonce-acts.ts';
import { Child } from './child.ts';
import { marker } from './leftovers.ts';

const PROGRAM = join(import.meta.dirname, '../fixtures/servers/nonce-http.ts');

const LEDGER = z.object({
  ledger: z.object({ entries: z.record(z.string(), z.object({ ran: z.number(), cancelled: z.number() })) }),
});
type Entries = z.infer<typeof LEDGER>['ledger']['entries'];

/** Returns the parameters of a call of the tool `act` of an upstream with the id `nonce`. */
export function act(nonce: string, steps: readonly Step[], own: Partial<Act> = {}): Record<string, unknown> {
  return {
    name: 'nonce__act',
    arguments: { nonce, steps, pauseMs: 0, fails: false, ...own },
    _meta: { progressToken: nonce },
  };
}

/** A remote upstream that records its calls. */
export interface NonceRemote extends AsyncDisposable {
  readonly url: string;
  /** Returns how often a call has run. */
  ran(nonce: string): Promise<number>;
  ledger(): Promise<Entries>;
}

/** Starts a remote upstream that records its calls. */
export async function startRemote(): Promise<NonceRemote> {
  const child = await Child.start(process.execPath, [PROGRAM], { env: marker() });
  const url = await child.waitForLine((line) => /^listening on (\S+)/.exec(line)?.[1]);
  const ledger = async () => LEDGER.parse(await (await fetch(`${url}/ledger`)).json()).ledger.entries;
  return {
    url,
    ledger,
    ran: async (nonce) => (await ledger())[nonce]?.ran ?? 0,
    [Symbol.asyncDispose]: () => child[Symbol.asyncDispose](),
  };
}
