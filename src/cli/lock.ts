import { isCode, messageOf } from '../thrown.ts';
import { COMMAND } from '../command-name.ts';
import { chmod, readFile, realpath, rename, rm, writeFile } from 'node:fs/promises';
import { ownUser, writeFault } from '../store/disk/path-fault.ts';
import { statOf } from '../store/disk/state-file.ts';
import { problemLine } from '../config/document/problem.ts';
import { loadConfig } from '../config/load.ts';
import { LockFileError, type Lock, lockText, parseLock, type PinnedLists } from '../lock/lock-file.ts';
import { pinUpstream, upstreamDifferences } from '../lock/upstream-check.ts';
import { type LockReport, reportLines, type UpstreamReport } from './lock-report.ts';
import { CliError, EXIT } from './operator/cli-error.ts';
import { printAnswer, printError } from './operator/output.ts';
import { fileOf, loadOptions, type StartOptions } from './start.ts';
import { type EraOffers, listErasOnce } from './trial-start.ts';

/** The command-line options of `lock`. */
export interface LockOptions extends StartOptions {
  /** The only upstream to pin or to check. */
  readonly upstream?: string;
  /** Compares and writes nothing. */
  readonly check: boolean;
  readonly json: boolean;
}

/**
 * Starts the upstreams, and pins their definitions in the lock file or compares them with it. Resolves with the exit code: 1 if an
 * upstream could not be listed, or a check finds a difference.
 *
 * @throws {ConfigError}
 * @throws {CliError}
 */
export async function lock(options: LockOptions): Promise<number> {
  const { check, upstream: only } = options;
  const {
    config,
    lockFile: file,
    disabled,
  } = await loadConfig(fileOf(options), {
    ...loadOptions(options).preview,
    ignoresLock: true,
  });
  if (only !== undefined && !config.upstreams.some(({ id }) => id === only)) {
    if (disabled.includes(only)) throw new CliError(EXIT.usage, `upstream "${only}" is disabled; it keeps its pins`);
    const ids = config.upstreams.map(({ id }) => id).join(', ');
    const others = ids === '' ? `${config.file} has none that is served` : `there are: ${ids}`;
    throw new CliError(EXIT.usage, `there is no upstream "${only}"; ${others}`);
  }
  const pinned = config.upstreams.filter(({ id, lock: own }) => own !== 'off' && (only === undefined || id === only));
  if (only !== undefined && pinned.length === 0) {
    throw new CliError(EXIT.usage, `nothing of upstream "${only}" is pinned: its entry has "lock: off"`);
  }
  const before = await readLock(file, check || only !== undefined);
  // Reviewed pins wait for the time when their upstream is served again.
  const stale = only === undefined ? [...(before ?? new Map<string, never>()).keys()] : [];
  const gone = stale.filter((id) => !disabled.includes(id) && !pinned.some((one) => one.id === id));
  if (pinned.length === 0 && gone.length === 0) {
    const report: LockReport = { file, isEqual: true, isWritten: false, upstreams: [] };
    printAnswer(options, report, ['There is nothing to pin: no upstream is served without "lock: off".']);
    return EXIT.ok;
  }
  if (check && before === undefined) {
    throw new CliError(EXIT.failed, `there is no lock file ${file}; write it with "${COMMAND} lock"`);
  }
  const isOff = (id: string) => config.upstreams.some((one) => one.id === id);
  const others = gone.filter((id) => !isOff(id));
  if (!check && pinned.length > 0 && others.length > 0 && others.length === before?.size) {
    throw new CliError(
      EXIT.failed,
      `the lock file ${file} has none of the upstreams of ${config.file}, but others: ${others.join(', ')}. ` +
        'If they are of another config, set gateway.lock.file of this one; else remove the lock file',
    );
  }
  const listed = await listErasOnce({ ...config, upstreams: pinned, profiles: [] });

  const upstreams = [
    ...listed.map((one) => reportOf(one, before)),
    ...gone.map((id): UpstreamReport => {
      return { id, status: isOff(id) ? 'off' : 'removed', failure: undefined, differences: [] };
    }),
  ];
  const isEqual = upstreams.every(({ status }) => status === 'equal');
  const isWritten = !check && (await writeLock(file, before, nextLock(before, listed, gone)));
  const report: LockReport = { file, isEqual, isWritten, upstreams };
  printAnswer(options, report, reportLines(report, check));
  if (upstreams.some(({ status }) => status === 'failed')) return EXIT.failed;
  return check && !isEqual ? EXIT.failed : EXIT.ok;
}

/**
 * Reads the lock file. Resolves with undefined if there is none, or if it is broken and will be replaced as a whole.
 *
 * @throws {CliError} if it is broken and parts of it are needed.
 */
async function readLock(file: string, isNeeded: boolean): Promise<Lock | undefined> {
  try {
    return parseLock(await readFile(file, 'utf8'));
  } catch (thrown) {
    if (isCode(thrown, 'ENOENT')) return undefined;
    if (!(thrown instanceof LockFileError)) throw unusable(file, 'read', thrown);
    const { line, column, message } = thrown;
    const text = problemLine({ file, line, column, key: '', message });
    if (isNeeded) throw new CliError(EXIT.failed, text, thrown);
    printError(`warning: ${text}; all of it is written again\n`);
    return undefined;
  }
}

function reportOf({ upstream: id, offers, failure }: EraOffers, before: Lock | undefined): UpstreamReport {
  if (failure !== undefined) return { id, status: 'failed', failure, differences: [] };
  const differences = upstreamDifferences(before?.get(id), offers);
  const status = before?.has(id) !== true ? 'added' : differences.length > 0 ? 'changed' : 'equal';
  return { id, status, failure, differences };
}

/** Returns the lock with the lists that were read. An upstream that could not be listed keeps its entry. */
function nextLock(before: Lock | undefined, listed: readonly EraOffers[], gone: readonly string[]): Lock {
  const next = new Map<string, readonly PinnedLists[]>(before);
  for (const id of gone) next.delete(id);
  for (const { upstream, offers, failure } of listed) {
    if (failure === undefined) next.set(upstream, pinUpstream(offers));
  }
  return next;
}

/**
 * Writes the lock, at once as a whole. Resolves with whether the file has changed. A first one has pins: without any it would withhold
 * everything.
 */
async function writeLock(file: string, before: Lock | undefined, next: Lock): Promise<boolean> {
  const text = lockText(next);
  if (text === lockText(before ?? new Map())) return false;
  // A symbolic link stays, and its target is replaced.
  const target = await realpath(file).catch(() => file);
  const temporary = `${target}.${process.pid}.tmp`;
  try {
    const found = await statOf(target);
    await writeFile(temporary, text);
    if (found !== undefined) await chmod(temporary, found.mode);
    await rename(temporary, target);
  } catch (thrown) {
    await rm(temporary, { force: true });
    throw unusable(file, 'written', thrown);
  }
  return true;
}

function unusable(file: string, how: 'read' | 'written', thrown: unknown): CliError {
  const reason = writeFault(thrown, 'its directory does not exist') ?? messageOf(thrown);
  const message = `the lock file ${file} cannot be ${how}: ${reason}. Set gateway.lock.file to a file that ${ownUser()} can use`;
  return new CliError(EXIT.failed, message, thrown);
}
