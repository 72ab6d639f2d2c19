import { type FSWatcher, watch } from 'node:fs';
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/** The interval at which files are checked. Events are missing on network file systems and in some containers. */
const POLL_MS = 2_000;
/** A file is reported when it has not changed for this long, so that a file that is being written is not read. */
const SETTLE_MS = 200;

/** Times of a {@link FileWatch}; tests use shorter ones. */
export interface WatchTimes {
  readonly pollMs: number;
  readonly settleMs: number;
}

/**
 * Watches files by path, through symbolic links. Notices a file that is written, replaced by another of the same name (as editors
 * do), removed or created, and a directory link that is replaced (as Kubernetes does for a ConfigMap).
 *
 * Two ways, because neither suffices: events of the folders are fast, and comparing the state of the files misses nothing.
 */
export class FileWatch implements Disposable {
  readonly #onChange: () => void;
  readonly #times: WatchTimes;
  /** The state of each file when it was last reported, by path. */
  readonly #states = new Map<string, string>();
  readonly #folders = new Map<string, FSWatcher | undefined>();
  #files: readonly string[] = [];
  #timer: NodeJS.Timeout | undefined;
  #isChecking = false;
  /** True if an event arrived during a check. */
  #isDue = false;
  #isClosed = false;

  /** @param onChange runs after one or more of the files have changed. */
  constructor(onChange: () => void, times: WatchTimes = { pollMs: POLL_MS, settleMs: SETTLE_MS }) {
    this.#onChange = onChange;
    this.#times = times;
  }

  /**
   * Sets the files to watch. Resolves when their current states are known: every later change is reported. A file that was
   * watched before keeps its last reported state.
   */
  async setFiles(files: readonly string[]): Promise<void> {
    this.#files = [...new Set(files)];
    for (const file of this.#states.keys()) if (!this.#files.includes(file)) this.#states.delete(file);
    for (const file of this.#files) {
      const state = await stateOf(file);
      if (!this.#states.has(file)) this.#states.set(file, state);
    }
    this.#watchFolders();
    this.#schedule(this.#times.pollMs);
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const watcher of this.#folders.values()) watcher?.close();
    this.#folders.clear();
  }

  #watchFolders(): void {
    if (this.#isClosed) return;
    const wanted = new Set(this.#files.map((file) => dirname(file)));
    for (const [folder, watcher] of this.#folders) {
      if (wanted.has(folder) && watcher !== undefined) continue;
      watcher?.close();
      this.#folders.delete(folder);
    }
    for (const folder of wanted) {
      if (!this.#folders.has(folder)) this.#folders.set(folder, this.#watchFolder(folder));
    }
  }

  /** Returns undefined if the system has no events for the folder; its files are then only compared. */
  #watchFolder(folder: string): FSWatcher | undefined {
    try {
      const watcher = watch(folder, { persistent: false }, () => this.#onEvent());
      watcher.on('error', () => {
        watcher.close();
        if (this.#folders.get(folder) === watcher) this.#folders.set(folder, undefined);
      });
      return watcher;
    } catch {
      return undefined;
    }
  }

  #onEvent(): void {
    if (this.#isChecking) this.#isDue = true;
    else this.#schedule(this.#times.settleMs);
  }

  #schedule(delayMs: number): void {
    clearTimeout(this.#timer);
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => void this.#check(), delayMs).unref();
  }

  async #check(): Promise<void> {
    this.#isChecking = true;
    this.#isDue = false;
    const before = await this.#changedStates();
    let isChanged = false;
    if (before.size > 0) {
      await new Promise((resolve) => setTimeout(resolve, this.#times.settleMs).unref());
      const after = await this.#changedStates();
      // Otherwise a file is still being written, and is checked again.
      isChanged = after.size > 0 && [...after].every(([file, state]) => before.get(file) === state);
      if (isChanged) for (const [file, state] of after) this.#states.set(file, state);
      else if (after.size > 0) this.#isDue = true;
    }
    this.#isChecking = false;
    // A removed folder may be there again.
    this.#watchFolders();
    this.#schedule(this.#isDue ? this.#times.settleMs : this.#times.pollMs);
    if (isChanged && !this.#isClosed) this.#onChange();
  }

  /** Resolves with the states that differ from the reported ones, by path. */
  async #changedStates(): Promise<ReadonlyMap<string, string>> {
    const states = await Promise.all(this.#files.map(async (file) => [file, await stateOf(file)] as const));
    return new Map(states.filter(([file, state]) => this.#states.has(file) && this.#states.get(file) !== state));
  }
}

/** Resolves with a text that changes with every change of the file behind a path. Empty while there is none. */
async function stateOf(file: string): Promise<string> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(file, { bigint: true });
    return `${dev} ${ino} ${size} ${mtimeNs} ${ctimeNs}`;
  } catch {
    return '';
  }
}
