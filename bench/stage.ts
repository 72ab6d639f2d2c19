import { fileURLToPath } from 'node:url';
import type { Revision } from './dialect.ts';
import type { Job, Round } from './job.ts';
import { playLoad } from './load-program.ts';
import type { Options } from './options.ts';
import { pinned, Program } from './program.ts';
import type { Row, ScenarioResult } from './results.ts';
import type { Scenario } from './scenarios.ts';
import type { Running, Subject } from './subjects.ts';
import type { UpstreamAddress } from './upstream-address.ts';

export const SUBJECT_CORE = 0;
export const OTHERS_CORE = 1;

/**
 * The first round of a subject also compiles its code, which takes V8 some seconds. The rounds measure a settled
 * program.
 */
const FIRST_WARM_MS = 6_000;
/** In later rounds the connections are new, which V8 has to learn again. */
const WARM_MS = 3_000;

const LEGACY: Revision = '2025-11-25';

function beside(file: string): string {
  return fileURLToPath(new URL(file, import.meta.url));
}

/** A subject with its running program and its rounds. */
interface Entry {
  readonly subject: Subject;
  readonly rounds: Round[];
  running?: Running;
  failure?: string;
}

/** Records the failure of a subject, and continues with the others. */
async function attempt(entry: Entry, act: () => Promise<void>): Promise<void> {
  try {
    await act();
  } catch (thrown) {
    entry.failure = thrown instanceof Error ? thrown.message : String(thrown);
  }
}

/** One scenario: the fixture, the subjects in front of it, and rounds in turns. */
export class Stage implements AsyncDisposable {
  readonly #scenario: Scenario;
  readonly #options: Options;
  readonly #dir: string;
  readonly #core: number | undefined;
  readonly #programs: Program[] = [];
  #loads = 0;

  constructor(scenario: Scenario, options: Options, dir: string) {
    this.#scenario = scenario;
    this.#options = options;
    this.#dir = dir;
    this.#core = options.isPinned ? OTHERS_CORE : undefined;
  }

  /** Failures of one subject are in its row. @throws {Error} if the fixture does not start. */
  async play(): Promise<ScenarioResult> {
    const { speaks = LEGACY } = this.#scenario;
    const { connections, rounds, checkout, against } = this.#options;
    const fixtures = new Map([[speaks, await this.#upstream(speaks)]]);
    const core = this.#options.isPinned ? SUBJECT_CORE : undefined;
    const entries: Entry[] = [];
    for (const subject of this.#cast()) {
      const entry: Entry = { subject, rounds: [] };
      entries.push(entry);
      await attempt(entry, async () => {
        const revision = subject.staysLegacy === true ? LEGACY : speaks;
        const upstream = fixtures.get(revision) ?? (await this.#upstream(revision));
        fixtures.set(revision, upstream);
        entry.running = await subject.start({ dir: this.#dir, upstream, core, connections, checkout, against });
        this.#programs.push(entry.running.program);
      });
    }

    for (let round = 0; round < rounds; round++) {
      const first = round % entries.length;
      for (const entry of [...entries.slice(first), ...entries.slice(0, first)]) {
        const { subject, running } = entry;
        if (running === undefined || entry.failure !== undefined) continue;
        await attempt(entry, async () => {
          entry.rounds.push(await this.#load(subject, running, round));
        });
      }
    }

    const rows = entries.map(({ subject: { id, title }, rounds, failure }): Row => {
      return failure === undefined ? { subject: id, title, rounds } : { subject: id, title, rounds: [], failure };
    });
    return { scenario: this.#scenario, rows };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#programs.map((program) => program[Symbol.asyncDispose]()));
  }

  /** Returns the subjects of this scenario. */
  #cast(): readonly Subject[] {
    const { upstream, client, speaks = LEGACY } = this.#scenario;
    const isModern = client !== LEGACY || speaks !== LEGACY;
    return this.#options.subjects.filter(
      ({ serves, isLegacyOnly, staysLegacy }) =>
        serves.includes(upstream.kind) && !(isModern ? isLegacyOnly : staysLegacy),
    );
  }

  async #upstream(speaks: Revision): Promise<UpstreamAddress> {
    const { upstream } = this.#scenario;
    if (upstream.kind === 'stdio') {
      const [command = '', ...args] = pinned(this.#core, [process.execPath, beside('upstream-stdio.ts'), speaks]);
      return { kind: 'stdio', command, args, isolation: upstream.isolation };
    }
    const command = pinned(this.#core, [process.execPath, beside('upstream-http.ts'), speaks]);
    const program = await Program.start('upstream-http', command, this.#dir);
    this.#programs.push(program);
    return { kind: 'http', url: await program.listening() };
  }

  async #load(subject: Subject, { url, pids, program }: Running, round: number): Promise<Round> {
    const { client, ask, ratePerSecond } = this.#scenario;
    const warmMs = round === 0 ? FIRST_WARM_MS : WARM_MS;
    const measureMs = this.#options.seconds * 1_000;
    const job: Job = {
      url,
      revision: subject.staysLegacy === true ? LEGACY : client,
      ask,
      toolPrefix: subject.toolPrefix,
      connections: this.#options.connections,
      warmMs,
      measureMs,
      ratePerSecond,
      pids: [...pids],
    };
    return await playLoad(job, program, { name: `load-${++this.#loads}`, dir: this.#dir, core: this.#core });
  }
}
