import { upstreamError } from '../errors.ts';
import { LOOP_FAILURES, LOOP_PAUSE_MS, LOOP_WINDOW_MS } from './lifecycle/lifecycle.ts';
import type { Link } from './link/link.ts';

interface Crash {
  readonly principal: string;
  readonly atMs: number;
}

/** Counts the processes of an upstream that calls of single principals have ended. A principal in a crash loop gets no new process for a while. */
export class Crashes {
  /** Those of the last minute. There are not many, since a principal in a loop starts no process. */
  #recent: readonly Crash[] = [];

  /**
   * Records a process that has ended before it answered a call. Returns whether only calls of one principal have ended processes in the last
   * minute. That says nothing about the processes of others.
   */
  record({ calls, place, users }: Link): boolean {
    const [user] = users;
    if (user === undefined || calls === 0 || (place.purpose !== 'clients' && place.purpose !== 'call')) return false;
    const { principal } = user;
    const atMs = performance.now();
    this.#recent = [...this.#recent.filter((crash) => atMs - crash.atMs < LOOP_WINDOW_MS), { principal, atMs }];
    return this.#recent.every((crash) => crash.principal === principal);
  }

  /** @throws {GatewayError} `upstream-unavailable` if the principal is in a crash loop. */
  assertNoLoop(upstream: string, principal: string): void {
    const own = this.#recent.filter((crash) => crash.principal === principal);
    const last = own.at(-1);
    if (last === undefined || own.length < LOOP_FAILURES) return;
    const waitMs = last.atMs + LOOP_PAUSE_MS - performance.now();
    if (waitMs <= 0) return;
    const event = `is not available: calls of this principal have ended its process ${LOOP_FAILURES} times within a minute`;
    throw upstreamError('upstream-unavailable', upstream, event, { data: { retryAfterMs: Math.ceil(waitMs) } });
  }
}
