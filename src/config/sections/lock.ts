import { COMMAND } from '../../command-name.ts';
import { LIMITS } from '../../limits.ts';
import { LockFileError } from '../../lock/lock-file.ts';
import { pinsOf } from '../../lock/pins.ts';
import type { LockConfig } from '../values/config.ts';
import type { UpstreamConfig } from '../values/upstream-config.ts';
import type { ConfigFiles } from '../files/config-files.ts';
import { fileProblemText } from '../files/ordinary-file.ts';
import type { Document } from '../document/document.ts';
import type { Places } from '../document/places.ts';
import { type Problem, problemLine } from '../document/problem.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';

/** The lock file of a config that names none, beside it. */
export const DEFAULT_LOCK_FILE = 'linkspan.lock';
const PATH = ['gateway', 'lock'];

interface LockRead {
  /** Absolute path of the lock file, also if there is none. */
  readonly file: string;
  readonly config: LockConfig | undefined;
  readonly problem: Problem | undefined;
  readonly warnings: readonly string[];
}

/**
 * Reads the lock file. One that is missing is a problem if definitions that are not in it would be withheld: without it, all of them
 * would be.
 */
export function readLock(
  document: Document,
  settings: GatewaySettings['lock'],
  where: Places,
  files: ConfigFiles,
  upstreams: readonly UpstreamConfig[],
): LockRead {
  const file = where.resolve(settings?.file ?? DEFAULT_LOCK_FILE);
  const none = { file, config: undefined, problem: undefined, warnings: [] };
  const onChange = settings?.onChange ?? 'warn';
  try {
    const text = readText(files, file);
    if (text !== undefined) return { ...none, config: { file, onChange, pins: pinsOf(text) } };
  } catch (thrown) {
    if (!(thrown instanceof LockFileError)) throw thrown;
    const { message, line, column } = thrown;
    return { ...none, problem: { file, line, column, key: '', message } };
  }
  // A file without pins would say nothing.
  if (upstreams.every(({ lock }) => lock === 'off')) return none;
  const own = upstreams.filter(({ lock }) => lock !== undefined && lock !== 'off');
  if (settings === undefined && own.length === 0) return none;
  const message = `there is no lock file ${file}; write it with "${COMMAND} lock"`;
  const path = settings === undefined ? ['gateway'] : PATH;
  const problem = document.problem(path, message);
  const isEnforced = (settings !== undefined && onChange !== 'warn') || own.some(({ lock }) => lock !== 'warn');
  return isEnforced ? { ...none, problem } : { ...none, warnings: [problemLine(problem)] };
}

/** Returns the text of the file; undefined if there is none. @throws {LockFileError} if it cannot be read. */
function readText(files: ConfigFiles, file: string): string | undefined {
  const found = files.get(file, LIMITS.configLockBytes);
  if (found.kind === 'found') return found.bytes.toString('utf8');
  if (found.kind === 'failed' && found.code === 'ENOENT') return undefined;
  throw new LockFileError(fileProblemText(found), 0, 0);
}
