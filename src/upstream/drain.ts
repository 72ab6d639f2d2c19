import { setTimeout as sleep } from 'node:timers/promises';
import { upstreamError } from '../errors.ts';
import type { ConcurrencyLimiter } from './quota/concurrency-limiter.ts';
import { isWorking, type Link } from './link/link.ts';
import { settlesWithin } from '../deadline.ts';

/** The interval at which parked calls, tasks and questions are looked for. They hold no slot of the limiter. */
const POLL_MS = 100;

/**
 * Waits until no request is in flight or in the queue, no call is open and no task is running. It waits at most this long (ms). Then fails
 * the calls that are still under way. Resolves with the number of connections that were still in use.
 */
export async function drain(limiter: ConcurrencyLimiter, links: Iterable<Link>, limitMs: number): Promise<number> {
  await settlesWithin(whenIdle(limiter, links, performance.now() + limitMs), limitMs);
  const busy = countBusy(links);
  for (const { upstream, connection } of links) {
    const event = 'was removed or replaced by a reload, and the call lasted longer than gateway.reload.drain';
    connection.failCalls(upstreamError('upstream-lost', upstream, event));
  }
  return busy;
}

async function whenIdle(limiter: ConcurrencyLimiter, links: Iterable<Link>, untilMs: number): Promise<void> {
  while (performance.now() < untilMs) {
    await limiter.whenIdle();
    if (countBusy(links) === 0 && limiter.isIdle) return;
    await sleep(POLL_MS, undefined, { ref: false });
  }
}

function countBusy(links: Iterable<Link>): number {
  return [...links].filter(isWorking).length;
}
