import { fileURLToPath } from 'node:url';
import type { Revision } from './dialect.ts';
import type { Job, Round } from './job.ts';
import { type LoadPlace, playLoad, SteadyLoad } from './load-program.ts';
import type { Options } from './options.ts';
import { pinned, Program } from './program.ts';
import type { Row, ScenarioResult } from './results.ts';
import type { Scenario } from './scenarios.ts';
import { type Running, startSideBySide, type Subject } from './subjects.ts';
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
/** Before the first slice. The first rounds of slices warm it up further, all subjects alike. */
const SLICES_WARM_MS = 6_000;

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
    const { connections, checkout, against, sliceMs, isSideBySide } = this.#options;
    const fixtures = new Map<Revision, UpstreamAddress>();
    const core = this.#options.isPinned ? SUBJECT_CORE : undefined;
    const entries: Entry[] = [];
    const gateways = isSideBySide ? [{ id: 'gateway', folder: checkout }, ...against] : [];
    const place = { dir: this.#dir, upstream: await this.#upstreamOf(fixtures, speaks), core, connections };
    const hosted = gateways.length === 0 ? [] : await startSideBySide(gateways, place);
    const [host] = hosted;
    if (host !== undefined) this.#programs.push(host.program);
    for (const subject of this.#cast()) {
      const entry: Entry = { subject, rounds: [] };
      entries.push(entry);
      await attempt(entry, async () => {
        const revision = subject.staysLegacy === true ? LEGACY : speaks;
        const upstream = await this.#upstreamOf(fixtures, revision);
        const at = gateways.findIndex(({ id }) => id === subject.id);
        const hostedHere = hosted[at];
        if (hostedHere !== undefined) {
          entry.running = hostedHere;
          return;
        }
        entry.running = await subject.start({ dir: this.#dir, upstream, core, connections, checkout });
        this.#programs.push(entry.running.program, ...(entry.running.helpers ?? []));
      });
    }

    await (sliceMs === undefined ? this.#playRounds(entries) : this.#playSlices(entries, sliceMs));

    const rows = entries.map(({ subject: { id, title }, rounds, failure }): Row => {
      const row = { subject: id, title, isOtherCheckout: against.some((other) => other.id === id) };
      return failure === undefined ? { ...row, rounds } : { ...row, rounds: [], failure };
    });
    return { scenario: this.#scenario, rows };
  }

  /** Plays the rounds; in each, another subject is the first. */
  async #inTurns(entries: readonly Entry[], act: (entry: Entry, round: number) => Promise<void>): Promise<void> {
    for (let round = 0; round < this.#options.rounds; round++) {
      const first = round % entries.length;
      for (const entry of [...entries.slice(first), ...entries.slice(0, first)]) {
        if (entry.failure === undefined) await attempt(entry, () => act(entry, round));
      }
    }
  }

  async #playRounds(entries: readonly Entry[]): Promise<void> {
    await this.#inTurns(entries, async ({ subject, running, rounds }, round) => {
      if (running !== undefined) rounds.push(await this.#load(subject, running, round));
    });
  }

  /** Plays rounds whose connections stay open: each subject warms up once. */
  async #playSlices(entries: readonly Entry[], sliceMs: number): Promise<void> {
    const loads = new Map<Entry, SteadyLoad>();
    try {
      for (const entry of entries) {
        const { subject, running } = entry;
        if (running === undefined) continue;
        await attempt(entry, async () => {
          const load = await SteadyLoad.start(this.#job(subject, running, 0, sliceMs), running.program, this.#place());
          loads.set(entry, load);
          await load.play(SLICES_WARM_MS);
        });
      }
      await this.#inTurns(entries, async (entry) => {
        const round = await loads.get(entry)?.play(sliceMs);
        if (round !== undefined) entry.rounds.push(round);
      });
    } finally {
      await Promise.all(loads.values().map((load) => load[Symbol.asyncDispose]()));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#programs.map((program) => program[Symbol.asyncDispose]()));
  }

  /** Returns the subjects of this scenario. */
  #cast(): readonly Subject[] {
    const { upstream, client, speaks = LEGACY } = this.#scenario;
    const isModern = client !== LEGACY || speaks !== LEGACY;
    return this.#options.subjects.filter(
      ({ serves, onlyRelays, isLegacyOnly, staysLegacy }) =>
        serves.includes(upstream.kind) &&
        !(isModern ? isLegacyOnly : staysLegacy) &&
        !(client !== speaks && onlyRelays === true),
    );
  }

  async #upstreamOf(fixtures: Map<Revision, UpstreamAddress>, revision: Revision): Promise<UpstreamAddress> {
    const upstream = fixtures.get(revision) ?? (await this.#upstream(revision));
    fixtures.set(revision, upstream);
    return upstream;
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

  async #load(subject: Subject, running: Running, round: number): Promise<Round> {
    const job = this.#job(subject, running, round === 0 ? FIRST_WARM_MS : WARM_MS, this.#options.seconds * 1_000);
    return await playLoad(job, running.program, this.#place());
  }

  /** Returns the place of another load generator. */
  #place(): LoadPlace {
    return { name: `load-${++this.#loads}`, dir: this.#dir, core: this.#core };
  }

  #job(subject: Subject, { url, askUrl, authorization, pids }: Running, warmMs: number, measureMs: number): Job {
    const { client, ask, ratePerSecond } = this.#scenario;
    return {
      url,
      askUrl,
      authorization,
      revision: subject.staysLegacy === true ? LEGACY : client,
      ask,
      toolPrefix: subject.toolPrefix,
      connections: this.#options.connections,
      warmMs,
      measureMs,
      ratePerSecond,
      pids: [...pids],
    };
  }
}
