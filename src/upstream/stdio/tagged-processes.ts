import { getOrMake } from '../../map-entries.ts';
import { isCode } from '../../thrown.ts';
import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';

/** Environment variable that marks our children and all processes that they start. */
export const TAG_NAME = 'LINKSPAN_PROCESS';

/** Environment variable with the tags of the gateways around this one, which is a child of theirs. They count its children as well. */
const AROUND_NAME = 'LINKSPAN_PROCESS_AROUND';

/** Returns the environment variables that mark a child. */
export function tagVariables(tag: string): Readonly<Record<string, string>> {
  const around = [process.env[AROUND_NAME], process.env[TAG_NAME]].filter((one) => one !== undefined && one !== '');
  return { [TAG_NAME]: tag, ...(around.length === 0 ? {} : { [AROUND_NAME]: around.join(',') }) };
}

type PidsByTag = ReadonlyMap<string, readonly number[]>;

interface Scan {
  readonly own: PidsByTag;
  /** Also those that a gateway among our children has started, and ends itself. */
  readonly all: PidsByTag;
}

/** Requests for a scan within this time share one scan. */
const GATHER_MS = 20;
const POLL_MS = 50;
/** Longest wait after SIGKILL. */
const KILL_MS = 500;

/**
 * Finds and ends processes with a tag of ours in their environment. This is the only way to find a process that has left its group
 * and session (`setsid`). A process that has cleared its environment is not found. Works only with `/proc`, on Linux; elsewhere
 * it finds none.
 */
export class TaggedProcesses {
  /** Prefix of every tag of this gateway. */
  readonly prefix = `${randomUUID()}:`;
  #lastTag = 0;
  #scanning: Promise<Scan> | undefined;

  /** Returns a new tag for a child. @param upstream id of the upstream that the child belongs to, without a colon. */
  next(upstream: string): string {
    return `${this.prefix}${++this.#lastTag}:${upstream}`;
  }

  /** Resolves with the ids of running processes, by the upstream of their tags: all that {@link usedPidsByTag} finds. */
  async pidsByUpstream(): Promise<ReadonlyMap<string, readonly number[]>> {
    const pidsByUpstream = new Map<string, number[]>();
    for (const [tag, pids] of await this.usedPidsByTag()) {
      const upstream = tag.slice(tag.lastIndexOf(':') + 1);
      pidsByUpstream.set(upstream, [...(pidsByUpstream.get(upstream) ?? []), ...pids]);
    }
    return pidsByUpstream;
  }

  /** Ends all processes with this tag: SIGTERM, and `graceMs` later SIGKILL. Resolves when none is left, in bounded time. */
  async end(tag: string, graceMs: number): Promise<void> {
    const killMs = performance.now() + graceMs;
    const terminated = new Set<number>();
    for (;;) {
      const pids = (await this.pidsByTag()).get(tag) ?? [];
      const nowMs = performance.now();
      // A process that hangs in the kernel may outlive SIGKILL.
      if (pids.length === 0 || nowMs > killMs + KILL_MS) return;
      for (const pid of pids) {
        if (nowMs >= killMs) kill(pid, 'SIGKILL');
        // Many programs take a second signal as "at once".
        else if (!terminated.has(pid)) kill(pid, 'SIGTERM');
        terminated.add(pid);
      }
      await sleep(POLL_MS);
    }
  }

  /** Sends SIGTERM to the processes with this tag that have left their process group. */
  async terminateOutside(group: number, tag: string): Promise<void> {
    for (const pid of (await this.pidsByTag()).get(tag) ?? []) if ((await groupOf(pid)) !== group) kill(pid, 'SIGTERM');
  }

  /** Resolves with the ids of running processes, by their tags. */
  async pidsByTag(): Promise<PidsByTag> {
    return (await this.#scan()).own;
  }

  /** Resolves with the ids of running processes, by their tags, and of those that gateways among them have started. */
  async usedPidsByTag(): Promise<PidsByTag> {
    return (await this.#scan()).all;
  }

  #scan(): Promise<Scan> {
    this.#scanning ??= sleep(GATHER_MS).then(() => {
      this.#scanning = undefined;
      return scan(this.prefix);
    });
    return this.#scanning;
  }
}

async function scan(prefix: string): Promise<Scan> {
  const [own, all] = [new Map<string, number[]>(), new Map<string, number[]>()];
  const names = await readdir('/proc').catch((): string[] => []);
  for (const name of names) {
    if (!/^\d+$/.test(name)) continue;
    // Processes of other users cannot be read, and a process may end in the meantime.
    const environment = (await readFile(`/proc/${name}/environ`, 'latin1').catch(() => '')).split('\0');
    for (const variable of [TAG_NAME, AROUND_NAME]) {
      const value = environment.find((one) => one.startsWith(`${variable}=`))?.slice(variable.length + 1);
      const tag = value?.split(',').find((one) => one.startsWith(prefix));
      if (tag === undefined) continue;
      getOrMake(all, tag, () => []).push(Number(name));
      if (variable === TAG_NAME) getOrMake(own, tag, () => []).push(Number(name));
    }
  }
  return { own, all };
}

/** Resolves with the process group of a process, or with undefined if it has ended. */
async function groupOf(pid: number): Promise<number | undefined> {
  const stat = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '');
  // The name of the program, in parentheses, may contain anything.
  const [, group] = /^ \S+ \d+ (\d+)/.exec(stat.slice(stat.lastIndexOf(')') + 1)) ?? [];
  return group === undefined ? undefined : Number(group);
}

function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (thrown) {
    if (!isCode(thrown, 'ESRCH') && !isCode(thrown, 'EPERM')) throw thrown;
  }
}
