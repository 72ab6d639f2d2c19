import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { fileProblemText, type FileFound, readPieces } from './ordinary-file.ts';
import { systemCode } from '../../thrown.ts';

/** A larger file is judged by its size and times. No file that the gateway reads is larger. */
const HASHED_BYTES = 67_108_864;
/** A file may change again without a change of its times, for as long as the clock of its file system stands still. */
const CLOCK_MS = 2_000;

/** Reads the state of one file, and its content only if its times or its inode have changed. */
export class FileState {
  readonly #path: string;
  /** Size, times and inode of the file whose content was read; undefined if its content must be read again. */
  #seen: string | undefined;
  #state = '';

  constructor(path: string) {
    this.#path = path;
  }

  /** Resolves with a text that changes with the content, the mode and the owner of the file. Also says why there is none. */
  async read(): Promise<string> {
    const nowMs = Date.now();
    try {
      const { dev, ino, size, mtimeNs, ctimeNs, mode, uid } = await stat(this.#path, { bigint: true });
      const seen = [dev, ino, size, mtimeNs, ctimeNs, mode, uid].join(' ');
      if (seen === this.#seen) return this.#state;
      this.#state = await this.#contentState(seen);
      this.#seen = nowMs - Number(ctimeNs / 1_000_000n) > CLOCK_MS ? seen : undefined;
    } catch (thrown) {
      const code = systemCode(thrown);
      if (code === undefined) throw thrown;
      this.#seen = undefined;
      this.#state = fileProblemText({ kind: 'failed', code });
    }
    return this.#state;
  }

  async #contentState(seen: string): Promise<string> {
    const hash = createHash('sha256');
    const found = await readPieces(this.#path, HASHED_BYTES, (piece) => hash.update(piece));
    if (found.kind === 'found') return contentState(found, hash.digest('hex'));
    return found.kind === 'failed' ? fileProblemText(found) : seen;
  }
}

/** Returns the state of a file that was read. @param hash SHA-256 of its content. */
export function contentState({ mode, uid }: FileFound, hash: string): string {
  return `${mode} ${uid} ${hash}`;
}
