import { COMMAND } from '../command-name.ts';
import { statusText } from '../lock/difference-text.ts';
import type { EraDifference } from '../lock/upstream-check.ts';

export interface UpstreamReport {
  readonly id: string;
  /** `added`: it was not in the lock. `removed`: it is only in the lock. `off`: it is in the lock and has `lock: off`. `failed`: it could not be listed. */
  readonly status: 'equal' | 'changed' | 'added' | 'removed' | 'off' | 'failed';
  readonly failure: string | undefined;
  readonly differences: readonly EraDifference[];
}

/** The result of `linkspan lock`. */
export interface LockReport {
  /** Absolute path of the lock file. */
  readonly file: string;
  readonly isEqual: boolean;
  readonly isWritten: boolean;
  readonly upstreams: readonly UpstreamReport[];
}

/** Returns the lines of a report for people: the differences of each upstream, the suspicious ones marked. */
export function reportLines({ file, isEqual, isWritten, upstreams }: LockReport, isCheck: boolean): readonly string[] {
  const differs = upstreams.some(({ status }) => status !== 'equal' && status !== 'failed');
  const end = isWritten
    ? `Written: ${file}. Review its changes before you commit it.`
    : isEqual
      ? `The definitions are those of ${file}.`
      : isCheck && !differs
        ? `The definitions that could be listed are those of ${file}.`
        : isCheck
          ? `The definitions differ from ${file}. If the changes are right: ${COMMAND} lock`
          : `Nothing was written to ${file}.`;
  return [...upstreams.flatMap(upstreamLines), end];
}

function upstreamLines({ id, status, failure, differences }: UpstreamReport): readonly string[] {
  switch (status) {
    case 'failed':
      return [`${id}: NOT LISTED: ${failure ?? ''}`];
    case 'removed':
      return [`${id}: is in the lock, and not in the config`];
    case 'off':
      return [`${id}: is in the lock, and has "lock: off" in the config`];
    case 'equal':
      return [`${id}: as in the lock`];
    case 'added':
      return [`${id}: new in the lock, ${counts(differences)}`, ...differences.filter(isSuspicious).flatMap(lines)];
    case 'changed':
      return [`${id}: ${counts(differences)}`, ...differences.flatMap(lines)];
  }
}

function counts(differences: readonly EraDifference[]): string {
  const parts = (['added', 'changed', 'removed'] as const).flatMap((status) => {
    const count = differences.filter((one) => one.status === status).length;
    return count === 0 ? [] : [`${count} ${status}`];
  });
  return parts.length === 0 ? 'no definitions' : parts.join(', ');
}

function isSuspicious({ changes }: EraDifference): boolean {
  return changes.some(({ risk }) => risk === 'suspicious');
}

/** Returns a line for each change of a definition; `!` marks the suspicious ones. */
function lines(difference: EraDifference): readonly string[] {
  const { eras, changes } = difference;
  const [only] = eras;
  const where = eras.length === 1 && only !== undefined ? ` (${only})` : '';
  const status = `${statusText(difference)}${where}`;
  if (changes.length === 0) return [`    ${status}`];
  return changes.map(({ risk, text }) => `  ${risk === 'suspicious' ? '!' : ' '} ${status}: ${text} [${risk}]`);
}
