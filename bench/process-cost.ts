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

/** Returns the time that the host has withheld from this machine's cores, in milliseconds, in steps of 10. */
export function stolenMs(): number {
  const fields = (read('/proc/stat') ?? '').split('\n', 1)[0]?.split(/ +/) ?? [];
  return (Number(fields[8] ?? 0) * 1_000) / TICKS_PER_SECOND;
}

export interface Memory {
  readonly rssMb: number;
  /** The most since each process began. */
  readonly peakMb: number;
  /** Resident memory, where a page that several processes share is divided among them. */
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

/** Returns the value of a variable that the process was started with; undefined where it has none or has ended. */
export function startedWith(pid: number, variable: string): string | undefined {
  const entry = (read(`/proc/${pid}/environ`) ?? '').split('\0').find((text) => text.startsWith(`${variable}=`));
  return entry?.slice(variable.length + 1);
}

/** Returns the parent of a process; 0 where the process has ended. */
export function parentOf(pid: number): number {
  return Number(stat(`/proc/${pid}/stat`)[1] ?? 0);
}

/** Returns the bytes that a process caused to be written to disk. */
export function bytesWritten(pid: number): number {
  return Number(/^write_bytes: (\d+)/m.exec(read(`/proc/${pid}/io`) ?? '')?.[1] ?? 0);
}
