import { viewsOf } from '../catalog/view.ts';
import { COMMAND } from '../command-name.ts';
import type { Config } from '../config/values/config.ts';
import { Gate } from '../gateway/exchange/gate.ts';
import { scopesOnDemandOf } from '../policy/scopes-on-demand.ts';
import { Offers } from '../gateway/lists/offers.ts';
import { diskOfferStore } from '../store/disk/offer-store.ts';
import { createLogger } from '../telemetry/log.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';
import { type LastLists, lastLists } from './lists/last-lists.ts';

/** A config with the last good lists of its upstreams, without a running gateway. */
export interface OfflineGateway extends LastLists {
  readonly gate: Gate;
  /** A clause that says which lists are missing, or may be old; undefined if all are there. */
  readonly doubt: string | undefined;
}

/**
 * Reads the last good lists of a config's upstreams. Changes nothing.
 *
 * @param stateDir the state directory of the gateway that has listed them.
 */
export async function openOffline(config: Config, stateDir = config.stateDir): Promise<OfflineGateway> {
  const views = viewsOf(config);
  const gate = new Gate(config.access, [], undefined, undefined, scopesOnDemandOf(config.auth));
  const store = diskOfferStore(stateDir);
  // Nobody reads them.
  const [log, metrics] = [createLogger('silent', { write: () => undefined }), createMetrics(VERSION)];
  const offers = new Offers({ config, views, pseudonymsOf: () => [], audienceOf: () => '', gate, store, log, metrics });
  await offers.restore();
  const lists = lastLists(offers, views);
  return { gate, doubt: doubtAbout(config, stateDir, lists), ...lists };
}

function doubtAbout({ redis, upstreams }: Config, stateDir: string, lists: LastLists): string | undefined {
  if (redis !== undefined)
    return `with gateway.redis the last lists are in Redis; this command reads only those in ${stateDir}`;
  const unlisted = upstreams.flatMap(({ id }) => (lists.isListed(id) ? [] : [`"${id}"`]));
  if (unlisted.length === 0) return undefined;
  return `${stateDir} has no lists for all clients of ${unlisted.join(', ')}; unless they depend on the client, a gateway or "${COMMAND} prefetch" stores them there`;
}
