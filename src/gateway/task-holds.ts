import type { RawObject } from '../protocol/json.ts';
import type { TaskSite } from './task-driver.ts';

/** The longest that a connection is kept for a task nobody asks about. */
const HOLD_MS = 3_600_000;

/** Keeps the connection while its upstream works on the task, though nothing is asked on it. */
export function hold({ link, task }: TaskSite, state: RawObject): void {
  const ttlMs = Number(state.raw('ttl') ?? Infinity);
  link.tasks.add(task);
  setTimeout(() => link.tasks.delete(task), Math.min(HOLD_MS, Number.isFinite(ttlMs) ? ttlMs : HOLD_MS)).unref();
}

/** The task has ended, and what came of it was told. */
export function release({ link, task }: TaskSite): void {
  link.tasks.delete(task);
}
