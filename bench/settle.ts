import { setTimeout as delay } from 'node:timers/promises';
import { cpuTimes, cpuUs } from './process-cost.ts';

const INTERVAL_MS = 500;
/** A process that uses less CPU than this in an interval is idle. */
const REST_US = 15_000;
const LONGEST_MS = 60_000;

/** Resolves when a process has used next to no CPU for half a second, or after a minute. */
export async function waitUntilIdle(pid: number): Promise<void> {
  const untilMs = performance.now() + LONGEST_MS;
  let before = cpuTimes([pid]);
  while (performance.now() < untilMs) {
    await delay(INTERVAL_MS);
    const now = cpuTimes([pid]);
    if (cpuUs(before, now) < REST_US) return;
    before = now;
  }
}

/** Returns the seconds of CPU that a process has used since it started. */
export function cpuSeconds(pid: number): number {
  return cpuUs(new Map(), cpuTimes([pid])) / 1e6;
}
