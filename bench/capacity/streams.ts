import { setTimeout as delay } from 'node:timers/promises';
import { heapBytes } from '../heap.ts';
import { memory } from '../process-cost.ts';
import { waitUntilIdle } from '../settle.ts';
import type { Figures } from '../sheet.ts';
import type { CallerReport } from './caller-job.ts';
import { GatewayWatch } from './gateway-watch.ts';
import { Helper } from './helper.ts';
import { addedFigures, callFigures, named, sumOf } from './reports.ts';
import type { Outcome, Scenario, ScenarioOptions } from './scenario.ts';
import { type Calling, type Place, Stage } from './stage.ts';
import { type IdleReport, readIdleReport } from './stream-job.ts';

const MINUTE_MS = 60_000;
const WARM_MS = 10_000;
const WARM = { revision: '2025-11-25', connections: 50 } as const;
const WARM_RATE = 200;
const DIRECT_MS = 30_000;
/** The clients of L2. */
const ACTIVE: Calling = { revision: '2025-11-25', connections: 1_000 };
const ACTIVE_RATE = 300;

interface Base {
  readonly rssMb: number;
  readonly heapBytes: number;
}

/** Measures a gateway that has compiled its code, and has no client any more. */
async function baseOf(stage: Stage): Promise<Base> {
  await using callers = await stage.callers(WARM);
  await callers.ask({ ms: WARM_MS, ratePerSecond: WARM_RATE });
  await callers[Symbol.asyncDispose]();
  await waitUntilIdle(stage.gateway.pid);
  const bytes = await heapBytes(stage.gateway);
  return { rssMb: memory([stage.gateway.pid]).rssMb, heapBytes: bytes };
}

async function openStreams(stage: Stage, count: number): Promise<Helper<IdleReport>> {
  const { gateway, authorizations, place } = stage;
  const gets = Math.ceil(count / 2);
  const job = { url: gateway.url, authorizations, gets, listens: count - gets };
  const { dir, othersCore: core } = place;
  return await Helper.start('idle-streams.ts', job, readIdleReport, { name: 'idle-streams', dir, core });
}

async function playDirect(stage: Stage): Promise<CallerReport> {
  await using callers = await stage.directCallers(ACTIVE);
  return await callers.ask({ ms: DIRECT_MS, ratePerSecond: ACTIVE_RATE });
}

/** Returns the figures of the streams; those of memory only if nothing else uses the gateway. */
function streamFigures(report: IdleReport): Figures {
  return {
    streams: report.open,
    drops: sumOf(report.dropped),
    ...named('dropped', report.dropped),
    'longest silence s': report.longestSilenceMs / 1_000,
  };
}

async function idle(place: Place, { minutes, streams: count }: ScenarioOptions): Promise<Outcome> {
  await using stage = await Stage.start(place);
  const base = await baseOf(stage);
  const beganMs = performance.now();
  await using streams = await openStreams(stage, count);
  const openingSeconds = (performance.now() - beganMs) / 1_000;
  await waitUntilIdle(stage.gateway.pid);
  const watch = await GatewayWatch.start(stage.gateway);
  await delay(minutes * MINUTE_MS);
  const figures = await watch.stop();
  const report = await streams.ask({});
  const perStream = (memory([stage.gateway.pid]).rssMb - base.rssMb) / count;
  const heapPerStream = ((await heapBytes(stage.gateway)) - base.heapBytes) / count;
  return {
    figures: {
      ...streamFigures(report),
      'opened in s': openingSeconds,
      'base RSS MB': base.rssMb,
      'RSS KiB per stream': perStream * 1_024,
      'heap KiB per stream': heapPerStream / 1_024,
      ...figures,
    },
    details: { report },
  };
}

async function mixed(place: Place, { minutes, streams: count }: ScenarioOptions): Promise<Outcome> {
  await using stage = await Stage.start(place);
  await baseOf(stage);
  await using streams = await openStreams(stage, count);
  await using callers = await stage.callers(ACTIVE);
  const direct = await playDirect(stage);
  await callers.ask({ ms: WARM_MS, ratePerSecond: ACTIVE_RATE });
  const watch = await GatewayWatch.start(stage.gateway);
  const report = await callers.ask({ ms: minutes * MINUTE_MS, ratePerSecond: ACTIVE_RATE });
  const figures = await watch.stop();
  const streamReport = await streams.ask({});
  const errors = sumOf(report.refused) + sumOf(report.lost) + report.unsent + report.unanswered;
  return {
    figures: {
      ...callFigures(report),
      errors,
      ...addedFigures(report, direct),
      ...streamFigures(streamReport),
      ...figures,
    },
    details: { direct, report, streamReport },
  };
}

export const IDLE: Scenario = {
  id: 'idle',
  title: 'L1: idle event streams, half GET of sessions, half subscriptions/listen',
  minutes: 15,
  bounds: [
    { column: 'drops', atMost: 0 },
    { column: 'RSS KiB per stream', atMost: 64 },
    { column: 'CPU % of a core', atMost: 20 },
  ],
  run: idle,
};

export const MIXED: Scenario = {
  id: 'mixed',
  title: `L2: ${ACTIVE.connections} sessions with ${ACTIVE_RATE} calls/s beside the streams of L1`,
  minutes: 20,
  bounds: [
    { column: 'errors', atMost: 0 },
    { column: 'drops', atMost: 0 },
    { column: 'added p50 ms', atMost: 5 },
    { column: 'added p95 ms', atMost: 25 },
    { column: 'added p99 ms', atMost: 60 },
  ],
  run: mixed,
};
