import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { pinned, Program } from './program.ts';

/** The request of the probe, and the prefix of its upstream. */
export const PROBED_ASK = { method: 'tools/call', tool: 'small' } as const;
export const PROBED_PREFIX = 'healthy__';

const FIGURES = z.object({
  requests: z.number(),
  p50Ms: z.number(),
  p99Ms: z.number(),
  maxMs: z.number(),
  failures: z.number(),
});

export type ProbeFigures = z.infer<typeof FIGURES>;

const STOP_MS = 10_000;

/** A probe of the upstream `healthy` of a gateway, in a process of its own. */
export class Probe implements AsyncDisposable {
  readonly #program: Program;

  private constructor(program: Program) {
    this.#program = program;
  }

  /** Resolves when its sessions are open and it sends requests. */
  static async start(url: string, dir: string, name: string, core: number | undefined): Promise<Probe> {
    const command = pinned(core, [process.execPath, fileURLToPath(new URL('probe.ts', import.meta.url)), url]);
    const probe = new Probe(await Program.start(name, command, dir));
    try {
      await probe.#program.listening();
      return probe;
    } catch (thrown) {
      await probe[Symbol.asyncDispose]();
      throw thrown;
    }
  }

  /** Ends the probe. @throws {Error} if it has measured nothing. */
  async stop(): Promise<ProbeFigures> {
    await this.#program[Symbol.asyncDispose]();
    await this.#program.exited(STOP_MS);
    return FIGURES.parse(JSON.parse((await this.#program.log()).trim().split('\n').at(-1) ?? 'null'));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#program[Symbol.asyncDispose]();
  }
}
