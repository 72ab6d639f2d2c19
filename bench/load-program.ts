import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { type Job, parseRound, readRound, type Round } from './job.ts';
import { pinned, Program } from './program.ts';

/**
 * Time besides warming up and measuring: handshakes, with up to one process per session, and the end of the sessions.
 */
const LOAD_EXTRA_MS = 90_000;
/** The end of the sessions. */
const CLOSE_MS = 15_000;

/** The name of a load generator, the folder for its log, and its core. */
export interface LoadPlace {
  readonly name: string;
  readonly dir: string;
  readonly core: number | undefined;
}

function commandFor(job: Job, core: number | undefined): readonly string[] {
  const script = fileURLToPath(new URL('load.ts', import.meta.url));
  return pinned(core, [process.execPath, script, JSON.stringify(job)]);
}

/** Runs one round of load in a process of its own. @param subject named in the error if the round fails. @throws {Error} */
export async function playLoad(job: Job, subject: Program, { name, dir, core }: LoadPlace): Promise<Round> {
  await using load = await Program.start(name, commandFor(job, core), dir);
  const code = await load.exited(job.warmMs + job.measureMs + LOAD_EXTRA_MS);
  if (code !== 0) throw await failureOf(load, subject, `failed in ${name} (${code === null ? 'no end to it' : code})`);
  return parseRound(await load.log());
}

async function failureOf(load: Program, subject: Program, problem: string): Promise<Error> {
  const output = (await load.log()).trim();
  return await subject.failure(`${problem}: ${output}${subject.running ? '' : ' and has died'}`);
}

/** A load generator whose connections and sessions stay open from round to round. */
export class SteadyLoad implements AsyncDisposable {
  readonly #program: Program;
  readonly #subject: Program;

  private constructor(program: Program, subject: Program) {
    this.#program = program;
    this.#subject = subject;
  }

  /** @param subject is blamed where a round fails. */
  static async start(job: Job, subject: Program, { name, dir, core }: LoadPlace): Promise<SteadyLoad> {
    const program = await Program.start(name, commandFor({ ...job, isSteady: true }, core), dir, {}, 'listens');
    return new SteadyLoad(program, subject);
  }

  /** Plays one round of this length. @throws {Error} */
  async play(ms: number): Promise<Round> {
    if (!this.#program.running) throw await failureOf(this.#program, this.#subject, 'has lost its load generator');
    const { child } = this.#program;
    // A message that cannot be delivered shows as the end of the process.
    child.send({ ms }, () => undefined);
    const ended = new AbortController();
    try {
      const [reported] = await Promise.race([
        once(child, 'message', { signal: ended.signal }),
        once(child, 'exit', { signal: ended.signal }),
      ]);
      if (typeof reported !== 'object') throw await failureOf(this.#program, this.#subject, 'failed under load');
      return readRound(reported);
    } finally {
      ended.abort();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#program.running) this.#program.child.disconnect();
    await this.#program.exited(CLOSE_MS);
  }
}
