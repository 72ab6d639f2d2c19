import { setTimeout as delay } from 'node:timers/promises';
import { heapBytes } from '../heap.ts';
import { memory } from '../process-cost.ts';
import { waitUntilIdle } from '../settle.ts';
import type { Figures } from '../sheet.ts';
import { readDripReport } from './drips.ts';
import { GatewayWatch } from './gateway-watch.ts';
import { Helper } from './helper.ts';
import { callFigures, named, sumOf } from './reports.ts';
import type { Outcome, Scenario, ScenarioOptions } from './scenario.ts';
import { type Calling, type Place, Stage } from './stage.ts';
import { readSlowReport, type SlowReport } from './stream-job.ts';
import { MemoryCgroup } from './cgroup.ts';

const MIB = 1_048_576;
const MINUTE_MS = 60_000;
const CALM_MS = 15_000;
const OTHERS_RATE = 50;
const OTHERS: Calling = { revision: '2025-11-25', connections: 50 };
/** 200 MiB and 400 MiB of answers at the same time. */
const READERS = [
  { count: 200, tool: 'large__one_mib', bytesPerSecond: 16_384 },
  { count: 50, tool: 'large__eight_mib', bytesPerSecond: 524_288 },
] as const;
const CGROUP_BYTES = 512 * MIB;

/** Plays other clients before the slow ones and beside them. */
async function readSlowly(stage: Stage, minutes: number): Promise<Outcome> {
  const { gateway, authorizations, place } = stage;
  await using others = await stage.callers(OTHERS);
  await others.ask({ ms: CALM_MS, ratePerSecond: OTHERS_RATE });
  await waitUntilIdle(gateway.pid);
  const baseMb = memory([gateway.pid]).rssMb;
  const calm = await others.ask({ ms: CALM_MS, ratePerSecond: OTHERS_RATE });
  const watch = await GatewayWatch.start(gateway);
  const job = { url: gateway.url, authorizations, readers: READERS };
  const { dir, othersCore: core } = place;
  await using slow = await Helper.start('slow-readers.ts', job, readSlowReport, { name: 'slow-readers', dir, core });
  const report = await others.ask({ ms: minutes * MINUTE_MS, ratePerSecond: OTHERS_RATE });
  const slowReport = await slow.ask({});
  const figures = await watch.stop();
  const liveBytes = await heapBytes(gateway);
  await slow[Symbol.asyncDispose]();
  await waitUntilIdle(gateway.pid);
  await delay(1_000);
  return {
    figures: {
      'base RSS MB': baseMb,
      'RSS MB above base': (figures['most RSS MB'] ?? 0) - baseMb,
      'live heap MB beside it': liveBytes / MIB,
      'RSS MB after it': memory([gateway.pid]).rssMb,
      ...slowFigures(slowReport),
      ...callFigures(report),
      'calm p99 ms': calm.p99Ms,
      'p99 ms above calm': report.p99Ms - calm.p99Ms,
      ...figures,
    },
    details: { calm, report, slowReport },
  };
}

function slowFigures({ begun, whole, ended, megabytes }: SlowReport): Figures {
  return {
    ...named('begun', begun),
    ...named('read whole', whole),
    'slow answers refused or cut': sumOf(ended),
    ...named('slow', ended),
    'MB read slowly': megabytes,
  };
}

async function slow(place: Place, { minutes }: ScenarioOptions): Promise<Outcome> {
  await using stage = await Stage.start(place);
  return await readSlowly(stage, minutes);
}

async function inCgroup(place: Place, { minutes }: ScenarioOptions, nodeArgs: readonly string[]): Promise<Outcome> {
  using cgroup = MemoryCgroup.make('linkspan-load', CGROUP_BYTES);
  await using stage = await Stage.start(place, { wrapper: cgroup.wrapper, nodeArgs });
  const outcome = await readSlowly(stage, minutes).catch((thrown: unknown) => {
    // A kill has more to say than the connections that it broke.
    if (cgroup.kills === 0) throw thrown;
    return { figures: {}, details: { thrown: String(thrown) } };
  });
  const kept = { 'OOM kills': cgroup.kills, 'most MB of the cgroup': cgroup.peakBytes / MIB };
  return { figures: { ...kept, ...outcome.figures }, details: outcome.details };
}

export const SLOW: Scenario = {
  id: 'slow',
  title: 'L4: 200 slow readers of 1 MiB and 50 of 8 MiB, beside 50 calls/s of others',
  minutes: 2,
  bounds: [
    { column: 'RSS MB above base', atMost: 600 },
    { column: 'p99 ms above calm', atMost: 20 },
  ],
  run: slow,
};

/** The number of connections that send slowly. */
const DRIPS = 2_000;

/** Plays other clients before the connections that send slowly and beside them. */
async function sendSlowly(place: Place, { minutes }: ScenarioOptions): Promise<Outcome> {
  await using stage = await Stage.start(place);
  const { gateway } = stage;
  await using others = await stage.callers(OTHERS);
  await others.ask({ ms: CALM_MS, ratePerSecond: OTHERS_RATE });
  const calm = await others.ask({ ms: CALM_MS, ratePerSecond: OTHERS_RATE });
  const watch = await GatewayWatch.start(gateway);
  const job = { url: gateway.url, connections: DRIPS };
  const own = { name: 'drips', dir: place.dir, core: place.othersCore };
  await using drips = await Helper.start('drips.ts', job, readDripReport, own);
  const report = await others.ask({ ms: minutes * MINUTE_MS, ratePerSecond: OTHERS_RATE });
  const { opened, closed, longestMs } = await drips.ask({});
  return {
    figures: {
      'slow connections': opened,
      'of them closed': closed,
      'longest open s': longestMs / 1_000,
      ...callFigures(report),
      'calm p99 ms': calm.p99Ms,
      'p99 ms above calm': report.p99Ms - calm.p99Ms,
      ...(await watch.stop()),
    },
    details: { calm, report },
  };
}

export const DRIP: Scenario = {
  id: 'drips',
  title: `SEC-21: ${DRIPS} connections that send the head of a request byte by byte, beside 50 calls/s of others`,
  minutes: 1,
  bounds: [
    { column: 'longest open s', atMost: 15 },
    { column: 'p99 ms above calm', atMost: 20 },
  ],
  run: sendSlowly,
};

/** The heap limit that docs/limits.md recommends for this cgroup. */
const HEAP_LIMIT = '--max-old-space-size=300';

export const MEMORY: Scenario = {
  id: 'memory',
  title: 'REL-23: the load of L4 for a gateway in a cgroup of 512 MiB',
  minutes: 2,
  bounds: [{ column: 'OOM kills', atMost: 0 }],
  run: (place, options) => inCgroup(place, options, []),
};

export const MEMORY_HEAP: Scenario = {
  id: 'memory-heap',
  title: `the same with ${HEAP_LIMIT}`,
  minutes: 2,
  bounds: [{ column: 'OOM kills', atMost: 0 }],
  run: (place, options) => inCgroup(place, options, [HEAP_LIMIT]),
};
