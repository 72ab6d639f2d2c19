import { Gauge, type Registry } from 'prom-client';
import { knownCounter } from './metric-kinds.ts';

/** `unchanged`: the files mean the same as before. `rejected`: they cannot be used, and the running config stays in use. */
const RELOAD_OUTCOMES = ['applied', 'unchanged', 'rejected'] as const;
export type ReloadOutcome = (typeof RELOAD_OUTCOMES)[number];

export function createReloadMetrics(registry: Registry) {
  const registers = [registry];
  const countReload = knownCounter(registry, {
    name: 'linkspan_config_reloads_total',
    help: 'Reloads of the config by outcome.',
    values: RELOAD_OUTCOMES,
  });
  const successful = new Gauge({
    name: 'linkspan_config_last_reload_successful',
    help: '1 if the latest reload, or else the start, could use the config; 0 if it was rejected.',
    registers,
  });
  const loadedAt = new Gauge({
    name: 'linkspan_config_last_reload_success_timestamp_seconds',
    help: 'Unix time of the latest reload, or else the start, that could use the config.',
    registers,
  });
  const lastGood = new Gauge({
    name: 'linkspan_config_last_good_upstreams',
    help: '1 while the upstreams are those of the last good config, because the file was broken at the start; else 0.',
    registers,
  });
  const record = (outcome: ReloadOutcome, nowMs: number) => {
    successful.set(outcome === 'rejected' ? 0 : 1);
    if (outcome === 'rejected') return;
    loadedAt.set(nowMs / 1_000);
    lastGood.set(0);
  };
  return {
    /**
     * Records that the config of the start is in use.
     *
     * @param lastGoodMs the time when its upstreams were saved, if the file is broken. Unix time.
     */
    recordStart: (nowMs: number, lastGoodMs?: number) => {
      record('applied', lastGoodMs ?? nowMs);
      if (lastGoodMs === undefined) return;
      successful.set(0);
      lastGood.set(1);
    },
    /** Counts a reload. @param nowMs Unix time. */
    countReload: (outcome: ReloadOutcome, nowMs: number) => {
      countReload(outcome);
      record(outcome, nowMs);
    },
  };
}
