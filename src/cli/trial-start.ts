import { messageOf } from '../thrown.ts';
import { rmSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';

import { commonKey, type Offer } from '../catalog/offer.ts';
import type { Core } from '../compose/core/core.ts';
import { startCore } from '../compose/start-core.ts';
import { lastLists } from '../compose/lists/last-lists.ts';
import { listGapsOf } from '../compose/lists/list-gaps.ts';
import { unmatchedRuleGlobs } from '../compose/lists/unmatched-globs.ts';
import { upstreamTransports } from '../compose/transports.ts';
import { upstreamStatus, upstreamStatuses } from '../compose/upstream-status.ts';
import type { Config } from '../config/values/config.ts';
import { CALLERS_LISTS, hasCallersLists } from '../config/values/upstream-config.ts';
import type { Upstream } from '../gateway/exchange/connection-holder.ts';
import type { ListGaps, UpstreamStatus } from '../operator/admin/answers.ts';
import { type Era, ERAS } from '../protocol/revisions.ts';
import { existingDiskKeys } from '../store/disk/key-store.ts';
import { createLogger } from '../telemetry/log.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { EVERYBODY } from '../upstream/connection-key.ts';
import { NO_FEATURES } from '../upstream/link/link.ts';
import { VERSION } from '../version.ts';

/** The results of a trial start. */
export interface Trial {
  /** The status of each upstream, in the order of the config, with what clients would not get of its lists. */
  readonly upstreams: readonly (UpstreamStatus & ListGaps & { readonly isForCallers: boolean })[];
  /** Access rules that match nothing in the lists. */
  readonly unmatched: readonly string[];
}

/** The text for an upstream that {@link isLeftToCallers}. */
export const LEFT_TO_CALLERS = 'depends on the caller; not started';

/** Returns whether an upstream was not started, because only a principal has credentials for it. */
export function isLeftToCallers({ upstreams }: Config, { id, state }: UpstreamStatus): boolean {
  return state === 'configured' && upstreams.some((one) => one.id === id && hasCallersLists(one));
}

/** Starts every upstream once, reads its lists, and stops it again. Opens no port, and writes nothing to the state directory. */
export function tryStart(config: Config): Promise<Trial> {
  return withTrialCore(config, async (core) => {
    const statuses = await startOnce(core);
    const upstreams = statuses.map((one) => ({
      ...one,
      isForCallers: isLeftToCallers(config, one),
      ...listGapsOf(one.id, core.offers, core.views),
    }));
    return { upstreams, unmatched: unmatchedRuleGlobs(config, lastLists(core.offers, core.views)) };
  });
}

/** Starts every upstream once, and reads its lists. Resolves with the status of each, in the order of the config. */
export async function startOnce(core: Core): Promise<readonly UpstreamStatus[]> {
  const failed = new Map<string, UpstreamStatus>();
  const tryOne = async (upstream: Upstream): Promise<void> => {
    const { id, config } = upstream;
    if (config.problem !== undefined || (await core.startUpstream(id))) return;
    failed.set(id, upstreamStatus(upstream, core));
    // It would be started again while others start.
    await upstream.stop();
  };
  await Promise.all([...core.upstreams.values()].map(tryOne));
  return upstreamStatuses(core).map((one) => failed.get(one.id) ?? one);
}

/** The lists of one upstream in each era that it supports. */
export interface EraOffers {
  readonly upstream: string;
  readonly offers: readonly { readonly era: Era; readonly offer: Offer }[];
  /** The reason why it could not be listed in some era. Its lists are not complete then. */
  readonly failure: string | undefined;
}

/** Upstreams that are started at the same time. */
const STARTS = 4;

/** Like {@link tryStart}, in both eras. Resolves with the lists as the upstreams sent them. @param config without a lock. */
export function listErasOnce(config: Config): Promise<readonly EraOffers[]> {
  return withTrialCore(config, async (core) => {
    const listed = new Map<string, EraOffers>();
    const upstreams = core.upstreams.values();
    const listNext = async (): Promise<void> => {
      for (const upstream of upstreams) {
        listed.set(upstream.id, await listEras(core, upstream));
        await upstream.stop();
      }
    };
    await Promise.all(Array.from({ length: STARTS }, listNext));
    return [...core.upstreams.values()].flatMap(({ id }) => listed.get(id) ?? []);
  });
}

async function listEras(core: Core, upstream: Upstream): Promise<EraOffers> {
  const { offers } = core;
  const { id, config } = upstream;
  const failures: string[] = config.problem === undefined ? [] : [config.problem];
  for (const era of failures.length > 0 ? [] : ERAS) {
    // An upstream without this era is listed in the other one.
    await upstream.refresh(era, NO_FEATURES, EVERYBODY).catch((thrown: unknown) => {
      failures.push(upstreamStatus(upstream, core).reason ?? messageOf(thrown));
    });
  }
  const found = ERAS.flatMap((era) => {
    const offer = offers.exactOffer(id, commonKey(era));
    return offer === undefined ? [] : [{ era, offer }];
  });
  if (found.length === 0 && failures.length === 0) failures.push(`${CALLERS_LISTS}; set "lock: off" for it`);
  return { upstream: id, offers: found, failure: failures.length > 0 ? [...new Set(failures)].join('; ') : undefined };
}

const END_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** Runs the upstreams of a config with a state directory of their own while `use` runs. */
async function withTrialCore<T>(config: Config, use: (core: Core) => Promise<T>): Promise<T> {
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-validate-'));
  const removeNow = (signal: NodeJS.Signals): void => {
    try {
      rmSync(stateDir, { recursive: true, force: true });
    } finally {
      // Nobody listens any more, so that the signal ends this process. The guard of the processes ends the upstreams.
      process.kill(process.pid, signal);
      // The first process of a container does not end by it.
      process.exit(128 + constants.signals[signal]);
    }
  };
  for (const signal of END_SIGNALS) process.once(signal, removeNow);
  try {
    const log = createLogger('silent');
    const metrics = createMetrics(VERSION);
    const transports = await upstreamTransports(config, metrics, log, { printerDir: stateDir });
    // With its keys, lists that lead back to the gateway of this config are noticed.
    const keys = await existingDiskKeys(config.stateDir);
    const core = await startCore({ ...config, stateDir }, metrics, transports, log, { keys });
    try {
      return await use(core);
    } finally {
      await core.stop();
    }
  } finally {
    await rm(stateDir, { recursive: true, force: true });
    for (const signal of END_SIGNALS) process.off(signal, removeNow);
  }
}
