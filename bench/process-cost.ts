import { readdirSync, readFileSync } from 'node:fs';

/** `sysconf(_SC_CLK_TCK)` on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;

/** CPU time used so far, by thread. */
export type CpuTimes = ReadonlyMap<string, number>;

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    // The process has ended in the meantime.
    return undefined;
  }
}

/** Returns the fields of `/proc/<pid>/stat` after the name, which may have any characters. */
function stat(path: string): readonly string[] {
  const text = read(path) ?? '';
  return text.slice(text.lastIndexOf(')') + 2).split(' ');
}

/**
 * Returns nanoseconds. `schedstat` counts the same as `utime + stime`, in finer steps than 10 ms; not every kernel
 * has it.
 */
function threadNs(task: string): number {
  const exact = Number(read(`${task}/schedstat`)?.split(' ', 1)[0] ?? 0);
  if (exact > 0) return exact;
  const fields = stat(`${task}/stat`);
  return (Number(fields[11] ?? 0) + Number(fields[12] ?? 0)) * (1e9 / TICKS_PER_SECOND);
}

/** Returns the CPU time of these processes without their children, user and system together. */
export function cpuTimes(pids: readonly number[]): CpuTimes {
  const times = new Map<string, number>();
  for (const pid of pids) {
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      times.set(`${pid}/${thread}`, threadNs(`/proc/${pid}/task/${thread}`));
    }
  }
  return times;
}

/** Returns the microseconds of CPU used between two readings. A thread that ended between them is not counted. */
export function cpuUs(before: CpuTimes, after: CpuTimes): number {
  let ns = 0;
  for (const [thread, at] of after) ns += at - (before.get(thread) ?? 0);
  return ns / 1_000;
}

/** Returns the time that the host has withheld from this machine's cores, in milliseconds, in steps of 10. */
export function stolenMs(): number {
  const fields = (read('/proc/stat') ?? '').split('\n', 1)[0]?.split(/ +/) ?? [];
  return (Number(fields[8] ?? 0) * 1_000) / TICKS_PER_SECOND;
}

export interface Memory {
  readonly rssMb: number;
  /** The largest value since the start of each process. */
  readonly peakMb: number;
  /** Resident memory. A page that several processes share is divided among them. */
  readonly pssMb: number;
}

export function memory(pids: readonly number[]): Memory {
  let rssKb = 0;
  let peakKb = 0;
  let pssKb = 0;
  for (const pid of pids) {
    const status = read(`/proc/${pid}/status`) ?? '';
    rssKb += Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0);
    peakKb += Number(/^VmHWM:\s+(\d+)/m.exec(status)?.[1] ?? 0);
    pssKb += Number(/^Pss:\s+(\d+)/m.exec(read(`/proc/${pid}/smaps_rollup`) ?? '')?.[1] ?? 0);
  }
  return { rssMb: rssKb / 1_024, peakMb: peakKb / 1_024, pssMb: pssKb / 1_024 };
}

/** Returns the number of threads of these processes. */
export function threads(pids: readonly number[]): number {
  return pids.reduce(
    (sum, pid) => sum + Number(/^Threads:\s+(\d+)/m.exec(read(`/proc/${pid}/status`) ?? '')?.[1] ?? 0),
    0,
  );
}

function parents(): ReadonlyMap<number, number> {
  const all = readdirSync('/proc').map(Number).filter(Number.isInteger);
  return new Map(all.map((pid) => [pid, Number(stat(`/proc/${pid}/stat`)[1])]));
}

/** Returns the processes whose parent is `pid`. */
export function childrenOf(pid: number): number[] {
  return [...parents()].flatMap(([child, parent]) => (parent === pid ? [child] : []));
}

/** Returns the children of `pid`, their children, and so on. A process whose parent has ended is not among them. */
export function descendantsOf(pid: number): number[] {
  const all = [...parents()];
  const found = [pid];
  for (const ancestor of found) found.push(...all.flatMap(([child, parent]) => (parent === ancestor ? [child] : [])));
  return found.slice(1);
}

/**
 * Returns the value of a variable in the environment of a process; undefined if there is none, or the process has
 * ended.
 */
export function startedWith(pid: number, variable: string): string | undefined {
  const entry = (read(`/proc/${pid}/environ`) ?? '').split('\0').find((text) => text.startsWith(`${variable}=`));
  return entry?.slice(variable.length + 1);
}

/** Returns the parent of a process; 0 if the process has ended. */
export function parentOf(pid: number): number {
  return Number(stat(`/proc/${pid}/stat`)[1] ?? 0);
}

/** Returns the bytes that a process caused to be written to disk. */
export function bytesWritten(pid: number): number {
  return Number(/^write_bytes: (\d+)/m.exec(read(`/proc/${pid}/io`) ?? '')?.[1] ?? 0);
}
