import type { View } from '../../catalog/view.ts';
import type { RawObject } from '../../json/json.ts';
import { detach } from '../../json/kept-text.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import type { Caller } from '../front/caller.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import type { Exchange } from '../exchange/exchange.ts';
import type { InputRounds } from '../exchange/input-rounds.ts';
import { NULL_SINK, OpenExchange } from '../exchange/open-exchange.ts';
import { ModernClient } from '../clients/modern-client.ts';
import type { TaskSite } from './task-driver.ts';

/** The longest time that a link is kept open for a task. */
const HOLD_MS = 3_600_000;

/**
 * Returns an exchange that represents a modern client between its requests about a task. The call that has created the task would
 * keep its text as long as the task.
 *
 * @param view by which the call was routed.
 * @param rounds the questions about the task; undefined if the client is asked in the state of the task only.
 */
export function taskExchange(
  caller: Caller,
  holder: ConnectionHolder,
  view: View | undefined,
  rounds?: InputRounds,
): OpenExchange {
  const call = { kind: 'request', id: '0', method: 'tools/call', params: undefined } as const;
  const exchange = new OpenExchange(new ModernClient(caller, holder, undefined, rounds), holder, call, NULL_SINK);
  exchange.view = view;
  return exchange;
}

/**
 * Keeps the link open, and routes progress, while the upstream works on a task that nobody polls.
 *
 * @param onLimit runs when the oldest task of the link is released for this one.
 */
export function hold(site: TaskSite, state: RawObject, owner: Exchange, onLimit: (limit: LimitName) => void): void {
  const ttlMs = Number(state.raw('ttl') ?? state.raw('ttlMs') ?? Infinity);
  const { link } = site;
  if (link.connection.isClosed) return;
  const task = detach(site.task);
  release({ link, task });
  const forMs = Math.min(HOLD_MS, Number.isFinite(ttlMs) ? ttlMs : HOLD_MS);
  link.tasks.set(task, { owner, timer: setTimeout(() => release({ link, task }), forMs).unref() });
  const [oldest] = link.tasks.keys();
  if (link.tasks.size <= LIMITS.tasksPerConnection || oldest === undefined) return;
  onLimit('tasksPerConnection');
  release({ link, task: oldest });
}

/** Releases the link after the client has got the outcome of the task. */
export function release({ link, task }: Pick<TaskSite, 'link' | 'task'>): void {
  const running = link.tasks.get(task);
  if (running === undefined) return;
  link.tasks.delete(task);
  clearTimeout(running.timer);
  link.connection.forgetProgress(running.owner);
}
