import { type FSWatcher, watch } from 'node:fs';
import { readlink } from 'node:fs/promises';
import { basename, dirname, isAbsolute, normalize, sep } from 'node:path';
import { FileState } from './file-state.ts';
import { judgeLook, nextLookMs, type PendingChange, type WatchTimes } from './look.ts';
import { getOrMake } from '../../map-entries.ts';

/** Times by which a change is noticed within two seconds of its last byte, also without events and while the file goes on changing. */
export const CONFIG_TIMES: WatchTimes = { pollMs: 500, settleMs: 200, longestMs: 1_000 };

/**
 * Watches files by path, through symbolic links. Reports a file that gets another content, by writing or by replacing it (as editors do).
 * Reports a directory link that is replaced (as Kubernetes does for a ConfigMap). Reports a file that is removed or created.
 *
 * Only the content decides. Looks at the files come in an interval that nothing extends; events of the folders bring them forward.
 */
export class FileWatch implements Disposable {
  readonly #onChange: () => void;
  readonly #times: WatchTimes;
  readonly #files = new Map<string, FileState>();
  /** The state of each file when it was last reported, by path. */
  readonly #reported = new Map<string, string>();
  /** The watcher of each folder; undefined if the system has no events for it. */
  readonly #folders = new Map<string, FSWatcher | undefined>();
  /** The names in each folder whose events bring a look at the files. */
  #names: ReadonlyMap<string, ReadonlySet<string>> = new Map();
  #pending: PendingChange | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isLooking = false;
  /** True if an event arrived during a look. */
  #isDue = false;
  #isClosed = false;

  /** @param onChange runs after one or more of the files have changed. */
  constructor(onChange: () => void, times: WatchTimes = CONFIG_TIMES) {
    this.#onChange = onChange;
    this.#times = times;
  }

  /**
   * Sets the files to watch: the path of each, and the state that its reader has. Undefined stands for the state that was reported last, of a new file
   * for the present one. Resolves when every later change is reported.
   */
  async setFiles(files: ReadonlyMap<string, string | undefined>): Promise<void> {
    for (const file of this.#files.keys()) {
      if (files.has(file)) continue;
      this.#files.delete(file);
      this.#reported.delete(file);
    }
    for (const [file, state] of files) {
      if (!this.#files.has(file)) this.#files.set(file, new FileState(file));
      if (state !== undefined) this.#reported.set(file, state);
    }
    const learned = Promise.all([...files.keys()].map((file) => this.#learn(file)));
    await this.#findNames();
    this.#watchFolders();
    await learned;
    this.#lookSoon();
  }

  /** Takes the present state of a file for the reported one, unless there is one. */
  async #learn(file: string): Promise<void> {
    const fileState = this.#files.get(file);
    if (fileState === undefined || this.#reported.has(file)) return;
    const state = await fileState.read();
    if (this.#files.get(file) === fileState && !this.#reported.has(file)) this.#reported.set(file, state);
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const watcher of this.#folders.values()) watcher?.close();
    this.#folders.clear();
  }

  async #findNames(): Promise<void> {
    this.#names = await namesByFolder([...this.#files.keys()]);
  }

  /** Watches the folders of all files, also one that was removed and is there again. */
  #watchFolders(): void {
    if (this.#isClosed) return;
    for (const [folder, watcher] of this.#folders) {
      if (watcher !== undefined && this.#names.has(folder)) continue;
      watcher?.close();
      this.#folders.delete(folder);
    }
    for (const folder of this.#names.keys()) {
      if (!this.#folders.has(folder)) this.#folders.set(folder, this.#watchFolder(folder));
    }
  }

  /** Returns undefined if the system has no events for the folder; its files are then only compared. */
  #watchFolder(folder: string): FSWatcher | undefined {
    try {
      const watcher = watch(folder, { persistent: false }, (_event, name) => this.#onEvent(folder, name));
      watcher.on('error', () => {
        watcher.close();
        if (this.#folders.get(folder) === watcher) this.#folders.set(folder, undefined);
      });
      return watcher;
    } catch {
      return undefined;
    }
  }

  #onEvent(folder: string, name: string | null): void {
    if (name === null || this.#names.get(folder)?.has(name) === true) this.#lookSoon();
  }

  #lookSoon(): void {
    if (this.#isLooking) this.#isDue = true;
    // The next look at a pending change comes soon in any case.
    else if (this.#pending === undefined) this.#schedule(0);
  }

  #schedule(delayMs: number): void {
    clearTimeout(this.#timer);
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => void this.#look(), delayMs).unref();
  }

  /** Looks at all files. Never rejects. */
  async #look(): Promise<void> {
    this.#isLooking = true;
    this.#isDue = false;
    const startMs = performance.now();
    const states = new Map(
      await Promise.all([...this.#files].map(async ([file, state]) => [file, await state.read()] as const)),
    );
    const look = judgeLook(this.#reported, this.#pending, states, startMs, this.#times);
    this.#pending = look.kind === 'pending' ? look.change : undefined;
    if (look.kind === 'changed') {
      for (const [file, state] of look.states) this.#reported.set(file, state);
      // A link may lead elsewhere.
      await this.#findNames();
    }
    // A removed folder may be there again.
    this.#watchFolders();
    this.#isLooking = false;
    const nextMs = nextLookMs(this.#pending, performance.now(), this.#times);
    this.#schedule(this.#isDue ? Math.min(nextMs, this.#times.settleMs) : nextMs);
    if (look.kind === 'changed' && !this.#isClosed) this.#onChange();
  }
}

/** Returns the folders of files, with the names in them whose events may mean a change of a file. */
async function namesByFolder(files: readonly string[]): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const names = new Map<string, Set<string>>();
  for (const file of files) {
    const folder = dirname(file);
    const inFolder = getOrMake(names, folder, () => new Set());
    inFolder.add(basename(file));
    const link = await linkIn(file);
    if (link !== undefined) inFolder.add(link);
  }
  return names;
}

/** Returns the name in its own folder that a link leads to, such as `..data` of a ConfigMap; undefined if it leads elsewhere. */
async function linkIn(file: string): Promise<string | undefined> {
  const target = await readlink(file).catch(() => undefined);
  if (target === undefined || isAbsolute(target)) return undefined;
  const [first] = normalize(target).split(sep);
  return first === '..' ? undefined : first;
}
