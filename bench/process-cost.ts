import { readdirSync, readFileSync } from 'node:fs';

/** `sysconf(_SC_CLK_TCK)` on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;

/** CPU time used so far, by thread. */
export type CpuTimes = ReadonlyMap<string, number>;

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    // It ended in the meantime.
    return undefined;
  }
}

/** The fields of `/proc/<pid>/stat` that follow the name, which may hold anything. */
function stat(path: string): readonly string[] {
  const text = read(path) ?? '';
  return text.slice(text.lastIndexOf(')') + 2).split(' ');
}

/** Nanoseconds. `schedstat` counts what `utime + stime` counts, in finer steps than ticks of 10 ms; not every kernel has it. */
function threadNs(task: string): number {
  const exact = Number(read(`${task}/schedstat`)?.split(' ', 1)[0] ?? 0);
  if (exact > 0) return exact;
  const fields = stat(`${task}/stat`);
  return (Number(fields[11] ?? 0) + Number(fields[12] ?? 0)) * (1e9 / TICKS_PER_SECOND);
}

/** CPU time of these processes without their children, user and system together. */
export function cpuTimes(pids: readonly number[]): CpuTimes {
  const times = new Map<string, number>();
  for (const pid of pids) {
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      times.set(`${pid}/${thread}`, threadNs(`/proc/${pid}/task/${thread}`));
    }
  }
  return times;
}

/** Microseconds of CPU used between two readings. A thread that ended between them is not counted. */
export function cpuUs(before: CpuTimes, after: CpuTimes): number {
  let ns = 0;
  for (const [thread, at] of after) ns += at - (before.get(thread) ?? 0);
  return ns / 1_000;
}

export interface Memory {
  readonly rssMb: number;
  /** The most since each process began. */
  readonly peakMb: number;
}

export function memory(pids: readonly number[]): Memory {
  let rssKb = 0;
  let peakKb = 0;
  for (const pid of pids) {
    const status = read(`/proc/${pid}/status`) ?? '';
    rssKb += Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0);
    peakKb += Number(/^VmHWM:\s+(\d+)/m.exec(status)?.[1] ?? 0);
  }
  return { rssMb: rssKb / 1_024, peakMb: peakKb / 1_024 };
}

/** Processes whose parent is `pid`. */
export function childrenOf(pid: number): number[] {
  const all = readdirSync('/proc').map(Number).filter(Number.isInteger);
  return all.filter((other) => Number(stat(`/proc/${other}/stat`)[1]) === pid);
}
