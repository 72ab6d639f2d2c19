import { addAbortListener } from 'node:events';
import type { Level } from '../../telemetry/metrics.ts';
import { FairPool, ONE_PRINCIPAL, type PoolWaiter, type SharedPool, type Shares } from './fair-pool.ts';

export interface QuotaRequest {
  /** Key of the principal that needs the connection; `''` for the gateway itself. */
  readonly principal: string;
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

/** A connection of a quota, or one of each of several. */
export interface ConnectionPermit {
  /** Gives the connection back. Has no effect the second time. */
  release(): void;
  /** Counts the connection for another principal, which uses it from now on. */
  assign(principal: string): void;
}

export interface QuotaOptions {
  readonly limit: number;
  /** A sentence for clients: which limit was reached, and how to raise it. */
  readonly refusal: string;
  readonly gauge?: Level;
  readonly pool?: SharedPool;
  readonly shares?: Shares;
}

interface Waiter extends PoolWaiter {
  /** Called with the connection, or with `undefined` if the request is refused. */
  readonly resolve: (permit: ConnectionPermit | undefined) => void;
}

/**
 * A bound on the number of connections (for stdio: processes), which principals share. If none is free for a principal, its request
 * waits. A connection that serves a client is never closed for another client; a connection that serves no client is closed.
 */
export class ConnectionQuota {
  #limit: number;
  #refusal: string;
  readonly #gauge: Level | undefined;
  readonly #spares = new Set<() => (() => Promise<void>) | undefined>();
  readonly #name: SharedPool;
  readonly #shares: Shares;
  /** Each client request waits at most once, so the limits on requests also bound the waiting ones. */
  readonly #pool: FairPool<Waiter>;
  /** Number of connections that are being closed for waiting requests. */
  #closing = 0;

  constructor({ limit, refusal, gauge, pool = 'connections', shares = ONE_PRINCIPAL }: QuotaOptions) {
    this.#limit = limit;
    this.#refusal = refusal;
    this.#gauge = gauge;
    this.#name = pool;
    this.#shares = shares;
    this.#pool = new FairPool(shares, limit);
  }

  /** Returns the reason why a principal gets no connection, and counts the refusal of one above its share. */
  refuse(principal: string): string {
    if (!this.#pool.hasFree) return this.#refusal;
    this.#shares.onRefused(this.#name);
    const used = this.#pool.usedBy(principal);
    return `you have ${used} of ${this.#limit} ${this.#name}, and the rest is kept for other clients; end sessions, or try again later`;
  }

  /** Sets another bound. A lower one closes no connection in use. A higher one serves waiting requests at once. */
  setLimit({ limit, refusal }: Pick<QuotaOptions, 'limit' | 'refusal'>): void {
    this.#limit = limit;
    this.#refusal = refusal;
    this.#pool.setCapacity(limit);
    this.#serveWaiting();
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

  /** Takes one connection. Resolves with undefined if none became free in time. */
  async acquire({ principal, waitMs, signal }: QuotaRequest): Promise<ConnectionPermit | undefined> {
    if (this.#pool.hasRoomFor(principal)) {
      this.#pool.take(principal);
      return this.#permit(principal);
    }
    if (this.#limit === 0 || signal.aborted) return undefined;
    const waiting = Promise.withResolvers<ConnectionPermit | undefined>();
    const waiter = { principal, resolve: waiting.resolve };
    const refuse = () => {
      if (this.#pool.stopWaiting(waiter)) waiting.resolve(undefined);
    };
    this.#pool.wait(waiter);
    const timer = setTimeout(refuse, waitMs);
    using _aborting = addAbortListener(signal, refuse);
    this.closeSpares();
    try {
      return await waiting.promise;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Closes connections without a client, as many as there are waiting requests. */
  closeSpares(): void {
    while (this.#closing < this.#pool.waitingCount) {
      const close = this.#spares
        .values()
        .map((spare) => spare())
        .find((found) => found !== undefined);
      if (close === undefined) return;
      this.#closing++;
      void close().finally(() => this.#closing--);
    }
  }

  /** Returns a connection that was taken from the pool. */
  #permit(principal: string): ConnectionPermit {
    this.#gauge?.add();
    let owner: string | undefined = principal;
    return {
      release: () => {
        if (owner === undefined) return;
        this.#gauge?.remove();
        this.#pool.release(owner);
        owner = undefined;
        this.#serveWaiting();
      },
      assign: (to) => {
        if (owner === undefined) return;
        this.#pool.move(owner, to);
        owner = to;
      },
    };
  }

  /** Serves the earliest request of each principal that gets a connection. */
  #serveWaiting(): void {
    for (let next = this.#pool.takeNext(); next !== undefined; next = this.#pool.takeNext()) {
      next.resolve(this.#permit(next.principal));
    }
  }
}
