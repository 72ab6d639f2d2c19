import { COMMAND } from '../../command-name.ts';
import { LIMITS } from '../../limits.ts';
import { LockFileError } from '../../lock/lock-file.ts';
import { resultOrError } from '../../thrown.ts';
import { type OnChange, pinsOf } from '../../lock/pins.ts';
import type { Config, LockConfig } from '../values/config.ts';
import { CALLERS_LISTS, hasCallersLists, type UpstreamConfig } from '../values/upstream-config.ts';
import type { ConfigFiles } from '../files/config-files.ts';
import { fileProblemText } from '../files/ordinary-file.ts';
import type { Document } from '../document/document.ts';
import type { Faults } from '../document/faults.ts';
import { type Problem, problemOfWhole } from '../document/problem.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import { placeOf, type UpstreamMap } from '../upstreams/client-file.ts';

/** The lock file of a config that names none, beside it. */
export const DEFAULT_LOCK_FILE = 'linkspan.lock';

/**
 * Reads the lock file. One that is missing is a problem if definitions that are not in it would be withheld: without it, all of them
 * would be.
 *
 * @param file absolute path of the lock file.
 */
export function readLock(
  file: string,
  settings: GatewaySettings['lock'],
  files: ConfigFiles,
  upstreams: readonly UpstreamConfig[],
  faults: Faults,
): LockConfig | undefined {
  const onChange = settings?.onChange ?? 'warn';
  const found = files.get(file, LIMITS.configLockBytes);
  if (found.kind === 'found') {
    const pins = resultOrError(LockFileError, () => pinsOf(found.bytes.toString('utf8')));
    if (!(pins instanceof LockFileError)) return { file, onChange, pins };
    const { message, line, column } = pins;
    faults.problems.push({ file, line, column, key: '', message });
    return undefined;
  }
  if (found.kind !== 'failed' || found.code !== 'ENOENT') {
    const step = found.kind === 'not-ordinary' ? '; set gateway.lock.file to a file' : '';
    faults.problems.push(problemOfWhole(file, `${fileProblemText(found)}${step}`));
    return undefined;
  }
  // A file without pins would say nothing.
  if (upstreams.every(({ lock }) => lock === 'off')) return undefined;
  const own = upstreams.filter(({ lock }) => lock !== undefined && lock !== 'off');
  if (settings === undefined && own.length === 0) return undefined;
  const isEnforced = (settings !== undefined && onChange !== 'warn') || own.some(({ lock }) => lock !== 'warn');
  const path = settings === undefined ? ['gateway'] : ['gateway', 'lock'];
  faults[isEnforced ? 'refuse' : 'warn'](path, `there is no lock file ${file}; write it with "${COMMAND} lock"`);
  return undefined;
}

/** Returns the reaction to a definition of an upstream that differs from the lock; undefined if nothing of it is pinned. */
export function onChangeOf({ lock }: Pick<Config, 'lock'>, upstream: UpstreamConfig): OnChange | undefined {
  if (lock === undefined || upstream.lock === 'off') return undefined;
  return upstream.lock ?? lock.onChange;
}

/**
 * Returns the problems of upstreams that an enforced lock withholds as a whole, by id. Nothing of them is pinned, and the gateway cannot
 * list them without a caller to write pins.
 */
export function judgeUnpinnable(
  { document, map }: { readonly document: Document; readonly map: UpstreamMap },
  lock: LockConfig | undefined,
  upstreams: readonly UpstreamConfig[],
): ReadonlyMap<string, Problem> {
  const problems = new Map<string, Problem>();
  if (lock === undefined) return problems;
  for (const upstream of upstreams) {
    const { id, lock: own } = upstream;
    const onChange = onChangeOf({ lock }, upstream);
    const isPinned = (lock.pins.lists.get(id)?.length ?? 0) > 0;
    if (!hasCallersLists(upstream) || onChange === undefined || onChange === 'warn' || isPinned) continue;
    const path = placeOf(map, id);
    const message = `${CALLERS_LISTS}, and nothing of it is in the lock, so that "${onChange}" withholds everything; set "lock: off"`;
    problems.set(id, document.problem([...path, own === undefined ? 'auth' : 'lock'], message, 'key'));
  }
  return problems;
}
