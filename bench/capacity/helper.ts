import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { pinned, Program } from '../program.ts';

const OPEN_MS = 300_000;
const END_MS = 10_000;

/** A process with clients that answers each message with a report, until it is disconnected. */
export class Helper<Report> implements AsyncDisposable {
  readonly #program: Program;
  readonly #read: (reported: unknown) => Report;

  private constructor(program: Program, read: (reported: unknown) => Report) {
    this.#program = program;
    this.#read = read;
  }

  /**
   * Resolves when it says that it listens.
   *
   * @param script the file in `bench/`. Its job is the argument.
   * @param name of its log.
   * @throws {Error} with the end of its log.
   */
  static async start<Report>(
    script: string,
    job: object,
    read: (reported: unknown) => Report,
    { name, dir, core }: { readonly name: string; readonly dir: string; readonly core: number | undefined },
  ): Promise<Helper<Report>> {
    const file = fileURLToPath(new URL(`../${script}`, import.meta.url));
    const command = pinned(core, [process.execPath, file, JSON.stringify(job)]);
    const program = await Program.start(name, command, dir, {}, 'listens');
    try {
      await program.listening(OPEN_MS);
      return new Helper(program, read);
    } catch (thrown) {
      await program[Symbol.asyncDispose]();
      throw thrown;
    }
  }

  get pid(): number {
    return this.#program.pid;
  }

  /** Sends a message and returns the report that answers it. @throws {Error} if the process ends. */
  async ask(message: object): Promise<Report> {
    const { child } = this.#program;
    const ended = new AbortController();
    child.send(message, () => undefined);
    try {
      const [reported] = await Promise.race([
        once(child, 'message', { signal: ended.signal }),
        once(child, 'exit', { signal: ended.signal }),
      ]);
      if (typeof reported !== 'object') throw await this.#program.failure('has ended');
      return this.#read(reported);
    } finally {
      ended.abort();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#program.running) this.#program.child.disconnect();
    await this.#program.exited(END_MS);
  }
}
