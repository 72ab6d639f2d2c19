import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import type { Speaks } from './answers.ts';
import { pinned, Program } from './program.ts';

const COUNTS = z.object({ connections: z.number(), open: z.number(), initializes: z.number() });

export type UpstreamCounts = z.infer<typeof COUNTS>;

/** The fixture `upstream-http.ts` in a process of its own. */
export class UpstreamProgram implements AsyncDisposable {
  readonly url: string;
  readonly #program: Program;

  private constructor(program: Program, url: string) {
    this.#program = program;
    this.url = url;
  }

  /** @param speaks the revision of the fixture. */
  static async start(dir: string, core: number | undefined, speaks: Speaks = '2025-11-25'): Promise<UpstreamProgram> {
    const script = fileURLToPath(new URL('upstream-http.ts', import.meta.url));
    const command = pinned(core, [process.execPath, script, speaks]);
    const program = await Program.start(`upstream-http-${speaks}`, command, dir);
    try {
      return new UpstreamProgram(program, await program.listening());
    } catch (thrown) {
      await program[Symbol.asyncDispose]();
      throw thrown;
    }
  }

  /** Returns how many connections and sessions there have been, and how many connections there are. */
  async counts(): Promise<UpstreamCounts> {
    return COUNTS.parse(await (await fetch(new URL('/counts', this.url))).json());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#program[Symbol.asyncDispose]();
  }
}
