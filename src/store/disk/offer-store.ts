import { hash } from 'node:crypto';
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { LIMITS } from '../../limits.ts';
import type { SessionStoreEvents } from '../sessions/local-session-store.ts';
import type { OfferStore, StoredOfferKey, UpstreamKey } from '../offer-store.ts';
import { readOwnFile, REFUSED_MODE, RefusedFileError } from './own-file.ts';
import { makeStateDir, replaceFile } from './state-file.ts';

/** Returns the beginning of the names of all files of one upstream. */
function stemOf({ upstream, target }: UpstreamKey): string {
  return `${upstream}-${digest(target, 12)}`;
}

function digest(text: string, chars: number): string {
  return hash('sha256', text).slice(0, chars);
}

/** Parts of the file name of lists for clients with certain capabilities, and for one principal. Clients choose both. */
const CAPABILITIES = '.c-';
const AUDIENCE = '.a-';

function digestPart(mark: string, text: string): string {
  return text === '' ? '' : `${mark}${digest(text, 16)}`;
}

/** Returns whether a file has lists for certain clients only. @param end its name after the {@link stemOf} of its upstream. */
function isRestricted(end: string): boolean {
  return end.includes(CAPABILITIES) || end.includes(AUDIENCE);
}

function fileOf(key: StoredOfferKey): string {
  const era = key.era === '' ? '' : `.${key.era}`;
  const clients = digestPart(CAPABILITIES, key.capabilityKey) + digestPart(AUDIENCE, key.audience);
  return `${stemOf(key)}${era}${clients}.json`;
}

/**
 * Returns the first line of a file with the lists for one principal. The file name has only a part of this digest, which two
 * principals may share.
 */
function ownerLine({ audience }: StoredOfferKey): string {
  return audience === '' ? '' : `${hash('sha256', audience)}\n`;
}

/** Returns the name of the empty file that marks an upstream whose last listing failed. */
function failureFileOf(key: UpstreamKey): string {
  return `${stemOf(key)}.failed`;
}

/** The time of an empty file of this name is that of the last listing. */
function listedFileOf(key: UpstreamKey): string {
  return `${stemOf(key)}.listed`;
}

/** The {@link stemOf} at the beginning of a file name. */
const STEM = /^.*-[0-9a-f]{12}(?=\.)/;

const DAY_MS = 24 * 3_600_000;
/** Files that were neither read nor written for this long are removed: their upstream was removed, or is another server by now. */
const STALE_MS = 30 * DAY_MS;
/** Such files are looked for at most this often, by the first listing after it. */
const SWEEP_MS = DAY_MS;

/** Called about the files. `onRefused`: another user could have written one, which counts as none. */
export type OfferFileEvents = Partial<Pick<SessionStoreEvents, 'onLimit' | 'onRefused' | 'onWriteFailed'>>;

/**
 * Returns a store of lists in files of the state directory, each replaced as a whole.
 *
 * @param mayWrite false for a process beside the one that writes the lists. Changes have no effect then.
 */
export function diskOfferStore(stateDir: string, events: OfferFileEvents = {}, mayWrite = true): OfferStore {
  const dir = join(stateDir, 'offers');
  /** Makes a change, if this process may. Reports one that fails. */
  const change = async (make: () => Promise<void>): Promise<void> => {
    if (!mayWrite) return;
    try {
      await make();
    } catch (thrown) {
      events.onWriteFailed?.(thrown);
      throw thrown;
    }
  };
  const replace = async (file: string, texts: readonly string[]): Promise<void> => {
    await makeStateDir(dir);
    await replaceFile(join(dir, file), texts);
  };
  const remove = (file: string): Promise<void> => rm(join(dir, file), { force: true });
  /** Returns undefined where there is no such file, or the system does not show it: then the upstream is listed again. */
  const mtimeMsOf = async (name: string): Promise<number | undefined> =>
    (await stat(join(dir, name)).catch(() => undefined))?.mtimeMs;
  /** Removes the oldest files with lists for certain clients if there are too many. */
  const removeOldest = async (stem: string, written: string): Promise<void> => {
    const names = (await readdir(dir)).filter(
      (name) =>
        name.startsWith(`${stem}.`) &&
        isRestricted(name.slice(stem.length)) &&
        name.endsWith('.json') &&
        name !== written,
    );
    const excess = names.length + 1 - LIMITS.storedOffersPerUpstream;
    if (excess <= 0) return;
    events.onLimit?.('storedOffersPerUpstream');
    const dated = await Promise.all(names.map(async (name) => ({ name, mtimeMs: (await mtimeMsOf(name)) ?? 0 })));
    dated.sort((a, b) => a.mtimeMs - b.mtimeMs);
    for (const { name } of dated.slice(0, excess)) await remove(name);
  };
  /** When files of an upstream were last asked for by this process, by stem. */
  const usedMs = new Map<string, number>();
  const used = <Key extends UpstreamKey>(key: Key): Key => {
    usedMs.set(stemOf(key), Date.now());
    return key;
  };
  let sweptMs = -Infinity;
  const removeStale = async (): Promise<void> => {
    const nowMs = Date.now();
    if (Math.abs(nowMs - sweptMs) < SWEEP_MS) return;
    sweptMs = nowMs;
    const byStem = Map.groupBy(await readdir(dir), (name) => STEM.exec(name)?.[0] ?? '');
    byStem.delete('');
    for (const [stem, names] of byStem) {
      const latestMs = [usedMs.get(stem), ...(await Promise.all(names.map(mtimeMsOf)))];
      if (latestMs.some((ms = 0) => nowMs - ms < STALE_MS)) continue;
      for (const name of names) await remove(name);
      usedMs.delete(stem);
    }
  };
  return {
    read: async (key) => {
      const owner = ownerLine(used(key));
      try {
        const text = await readOwnFile(join(dir, fileOf(key)), {
          maxBytes: LIMITS.storedOfferBytes + owner.length,
          refusedMode: REFUSED_MODE.writtenByAll,
          remedy: 'The upstream is listed again, which replaces it.',
        });
        return text?.startsWith(owner) === true ? text.slice(owner.length) : undefined;
      } catch (thrown) {
        // The caller lists the upstream again.
        if (thrown instanceof RefusedFileError) events.onRefused?.(thrown);
        return undefined;
      }
    },
    write: (key, text) =>
      change(async () => {
        const file = fileOf(key);
        if (Buffer.byteLength(text) > LIMITS.storedOfferBytes) {
          events.onLimit?.('storedOfferBytes');
          // Without this, older lists would be served after the next start.
          return await remove(file);
        }
        await replace(file, [ownerLine(key), text]);
        const stem = stemOf(key);
        if (isRestricted(file.slice(stem.length))) await removeOldest(stem, file);
      }),
    remove: (key) => change(() => remove(fileOf(key))),
    hasFailed: async (key) => (await mtimeMsOf(failureFileOf(used(key)))) !== undefined,
    setFailed: (key, hasFailed) =>
      change(() => (hasFailed ? replace(failureFileOf(key), ['']) : remove(failureFileOf(key)))),
    listedAtMs: (key) => mtimeMsOf(listedFileOf(key)),
    setListed: (key) =>
      change(async () => {
        await replace(listedFileOf(key), ['']);
        await removeStale();
      }),
  };
}
