import type { RawObject } from '../../json/json.ts';
import { detach } from '../../json/kept-text.ts';
import type { Exchange } from '../exchange/exchange.ts';
import type { TaskSite } from './task-driver.ts';

/** The longest that a connection is kept for a task nobody asks about. */
const HOLD_MS = 3_600_000;

/** Keeps the connection while its upstream works on the task, though nothing is asked on it. Progress is told meanwhile. */
export function hold(site: TaskSite, state: RawObject, owner: Exchange): void {
  const ttlMs = Number(state.raw('ttl') ?? Infinity);
  site.link.tasks.set(detach(site.task), owner);
  setTimeout(() => release(site), Math.min(HOLD_MS, Number.isFinite(ttlMs) ? ttlMs : HOLD_MS)).unref();
}

/** The task has ended, and what came of it was told. */
export function release({ link, task }: TaskSite): void {
  const owner = link.tasks.get(task);
  if (owner === undefined) return;
  link.tasks.delete(task);
  link.connection.forgetProgress(owner);
}
