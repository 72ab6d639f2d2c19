import { createHash } from 'node:crypto';
import { LIMITS } from '../../limits.ts';
import { contentState } from './file-state.ts';
import { type FileProblem, fileProblemText, readPieces } from './ordinary-file.ts';

/** A file of a config: its bytes, or the reason why there are none. */
export type ConfigFile = { readonly kind: 'found'; readonly bytes: Buffer; readonly mode: number } | FileProblem;

/** Stands for a file that is read next. */
const UNREAD: FileProblem = { kind: 'failed', code: 'not read yet' };

/** Returns the limit of a config file itself, by its name. */
export function configLimitBytes(file: string): number {
  return isJsonFile(file) ? LIMITS.configJsonFileBytes : LIMITS.configFileBytes;
}

/** Returns whether a file is JSON by its name. */
export function isJsonFile(file: string): boolean {
  return /\.jsonc?$/i.test(file);
}

/** The files of one config. They are read without blocking, and a config is then built from them in one turn of the event loop. */
export class ConfigFiles {
  readonly #files = new Map<string, ConfigFile>();
  /** The state of each file that was read or is not there, by path. */
  readonly #states = new Map<string, string>();
  /** Files that were asked for and are not read yet. */
  readonly #wanted = new Map<string, { readonly path: string; readonly limitBytes: number }>();
  #bytes = 0;

  get #isComplete(): boolean {
    return this.#wanted.size === 0;
  }

  /** Returns a file. One that is not read yet cannot be used, and is wanted from now on. */
  get(path: string, limitBytes: number): ConfigFile {
    const key = `${limitBytes} ${path}`;
    const file = this.#files.get(key);
    if (file === undefined) this.#wanted.set(key, { path, limitBytes });
    return file ?? UNREAD;
  }

  /** Returns the state by which a change of a file is noticed; undefined if it is unknown. */
  stateOf(path: string): string | undefined {
    return this.#states.get(path);
  }

  /** Reads all wanted files. Rejects only for a mistake of the program. */
  async readWanted(): Promise<void> {
    for (const [key, { path, limitBytes }] of this.#wanted) {
      this.#files.set(key, await this.#read(path, limitBytes));
      this.#wanted.delete(key);
    }
  }

  /**
   * Builds something from files whose paths are known only while it is built. It is built again until no further file is wanted; all results but the last
   * one are thrown away, and what `build` throws likewise.
   */
  async build<T>(build: () => T): Promise<T> {
    for (;;) {
      try {
        const built = build();
        if (this.#isComplete) return built;
      } catch (thrown) {
        if (this.#isComplete) throw thrown;
      }
      await this.readWanted();
    }
  }

  async #read(path: string, limitBytes: number): Promise<ConfigFile> {
    const leftBytes = LIMITS.configTotalBytes - this.#bytes;
    const pieces: Buffer[] = [];
    const found = await readPieces(path, Math.min(limitBytes, leftBytes), (piece) => pieces.push(piece));
    if (found.kind === 'too-large')
      return leftBytes < limitBytes ? { kind: 'beyond-total', limitBytes: LIMITS.configTotalBytes } : found;
    if (found.kind === 'failed') this.#states.set(path, fileProblemText(found));
    if (found.kind !== 'found') return found;
    const bytes = Buffer.concat(pieces);
    this.#bytes += bytes.length;
    this.#states.set(path, contentState(found, createHash('sha256').update(bytes).digest('hex')));
    return { kind: 'found', bytes, mode: found.mode };
  }
}
