import { GatewayError } from '../errors.ts';
import type { Level } from '../telemetry/metrics.ts';

/** A request for one connection of a quota. */
export interface QuotaRequest {
  /** Key of the principal that needs the connection; `''` for the gateway itself. */
  readonly principal: string;
  /** Longest wait for a free connection, in milliseconds. */
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

/** The bound of a quota, and its refusal. */
export interface QuotaOptions {
  readonly limit: number;
  /** A sentence for clients: which limit was reached, and how to raise it. */
  readonly refusal: string;
  readonly gauge?: Level;
}

/** A request that waits for a connection. */
interface Waiter {
  readonly principal: string;
  /** Called with the release function, or with `undefined` if the request is refused. */
  readonly resolve: (release: (() => void) | undefined) => void;
}

/**
 * A bound on the number of connections (for stdio: processes). If all are in use, a request waits until one is free. A
 * connection that serves a client is never closed for another client; a connection that serves no client is closed.
 */
export class ConnectionQuota {
  #limit: number;
  #refusal: string;
  readonly #gauge: Level | undefined;
  readonly #spares = new Set<() => (() => Promise<void>) | undefined>();
  /** In the order of arrival. Each client request waits at most once, so the limits on requests also bound this set. */
  readonly #waiters = new Set<Waiter>();
  readonly #usedBy = new Map<string, number>();
  #used = 0;
  /** Number of connections that are being closed for waiting requests. */
  #closing = 0;

  constructor({ limit, refusal, gauge }: QuotaOptions) {
    this.#limit = limit;
    this.#refusal = refusal;
    this.#gauge = gauge;
  }

  get limit(): number {
    return this.#limit;
  }

  get refusal(): string {
    return this.#refusal;
  }

  /** Sets another bound. A lower one closes no connection in use. A higher one serves waiting requests at once. */
  setLimit({ limit, refusal }: Pick<QuotaOptions, 'limit' | 'refusal'>): void {
    this.#limit = limit;
    this.#refusal = refusal;
    while (this.#used < this.#limit && this.#waiters.size > 0) this.#serveNext();
  }

  /**
   * Adds an upstream to the quota. Returns a function that removes it.
   *
   * @param spare returns a function that closes a connection without a client; undefined if there is none.
   */
  join(spare: () => (() => Promise<void>) | undefined): () => void {
    this.#spares.add(spare);
    return () => this.#spares.delete(spare);
  }

  /** Takes one connection. Resolves with the function that gives it back, or with undefined if none became free in time. */
  async acquire({ principal, waitMs, signal }: QuotaRequest): Promise<(() => void) | undefined> {
    if (this.#used < this.#limit && this.#waiters.size === 0) return this.#take(principal);
    if (this.#limit === 0 || signal.aborted) return undefined;
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

  /** Closes connections without a client, as many as there are waiting requests. */
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
      if (this.#used < this.#limit) this.#serveNext();
    };
  }

  /** Serves the waiting request whose principal has the fewest connections; the earliest of them. */
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
 * Takes one connection of each quota. Resolves with the function that gives them back.
 *
 * @throws {GatewayError} `overloaded` if one of the quotas had no free connection in time.
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
