import { GatewayError } from '../errors.ts';
import type { Level } from '../telemetry/metrics.ts';

/** Asks for one connection out of a quota. */
export interface QuotaRequest {
  /** Key of the principal that it is for; `''` for the gateway itself. */
  readonly principal: string;
  /** How long it may wait for one to become free. */
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

export interface QuotaOptions {
  readonly limit: number;
  /** Says which limit was reached and how to raise it. Clients read this. */
  readonly refusal: string;
  readonly gauge?: Level;
}

interface Waiter {
  readonly principal: string;
  /** Given `undefined`, it was refused. */
  readonly resolve: (release: (() => void) | undefined) => void;
}

/**
 * A number of connections (for stdio: processes). When all are in use, a request waits until one is free. A connection that
 * serves a client is never closed for another; one that serves no client is.
 */
export class ConnectionQuota {
  readonly limit: number;
  readonly refusal: string;
  readonly #gauge: Level | undefined;
  readonly #spares = new Set<() => (() => Promise<void>) | undefined>();
  /** In the order of arrival. Each request of a client waits at most once, so that limits on requests bound this too. */
  readonly #waiters = new Set<Waiter>();
  readonly #usedBy = new Map<string, number>();
  #used = 0;
  /** Connections that are being closed for waiters. */
  #closing = 0;

  constructor({ limit, refusal, gauge }: QuotaOptions) {
    this.limit = limit;
    this.refusal = refusal;
    this.#gauge = gauge;
  }

  /** @param spare returns a function that closes a connection which serves no client, where there is one. */
  join(spare: () => (() => Promise<void>) | undefined): void {
    this.#spares.add(spare);
  }

  /** Takes one, and returns the function that gives it back. Returns undefined when none became free in time. */
  async acquire({ principal, waitMs, signal }: QuotaRequest): Promise<(() => void) | undefined> {
    if (this.#used < this.limit && this.#waiters.size === 0) return this.#take(principal);
    if (this.limit === 0 || signal.aborted) return undefined;
    const waiting = Promise.withResolvers<(() => void) | undefined>();
    const waiter = { principal, resolve: waiting.resolve };
    const refuse = () => {
      if (this.#waiters.delete(waiter)) waiting.resolve(undefined);
    };
    this.#waiters.add(waiter);
    const timer = setTimeout(refuse, waitMs);
    signal.addEventListener('abort', refuse, { once: true });
    this.closeSpares();
    try {
      return await waiting.promise;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', refuse);
    }
  }

  /** Closes connections that serve no client, where requests wait. */
  closeSpares(): void {
    while (this.#closing < this.#waiters.size) {
      const close = this.#findSpare();
      if (close === undefined) return;
      this.#closing++;
      void close().finally(() => this.#closing--);
    }
  }

  #findSpare(): (() => Promise<void>) | undefined {
    for (const spare of this.#spares) {
      const close = spare();
      if (close !== undefined) return close;
    }
    return undefined;
  }

  #take(principal: string): () => void {
    this.#used++;
    this.#gauge?.add();
    this.#usedBy.set(principal, (this.#usedBy.get(principal) ?? 0) + 1);
    let isTaken = true;
    return () => {
      if (!isTaken) return;
      isTaken = false;
      this.#used--;
      this.#gauge?.remove();
      const left = (this.#usedBy.get(principal) ?? 1) - 1;
      if (left === 0) this.#usedBy.delete(principal);
      else this.#usedBy.set(principal, left);
      this.#serveNext();
    };
  }

  /** The first request of the principal that has the fewest connections comes next. */
  #serveNext(): void {
    let next: Waiter | undefined;
    for (const waiter of this.#waiters) {
      if (next === undefined || this.#countOf(waiter) < this.#countOf(next)) next = waiter;
    }
    if (next === undefined) return;
    this.#waiters.delete(next);
    next.resolve(this.#take(next.principal));
  }

  #countOf({ principal }: Waiter): number {
    return this.#usedBy.get(principal) ?? 0;
  }
}

/**
 * Takes one connection out of each quota, and returns the function that gives them back.
 *
 * @throws {GatewayError} `overloaded`, when one of them had none free in time.
 */
export async function acquireFromAll(
  upstream: string,
  quotas: readonly ConnectionQuota[],
  request: QuotaRequest,
): Promise<() => void> {
  const dueMs = performance.now() + request.waitMs;
  const releases: (() => void)[] = [];
  const releaseAll = () => {
    for (const release of releases) release();
  };
  for (const quota of quotas) {
    const release = await quota.acquire({ ...request, waitMs: Math.max(0, dueMs - performance.now()) });
    if (release === undefined) {
      releaseAll();
      throw new GatewayError('overloaded', { upstream, message: quota.refusal });
    }
    releases.push(release);
  }
  return releaseAll;
}
