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

/** Called about the files. `onRefused`: another user could have written one, which counts as none. */
export type OfferFileEvents = Partial<Pick<SessionStoreEvents, 'onLimit' | 'onRefused' | 'onWriteFailed'>>;

/** Stores lists in files of the state directory, each replaced as a whole. */
export class DiskOfferStore implements OfferStore {
  readonly #dir: string;
  readonly #events: OfferFileEvents;
  readonly #mayWrite: boolean;

  /** @param mayWrite false for a process beside the one that writes the lists. Changes have no effect then. */
  constructor(stateDir: string, events: OfferFileEvents = {}, mayWrite = true) {
    this.#dir = join(stateDir, 'offers');
    this.#events = events;
    this.#mayWrite = mayWrite;
  }

  async read(key: StoredOfferKey): Promise<string | undefined> {
    const owner = ownerLine(key);
    try {
      const text = await readOwnFile(join(this.#dir, fileOf(key)), {
        maxBytes: LIMITS.storedOfferBytes + owner.length,
        refusedMode: REFUSED_MODE.writtenByAll,
        remedy: 'The upstream is listed again, which replaces it.',
      });
      return text?.startsWith(owner) === true ? text.slice(owner.length) : undefined;
    } catch (thrown) {
      // The caller lists the upstream again.
      if (thrown instanceof RefusedFileError) this.#events.onRefused?.(thrown);
      return undefined;
    }
  }

  async write(key: StoredOfferKey, text: string): Promise<void> {
    await this.#change(async () => {
      const file = fileOf(key);
      if (Buffer.byteLength(text) > LIMITS.storedOfferBytes) {
        this.#events.onLimit?.('storedOfferBytes');
        // Without this, older lists would be served after the next start.
        await this.#remove(file);
        return;
      }
      await this.#replace(file, [ownerLine(key), text]);
      const stem = stemOf(key);
      if (isRestricted(file.slice(stem.length))) await this.#removeOldest(stem, file);
    });
  }

  async remove(key: StoredOfferKey): Promise<void> {
    await this.#change(() => this.#remove(fileOf(key)));
  }

  async hasFailed(key: UpstreamKey): Promise<boolean> {
    return (await this.#mtimeMs(failureFileOf(key))) !== undefined;
  }

  async setFailed(key: UpstreamKey, hasFailed: boolean): Promise<void> {
    const file = failureFileOf(key);
    await this.#change(() => (hasFailed ? this.#replace(file, ['']) : this.#remove(file)));
  }

  async listedAtMs(key: UpstreamKey): Promise<number | undefined> {
    return await this.#mtimeMs(listedFileOf(key));
  }

  async setListed(key: UpstreamKey): Promise<void> {
    await this.#change(() => this.#replace(listedFileOf(key), ['']));
  }

  /** Makes a change, if this process may. Reports one that fails. */
  async #change(change: () => Promise<void>): Promise<void> {
    if (!this.#mayWrite) return;
    try {
      await change();
    } catch (thrown) {
      this.#events.onWriteFailed?.(thrown);
      throw thrown;
    }
  }

  async #replace(file: string, texts: readonly string[]): Promise<void> {
    await makeStateDir(this.#dir);
    await replaceFile(join(this.#dir, file), texts);
  }

  async #remove(file: string): Promise<void> {
    await rm(join(this.#dir, file), { force: true });
  }

  /** Removes the oldest files with lists for certain clients if there are too many. */
  async #removeOldest(stem: string, written: string): Promise<void> {
    const names = (await readdir(this.#dir)).filter(
      (name) =>
        name.startsWith(`${stem}.`) &&
        isRestricted(name.slice(stem.length)) &&
        name.endsWith('.json') &&
        name !== written,
    );
    const excess = names.length + 1 - LIMITS.storedOffersPerUpstream;
    if (excess <= 0) return;
    this.#events.onLimit?.('storedOffersPerUpstream');
    const dated = await Promise.all(names.map(async (name) => ({ name, mtimeMs: (await this.#mtimeMs(name)) ?? 0 })));
    dated.sort((a, b) => a.mtimeMs - b.mtimeMs);
    for (const { name } of dated.slice(0, excess)) await this.#remove(name);
  }

  /** Returns undefined where there is no such file, or the system does not show it: then the upstream is listed again. */
  async #mtimeMs(name: string): Promise<number | undefined> {
    const found = await stat(join(this.#dir, name)).catch(() => undefined);
    return found?.mtimeMs;
  }
}
