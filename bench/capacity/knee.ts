import type { CallerReport } from './caller-job.ts';
import { GatewayWatch } from './gateway-watch.ts';
import type { Helper } from './helper.ts';
import { callFigures, sumOf } from './reports.ts';
import type { Outcome, Scenario, ScenarioOptions } from './scenario.ts';
import { startNeighbours } from './neighbours.ts';
import { type Calling, type Place, Stage } from './stage.ts';

const MINUTE_MS = 60_000;
const FIRST_RATE = 200;
const GROWTH = 1.25;
const STEP_MS = 5_000;
const WARM_MS = 10_000;
const REST_MS = 2_000;
/** The gateway keeps up with a rate if the 99th percentile is at most this, and nearly all calls are answered. */
const LONGEST_P99_MS = 100;
const LEAST_ANSWERED = 0.97;
const CALLING: Calling = { revision: '2026-07-28', connections: 256 };

interface Step {
  readonly rate: number;
  readonly report: CallerReport;
  readonly cpuShare: number;
}

function keepsUp({ due, answered, p99Ms }: CallerReport): boolean {
  return p99Ms <= LONGEST_P99_MS && answered >= due * LEAST_ANSWERED;
}

async function playStep(stage: Stage, callers: Helper<CallerReport>, rate: number): Promise<Step> {
  await callers.ask({ ms: REST_MS, ratePerSecond: FIRST_RATE });
  const watch = await GatewayWatch.start(stage.gateway);
  const report = await callers.ask({ ms: STEP_MS, ratePerSecond: rate });
  const { 'CPU % of a core': cpuShare = 0 } = await watch.stop();
  return { rate, report, cpuShare };
}

/** Raises the rate until the gateway does not keep up with it in two of two turns. */
async function ramp(stage: Stage): Promise<readonly Step[]> {
  await using callers = await stage.callers(CALLING);
  await callers.ask({ ms: WARM_MS, ratePerSecond: FIRST_RATE * 2 });
  const steps: Step[] = [];
  let failures = 0;
  for (let rate = FIRST_RATE; failures < 2;) {
    const step = await playStep(stage, callers, rate);
    steps.push(step);
    failures = keepsUp(step.report) ? 0 : failures + 1;
    if (failures === 0) rate = Math.round(rate * GROWTH);
  }
  return steps;
}

interface Knee {
  readonly rate: number;
  /** The most answers per second that were seen. */
  readonly peak: number;
  readonly step: Step | undefined;
  readonly steps: readonly Step[];
}

async function findKnee(stage: Stage): Promise<Knee> {
  const steps = await ramp(stage);
  const step = steps.findLast(({ report }) => keepsUp(report));
  const peak = steps.reduce((most, { report }) => Math.max(most, report.answeredPerSecond), 0);
  return { rate: step?.rate ?? 0, peak, step, steps };
}

async function knee(place: Place): Promise<Outcome> {
  await using stage = await Stage.start(place);
  const { rate, peak, step, steps } = await findKnee(stage);
  return {
    figures: {
      'knee/s': rate,
      'most answered/s': peak,
      'seconds per 1000 calls at the knee': step === undefined ? undefined : 1_000 / rate,
      'p50 ms': step?.report.p50Ms,
      'p95 ms': step?.report.p95Ms,
      'p99 ms': step?.report.p99Ms,
      'CPU % of a core': step?.cpuShare,
      steps: steps.length,
    },
    details: { steps },
  };
}

const OVERLOAD_CALLING: Calling = { revision: '2026-07-28', connections: 2_000 };
const TIMES = 3;
/** After the overload, this share of the knee is called, second by second. */
const NORMAL_SHARE = 0.3;
const NORMAL_SECONDS = 30;

/** Returns the second from which on calls are answered as before; undefined if there is none. */
function secondsToNormal({ seconds }: CallerReport): number | undefined {
  const lastBad = seconds.findLastIndex(({ p99Ms, refused }) => p99Ms > LONGEST_P99_MS || refused > 0);
  return lastBad === seconds.length - 1 ? undefined : lastBad + 1;
}

async function overload(place: Place, { minutes, rate, neighbours }: ScenarioOptions): Promise<Outcome> {
  await using stage = await Stage.start(place);
  await using _ = await startNeighbours(place, neighbours);
  const found = rate === undefined ? await findKnee(stage) : { rate, peak: rate, step: undefined, steps: [] };
  await using callers = await stage.callers(OVERLOAD_CALLING);
  await callers.ask({ ms: REST_MS, ratePerSecond: FIRST_RATE });
  const watch = await GatewayWatch.start(stage.gateway);
  const report = await callers.ask({ ms: minutes * MINUTE_MS, ratePerSecond: found.rate * TIMES });
  const after = await callers.ask({ ms: NORMAL_SECONDS * 1_000, ratePerSecond: found.rate * NORMAL_SHARE });
  const figures = await watch.stop();
  return {
    figures: {
      'knee/s': found.rate,
      'most answered/s before': found.peak,
      'rate/s': found.rate * TIMES,
      'goodput % of the most': (report.answeredPerSecond / found.peak) * 100,
      ...callFigures(report),
      'refusal p50 ms': report.refusalP50Ms,
      'refusal p99 ms': report.refusalP99Ms,
      's to normal': secondsToNormal(after),
      'refused after it': sumOf(after.refused),
      ...figures,
    },
    details: { steps: found.steps, report, after },
  };
}

export const KNEE: Scenario = {
  id: 'knee',
  title: 'L3: small calls of 2026-07-28, faster until the gateway does not keep up',
  minutes: 1,
  // 1 000 calls at 800 a second take 1.25 s: bounds are upper ones.
  bounds: [
    { column: 'seconds per 1000 calls at the knee', atMost: 1.25 },
    { column: 'p99 ms', atMost: LONGEST_P99_MS },
  ],
  run: knee,
};

export const OVERLOAD: Scenario = {
  id: 'overload',
  title: `L5: ${TIMES} times the knee, by clients that do not slow down`,
  minutes: 2,
  bounds: [
    { column: 'refusal p99 ms', atMost: 100 },
    { column: 's to normal', atMost: 10 },
  ],
  run: overload,
};
