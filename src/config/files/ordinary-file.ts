import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { systemCode } from '../../thrown.ts';

/** The largest piece of a file that is read at once, and the smallest: some file systems report no size. */
const PIECE_BYTES = 262_144;
const LEAST_PIECE_BYTES = 4_096;

/** The reason why a file was not read. */
export type FileProblem =
  | { readonly kind: 'failed'; readonly code: string }
  | { readonly kind: 'not-ordinary' }
  | { readonly kind: 'too-large'; readonly limitBytes: number }
  /** The file and those that were read before are larger together. */
  | { readonly kind: 'beyond-total'; readonly limitBytes: number };

/** A file that was read as a whole. */
export interface FileFound {
  readonly kind: 'found';
  readonly mode: number;
  readonly uid: number;
}

/**
 * Reads an ordinary file of limited size, piece by piece. Reads nothing of a folder, a pipe, a socket, a device or a file that is too large.
 * Never rejects for what the file system says.
 */
export async function readPieces(
  path: string,
  limitBytes: number,
  onPiece: (piece: Buffer) => void,
): Promise<FileFound | FileProblem> {
  try {
    // Without blocking, because a pipe without a writer would stop the thread.
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const found = await file.stat();
    if (!found.isFile()) return { kind: 'not-ordinary' };
    const { size, mode, uid } = found;
    const isWhole = size <= limitBytes && (await readUpTo(file, limitBytes, size, onPiece));
    return isWhole ? { kind: 'found', mode, uid } : { kind: 'too-large', limitBytes };
  } catch (thrown) {
    const code = systemCode(thrown);
    if (code === undefined) throw thrown;
    return { kind: 'failed', code };
  }
}

/** Resolves with false if the file is larger than its size said, and than the limit. */
async function readUpTo(
  file: FileHandle,
  limitBytes: number,
  size: number,
  onPiece: (piece: Buffer) => void,
): Promise<boolean> {
  const pieceBytes = Math.min(PIECE_BYTES, Math.max(LEAST_PIECE_BYTES, size + 1));
  for (let total = 0; total <= limitBytes;) {
    const piece = Buffer.allocUnsafe(pieceBytes);
    const { bytesRead } = await file.read(piece, 0, pieceBytes);
    if (bytesRead === 0) return true;
    total += bytesRead;
    onPiece(piece.subarray(0, bytesRead));
  }
  return false;
}

/** Returns a clause without a subject, such as `cannot be read (EIO)`. */
export function fileProblemText(problem: FileProblem): string {
  switch (problem.kind) {
    case 'failed':
      if (problem.code === 'ENOENT') return 'does not exist';
      if (problem.code === 'EACCES') return 'cannot be read by this user (EACCES); check its owner and mode';
      return `cannot be read (${problem.code})`;
    case 'not-ordinary':
      return 'is no ordinary file, but a folder, a pipe, a socket or a device';
    case 'too-large':
      return `is larger than ${sizeText(problem.limitBytes)}`;
    case 'beyond-total':
      return `makes all files of this config larger than ${sizeText(problem.limitBytes)} together`;
  }
}

function sizeText(bytes: number): string {
  return bytes >= 1_048_576 ? `${bytes / 1_048_576} MiB` : `${bytes / 1_024} KiB`;
}
