import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { Child } from '../support/child.ts';

const POLL_MS = 50;

function accepts(port: number): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect(port, '127.0.0.1');
  socket.once('connect', () => resolve(true));
  socket.once('error', () => resolve(false));
  return promise.finally(() => socket.destroy());
}

/** Waits until something listens on a port. @throws {Error} with the log, if the program ends or takes too long. */
export async function listening(child: Child, port: number, limitMs: number): Promise<void> {
  const deadline = Date.now() + limitMs;
  while (!(await accepts(port))) {
    if (!child.running || Date.now() > deadline) throw new Error(`nothing listens on ${port}:\n${child.logs()}`);
    await delay(POLL_MS);
  }
}
