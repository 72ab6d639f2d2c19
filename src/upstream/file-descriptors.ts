import { readFileSync } from 'node:fs';

/** Where the system does not tell. */
const USUAL_OPEN_FILES = 1_024;

/** Kept for listeners, files, pipes of processes and connections that are not counted. */
const RESERVED = 256;

/** Of a connection: its event stream, a request under way, and the connection of the client that it serves. */
const FILES_PER_CONNECTION = 3;

/** Returns how many files, sockets included, this process may have open at once (`ulimit -n`). */
export function openFilesLimit(): number {
  try {
    const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return Number(soft ?? USUAL_OPEN_FILES);
  } catch {
    return USUAL_OPEN_FILES;
  }
}

/** Returns how many connections to remote upstreams fit into this many open files. */
export function remoteConnections(openFiles: number): number {
  return Math.max(1, Math.floor((openFiles - RESERVED) / FILES_PER_CONNECTION));
}
