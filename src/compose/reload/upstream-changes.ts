import { COMMAND } from '../../command-name.ts';
import type { Config } from '../../config/values/config.ts';
import type { UpstreamConfig } from '../../config/values/upstream-config.ts';
import type { ConfigDiff } from '../../config/changes/diff.ts';
import type { Upstream } from '../../gateway/exchange/connection-holder.ts';
import type { ClientParts } from '../core/clients.ts';
import type { ConnectionParts } from '../core/connections.ts';
import type { CommonParts } from '../core/core-parts.ts';
import type { UpstreamMessageParts } from '../core/upstream-messages.ts';

type UpstreamChangesParts = CommonParts &
  Pick<ConnectionParts, 'offers' | 'links'> &
  Pick<ClientParts, 'holders'> &
  Pick<UpstreamMessageParts, 'factory' | 'resourceCache'>;

/** Returns the reason why an upstream is out of service that an operator disables now. */
export function disabledReason(id: string): string {
  return `an operator has disabled it at ${new Date().toISOString()}; "${COMMAND} restart ${id}" enables it`;
}

/**
 * Changes the set of upstreams while calls are in flight. A restart replaces an upstream by another one with the same config. From the turn
 * of a replacement on, every new call goes to the new upstream. The old one is stopped when its calls have ended, at the latest after the
 * drain.
 */
export class UpstreamChanges {
  readonly #parts: UpstreamChangesParts;
  /** The reasons why operators have disabled upstreams, by id. They outlast a reload that keeps the upstream. */
  readonly #disabled = new Map<string, string>();

  constructor(parts: UpstreamChangesParts) {
    this.#parts = parts;
  }

  /** Returns whether an operator has disabled the upstream. */
  isDisabled(id: string): boolean {
    return this.#disabled.has(id);
  }

  /** Returns the reason why an operator has disabled the upstream; undefined if none has. */
  reasonOf(id: string): string | undefined {
    return this.#disabled.get(id);
  }

  /**
   * Applies the upstreams of another config, which must be the running one already. Everything changes in this turn. Resolves when
   * removed and replaced upstreams are stopped.
   */
  apply(next: Config, diff: ConfigDiff): Promise<void> {
    const { upstreams, factory, offers, links, holders, metrics } = this.#parts;
    const { drainMs } = next.reload;
    const leaving: Promise<unknown>[] = [];
    for (const id of diff.removed) {
      const old = upstreams.get(id);
      if (old === undefined) continue;
      this.#disabled.delete(id);
      metrics.removeUpstream(id);
      leaving.push(this.#onLeft(old, upstreams.remove(id, drainMs)));
    }
    for (const { config } of diff.replaced) leaving.push(this.#replace(config, drainMs));
    for (const config of diff.added) {
      const added = this.#create(config);
      upstreams.add(added);
      offers.setEras(added.id, added.eras);
    }
    upstreams.arrange(next.upstreams.map(({ id }) => id));
    for (const config of next.upstreams) {
      const upstream = upstreams.get(config.id);
      // Limits of the gateway reach all upstreams.
      if (upstream !== undefined) factory.update(upstream, this.#effective(config));
    }
    links.onConfigChanged(holders);
    return Promise.all(leaving).then(() => undefined);
  }

  /**
   * Replaces an upstream by another one with its config, and enables it if an operator has disabled it. Resolves when the old one is
   * stopped, with the number of its connections whose requests had not ended.
   *
   * @throws {RangeError} if there is no upstream with this id.
   */
  restart(id: string, drainMs: number): Promise<number> {
    const config = this.#configOf(id);
    this.#disabled.delete(id);
    return this.#replace(config, drainMs);
  }

  /**
   * Replaces an upstream by one that refuses every call with this reason, until a restart. Resolves like {@link restart}.
   *
   * @throws {RangeError} if there is no upstream with this id.
   */
  disable(id: string, reason: string, drainMs: number): Promise<number> {
    const config = this.#configOf(id);
    if (!this.#disabled.has(id)) this.#disabled.set(id, reason);
    return this.#replace(config, drainMs);
  }

  #configOf(id: string): UpstreamConfig {
    const config = this.#parts.settings().upstreams.find((one) => one.id === id);
    if (config === undefined) throw new RangeError(`there is no upstream "${id}"`);
    return config;
  }

  /** Returns a config with the reason of the operator who has disabled the upstream, if one has. */
  #effective(config: UpstreamConfig): UpstreamConfig {
    const problem = this.#disabled.get(config.id);
    return problem === undefined ? config : { ...config, problem };
  }

  #create(config: UpstreamConfig): Upstream {
    const { factory, metrics } = this.#parts;
    const created = factory.create(this.#effective(config));
    // Otherwise it would look like one that has failed.
    if (this.isDisabled(created.id)) metrics.setUpstreamState(created.id, 'disabled');
    return created;
  }

  #replace(config: UpstreamConfig, drainMs: number): Promise<number> {
    const { upstreams, offers } = this.#parts;
    const old = upstreams.get(config.id);
    if (old === undefined) throw new RangeError(`there is no upstream "${config.id}"`);
    const created = this.#create(config);
    const left = this.#onLeft(old, upstreams.replace(created, drainMs));
    offers.setEras(created.id, created.eras);
    return left;
  }

  /**
   * Detaches clients and lists from an upstream that is not a member any more, in this turn. When it is stopped, closes its sockets
   * and logs requests that did not end in time.
   */
  async #onLeft(old: Upstream, stopping: Promise<number>): Promise<number> {
    const { upstreams, factory, offers, links, holders, resourceCache, metrics, log } = this.#parts;
    offers.onReplaced(old.id);
    resourceCache.invalidate(old.id);
    links.onReplaced(old.id, holders);
    const unfinished = await stopping;
    await factory.release(old);
    // Its last events have begun series again.
    if (!upstreams.has(old.id)) metrics.removeUpstream(old.id);
    if (unfinished === 0) log.info({ upstream: old.id }, 'removed or replaced upstream stopped');
    else
      log.warn({ upstream: old.id, unfinished }, 'removed or replaced upstream stopped before its requests had ended');
    return unfinished;
  }
}
