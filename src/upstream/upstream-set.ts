import type { LinkUser } from './link/link.ts';
import type { Upstream } from './upstream.ts';

/** The upstreams of a gateway, by id. Members can be added, replaced and removed while calls are in flight. */
export class UpstreamSet<Context, User extends LinkUser> {
  readonly #members = new Map<string, Upstream<Context, User>>();
  /** Removed members that are not stopped yet. */
  readonly #leaving = new Set<Upstream<Context, User>>();

  /** Returns the member of this id: the upstream that new calls go to. */
  get(id: string): Upstream<Context, User> | undefined {
    return this.#members.get(id);
  }

  has(id: string): boolean {
    return this.#members.has(id);
  }

  values(): Iterable<Upstream<Context, User>> {
    return this.#members.values();
  }

  /** Returns the upstream of this id, also one that was removed and still finishes requests. */
  getEvenIfLeaving(id: string): Upstream<Context, User> | undefined {
    return this.#members.get(id) ?? this.#leaving.values().find((upstream) => upstream.id === id);
  }

  /**
   * Returns the upstream of this id that runs the task: the member, unless one that it has replaced still runs it.
   *
   * @param isOwn tells by the call that has created a task whether it is the wanted one: two processes may choose the same id.
   */
  withTask(id: string, task: string, isOwn: (creator: Context) => boolean): Upstream<Context, User> | undefined {
    for (const upstream of this.#leaving) {
      if (upstream.id !== id) continue;
      for (const link of upstream.links()) {
        const running = link.tasks.get(task);
        if (running !== undefined && isOwn(running.owner)) return upstream;
      }
    }
    return this.#members.get(id);
  }

  /** Returns the members that were removed or replaced and still finish requests. */
  leaving(): Iterable<Upstream<Context, User>> {
    return this.#leaving;
  }

  /** Puts the members into the order of these ids, which must name all of them. */
  arrange(ids: Iterable<string>): void {
    for (const id of ids) {
      const upstream = this.#member(id);
      this.#members.delete(id);
      this.#members.set(id, upstream);
    }
  }

  /** Adds an upstream. @throws {RangeError} if there is one with this id. */
  add(upstream: Upstream<Context, User>): void {
    if (this.#members.has(upstream.id)) throw new RangeError(`upstream "${upstream.id}" exists already`);
    this.#members.set(upstream.id, upstream);
  }

  /**
   * Replaces the upstream with the same id. New calls go to the new upstream. The old one is stopped when its calls have ended,
   * at the latest after `drainMs`. Resolves when it is stopped, with the number of connections that were still in use.
   *
   * @throws {RangeError} if there is none with this id.
   */
  async replace(upstream: Upstream<Context, User>, drainMs: number): Promise<number> {
    const before = this.#member(upstream.id);
    this.#members.set(upstream.id, upstream);
    return await this.#stop(before, drainMs);
  }

  /**
   * Removes an upstream. It gets no new calls, and is stopped when its calls have ended, at the latest after `drainMs`. Resolves
   * when it is stopped, with the number of connections that were still in use.
   *
   * @throws {RangeError} if there is none with this id.
   */
  async remove(id: string, drainMs: number): Promise<number> {
    const upstream = this.#member(id);
    this.#members.delete(id);
    return await this.#stop(upstream, drainMs);
  }

  /** Stops every upstream, including those that are being drained. Resolves when all are stopped, in bounded time. */
  async stop(): Promise<void> {
    await Promise.all([...this.#members.values(), ...this.#leaving].map((upstream) => upstream.stop()));
  }

  #member(id: string): Upstream<Context, User> {
    const upstream = this.#members.get(id);
    if (upstream === undefined) throw new RangeError(`there is no upstream "${id}"`);
    return upstream;
  }

  async #stop(upstream: Upstream<Context, User>, drainMs: number): Promise<number> {
    upstream.retire();
    this.#leaving.add(upstream);
    try {
      const busy = await upstream.drain(drainMs);
      await upstream.stop();
      return busy;
    } finally {
      this.#leaving.delete(upstream);
    }
  }
}
