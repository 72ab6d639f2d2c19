import { join } from 'node:path';
import { request } from 'undici';
import * as z from 'zod';
import { Child } from './child.ts';
import { marker } from './leftovers.ts';

const SERVERS = join(import.meta.dirname, '../fixtures/servers');
const LISTENING = /^listening on (\S+)$/;

const count = z.int();
const entry = z.strictObject({
  ran: count,
  cancelled: count,
  logged: count,
  asked: count,
  answered: count,
  reported: count,
});

/** The record of a server with nonces; see `nonce-acts.ts`. */
export const ledgerSchema = z.strictObject({ entries: z.record(z.string(), entry), faults: z.array(z.string()) });
export type Ledger = z.output<typeof ledgerSchema>;

const state = z.object({ ledger: ledgerSchema, sessions: count, streams: count });

/** The command of the server over stdio, for a config file. */
export const NONCE_STDIO = { command: process.execPath, args: [join(SERVERS, 'nonce-stdio.ts')] };

/** The server over Streamable HTTP, in a process of its own. */
export class NonceHttp implements AsyncDisposable {
  readonly url: string;
  readonly #child: Child;

  private constructor(child: Child, url: string) {
    this.#child = child;
    this.url = url;
  }

  static async start(): Promise<NonceHttp> {
    const child = await Child.start(process.execPath, [join(SERVERS, 'nonce-http.ts')], { env: marker() });
    try {
      return new NonceHttp(child, await child.waitForLine((line) => LISTENING.exec(line)?.[1]));
    } catch (error) {
      await child.stop();
      throw error;
    }
  }

  /** Returns its ledger, and the number of its sessions and GET streams. */
  async state(): Promise<z.output<typeof state>> {
    const { body } = await request(`${this.url}/ledger`);
    return state.parse(await body.json());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#child.stop();
  }
}
