import type { LinkUser } from './link/link.ts';
import type { Upstream } from './upstream.ts';

/** The upstreams of a gateway, by id. Members can be added, replaced and removed while calls are in flight. */
export class UpstreamSet<Owner, User extends LinkUser> {
  readonly #members = new Map<string, Upstream<Owner, User>>();
  /** Removed members that are not stopped yet. */
  readonly #leaving = new Set<Promise<void>>();

  get(id: string): Upstream<Owner, User> | undefined {
    return this.#members.get(id);
  }

  has(id: string): boolean {
    return this.#members.has(id);
  }

  values(): Iterable<Upstream<Owner, User>> {
    return this.#members.values();
  }

  /** Adds an upstream. @throws {RangeError} if there is one with this id. */
  add(upstream: Upstream<Owner, User>): void {
    if (this.#members.has(upstream.id)) throw new RangeError(`upstream "${upstream.id}" exists already`);
    this.#members.set(upstream.id, upstream);
  }

  /**
   * Replaces the upstream with the same id. New calls go to the new upstream. The old one is stopped when its calls have ended,
   * at the latest after `drainMs`. Resolves when it is stopped.
   *
   * @throws {RangeError} if there is none with this id.
   */
  async replace(upstream: Upstream<Owner, User>, drainMs: number): Promise<void> {
    const before = this.#member(upstream.id);
    this.#members.set(upstream.id, upstream);
    await this.#stop(before, drainMs);
  }

  /**
   * Removes an upstream. It gets no new calls, and is stopped when its calls have ended, at the latest after `drainMs`. Resolves
   * when it is stopped.
   *
   * @throws {RangeError} if there is none with this id.
   */
  async remove(id: string, drainMs: number): Promise<void> {
    const upstream = this.#member(id);
    this.#members.delete(id);
    await this.#stop(upstream, drainMs);
  }

  /** Stops every upstream, including those that are being drained. Resolves when all are stopped, in bounded time. */
  async stop(): Promise<void> {
    await Promise.all([...this.#members.values()].map((upstream) => upstream.stop()));
    await Promise.all(this.#leaving);
  }

  #member(id: string): Upstream<Owner, User> {
    const upstream = this.#members.get(id);
    if (upstream === undefined) throw new RangeError(`there is no upstream "${id}"`);
    return upstream;
  }

  async #stop(upstream: Upstream<Owner, User>, drainMs: number): Promise<void> {
    const stopping = upstream
      .drain(drainMs)
      .then(() => upstream.stop())
      .finally(() => this.#leaving.delete(stopping));
    this.#leaving.add(stopping);
    await stopping;
  }
}
