import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { openOrdinary } from './ordinary-file.ts';

/** A larger file is judged by its size and times. No file that the gateway reads is larger. */
const HASHED_BYTES = 67_108_864;
const PIECE_BYTES = 65_536;
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
      const found = await stat(this.#path, { bigint: true });
      const { dev, ino, size, mtimeNs, ctimeNs, mode, uid } = found;
      const seen = [dev, ino, size, mtimeNs, ctimeNs, mode, uid].join(' ');
      if (seen === this.#seen) return this.#state;
      const isHashed = found.isFile() && size <= HASHED_BYTES;
      this.#state = `${mode} ${uid} ${isHashed ? await contentHash(this.#path) : seen}`;
      this.#seen = nowMs - Number(ctimeNs / 1_000_000n) > CLOCK_MS ? seen : undefined;
    } catch (thrown) {
      this.#seen = undefined;
      this.#state = thrown instanceof Error && 'code' in thrown ? String(thrown.code) : String(thrown);
    }
    return this.#state;
  }
}

async function contentHash(path: string): Promise<string> {
  const { file } = await openOrdinary(path);
  try {
    const hash = createHash('sha256');
    const piece = Buffer.allocUnsafe(PIECE_BYTES);
    for (;;) {
      const { bytesRead } = await file.read(piece, 0, PIECE_BYTES);
      if (bytesRead === 0) return hash.digest('hex');
      hash.update(piece.subarray(0, bytesRead));
    }
  } finally {
    await file.close();
  }
}
