import { viewsOf } from '../catalog/view.ts';
import type { Config } from '../config/config.ts';
import { Gate } from '../gateway/exchange/gate.ts';
import { Offers } from '../gateway/lists/offers.ts';
import { DiskOfferStore } from '../store/disk/offer-store.ts';
import { createLogger } from '../telemetry/log.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';
import { type LastLists, lastLists } from './lists/last-lists.ts';

/** A config with the last good lists of its upstreams, without a running gateway. */
export interface OfflineGateway extends LastLists {
  readonly gate: Gate;
}

/**
 * Reads the last good lists of a config's upstreams. Changes nothing.
 *
 * @param stateDir the state directory of the gateway that has listed them.
 */
export async function openOffline(config: Config, stateDir = config.stateDir): Promise<OfflineGateway> {
  const views = viewsOf(config);
  const gate = new Gate(config.access, []);
  const store = new DiskOfferStore(stateDir, () => undefined);
  const [log, metrics] = [createLogger('silent'), createMetrics(VERSION)];
  const offers = new Offers({ config, views, audienceOf: () => '', gate, store, log, metrics });
  await offers.restore();
  return { gate, ...lastLists(offers, views) };
}
