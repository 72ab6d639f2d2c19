import { memberOf } from '../json/record.ts';

/** The least number of file descriptors reserved for upstreams, files and logs. A stdio process takes four. */
const RESERVED = 512;
const RESERVED_FRACTION = 4;
const MIN_CONNECTIONS = 64;
/** Connections of the operator's port. They are among the reserved ones. */
export const OPERATOR_CONNECTIONS = 64;

/** Returns how many connections a listener may accept in a process that may open this many files. */
export function connectionLimit(openFiles: number): number {
  if (!Number.isFinite(openFiles)) return openFiles;
  return Math.max(MIN_CONNECTIONS, openFiles - Math.max(RESERVED, Math.ceil(openFiles / RESERVED_FRACTION)));
}

/** Returns how many files this process may open, or undefined if the system sets no limit. */
export function openFileLimit(): number | undefined {
  // Without this, the report looks up host names of peers. Node's types do not declare the member.
  Reflect.set(process.report, 'excludeNetwork', true);
  const soft = memberOf(memberOf(memberOf(process.report.getReport(), 'userLimits'), 'open_files'), 'soft');
  return typeof soft === 'number' ? soft : undefined;
}
