import type { RawObject } from '../../json/json.ts';
import { detach } from '../../json/kept-text.ts';
import type { Exchange } from '../exchange/exchange.ts';
import type { TaskSite } from './task-driver.ts';

/** The longest time that a link is kept open for a task. */
const HOLD_MS = 3_600_000;

/** Keeps the link open, and routes progress, while the upstream works on a task that nobody polls. */
export function hold(site: TaskSite, state: RawObject, owner: Exchange): void {
  const ttlMs = Number(state.raw('ttl') ?? Infinity);
  site.link.tasks.set(detach(site.task), owner);
  setTimeout(() => release(site), Math.min(HOLD_MS, Number.isFinite(ttlMs) ? ttlMs : HOLD_MS)).unref();
}

/** Releases the link after the client has got the outcome of the task. */
export function release({ link, task }: TaskSite): void {
  const owner = link.tasks.get(task);
  if (owner === undefined) return;
  link.tasks.delete(task);
  link.connection.forgetProgress(owner);
}
