import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Ports below those that systems choose for port 0 and for outgoing connections (Linux: 32768, others: 49152), so that
 * nothing takes the port before its program does, nor while its program starts again.
 */
const LOWEST = 20_000;
const HIGHEST = 32_000;
const TRIES = 100;
/** Ports that this process has tried: programs that start at the same time must not get one port. */
const given = new Set<number>();

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening');
  } catch {
    return false;
  }
  await once(server.close(), 'close');
  return true;
}

/** Returns a port of 127.0.0.1 that is free now, for programs that cannot choose one themselves. @throws {Error} if it finds none. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < TRIES; tries++) {
    const port = LOWEST + Math.floor(Math.random() * (HIGHEST - LOWEST));
    if (given.has(port)) continue;
    given.add(port);
    if (await isFree(port)) return port;
  }
  throw new Error(`no free port among ${TRIES} between ${LOWEST} and ${HIGHEST}`);
}
