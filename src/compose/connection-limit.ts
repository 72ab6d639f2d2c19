/** Descriptors left to upstreams, files and logs: a stdio process takes four. */
const RESERVED = 256;
const RESERVED_PART = 4;
const LEAST = 64;

/** Returns how many connections a listener takes, of a process that may open this many files. */
export function connectionLimit(openFiles: number): number {
  if (!Number.isFinite(openFiles)) return openFiles;
  return Math.max(LEAST, openFiles - Math.max(RESERVED, Math.ceil(openFiles / RESERVED_PART)));
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}

/** Returns how many files this process may open; undefined where the system sets no limit. */
export function openFileLimit(): number | undefined {
  // Names of peers would be looked up otherwise. The types do not know this member.
  Reflect.set(process.report, 'excludeNetwork', true);
  const soft = member(member(member(process.report.getReport(), 'userLimits'), 'open_files'), 'soft');
  return typeof soft === 'number' ? soft : undefined;
}
