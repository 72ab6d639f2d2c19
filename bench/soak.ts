/**
 * `npm run soak`: a mixed load at a modest rate for half an hour, and the growth of what must not grow. See README.md beside this file.
 */
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { readOrEnd } from './command-line.ts';
import { withFolder } from './folder.ts';
import { machineNow } from './machine.ts';
import { SLOPED, type SoakSample } from './soak/samples.ts';
import { CHANGES, World, type WorldOptions } from './soak/world.ts';
import { type Slope, slopeOf } from './slope.ts';
import { figure, table } from './table.ts';
import { setTimeout as delay } from 'node:timers/promises';
import type { Tallied } from './soak/tally.ts';

const MINUTE_MS = 60_000;
const SAMPLE_MS = 30_000;
const RELOAD_MS = 60_000;
/** The share of the run that is left out of the slopes, while compiled code, caches and pools fill up; at least what `maxAge` needs. */
const WARM_SHARE = 0.2;
const WARM_MS = 6 * MINUTE_MS;

interface Timed {
  readonly atMs: number;
  readonly sample: SoakSample;
}

const { values } = readOrEnd('npm run soak -- [--minutes 30] [--rate 40] [--seed 1] [--redis] [--json FILE]', () =>
  parseArgs({
    options: {
      minutes: { type: 'string', default: '30' },
      rate: { type: 'string', default: '40' },
      seed: { type: 'string', default: '1' },
      redis: { type: 'boolean', default: false },
      json: { type: 'string' },
    },
  }),
);
const minutes = Number(values.minutes);
const [ratePerSecond, seed, usesRedis] = [Number(values.rate), Number(values.seed), values.redis];
const totalMs = minutes * MINUTE_MS;
const warmMs = Math.min(WARM_MS, Math.max(totalMs * WARM_SHARE, 0) + 2 * MINUTE_MS, totalMs / 2);

const SHOWN = [
  'RSS MB',
  'heap MB',
  'open files',
  'processes',
  'sessions',
  'streams',
  'requests',
  'CPU s',
  'shed',
] as const;

/** Samples and reloads until the time is over. */
async function watch(world: World): Promise<readonly Timed[]> {
  const beganMs = performance.now();
  const samples: Timed[] = [];
  let isThere = false;
  let nextReloadMs = RELOAD_MS;
  console.log(['minute', ...SHOWN].join('\t'));
  for (let due = SAMPLE_MS; due <= totalMs + 1; due += SAMPLE_MS) {
    await delay(Math.max(0, beganMs + due - performance.now()));
    const atMs = performance.now() - beganMs;
    const sample = await world.sample();
    samples.push({ atMs, sample });
    console.log([(atMs / MINUTE_MS).toFixed(1), ...SHOWN.map((name) => figure(sample[name]))].join('\t'));
    if (atMs < nextReloadMs) continue;
    nextReloadMs += RELOAD_MS;
    isThere = !isThere;
    await world.reload(isThere);
  }
  return samples;
}

function slopesOf(samples: readonly Timed[]): ReadonlyMap<string, Slope> {
  const counted = samples.filter(({ atMs }) => atMs >= warmMs);
  const fitted = SLOPED.flatMap((name): readonly (readonly [string, Slope])[] => {
    const readings = counted.flatMap(({ atMs, sample: { [name]: value } }) =>
      value === undefined ? [] : [{ atMs, value }],
    );
    const slope = slopeOf(readings);
    return slope === undefined ? [] : [[name, slope]];
  });
  return new Map(fitted);
}

function signed(value: number): string {
  return `${value < 0 ? '−' : '+'}${figure(Math.abs(value))}`;
}

function slopeTable(slopes: ReadonlyMap<string, Slope>): string {
  const rows = [...slopes].map(([name, { perHour, low, high, mean, isDistinct }]) => {
    const words = isDistinct ? (perHour > 0 ? 'GROWS' : 'shrinks') : 'not distinguishable from 0';
    return [name, figure(mean), signed(perHour), `${signed(low)} to ${signed(high)}`, words];
  });
  return table([['', 'mean', 'per hour', '95 %', ''], ...rows]);
}

function countsTable(counts: Readonly<Record<string, number>>): string {
  return table(Object.entries(counts).map(([kind, count]) => [kind, figure(count)]));
}

interface SoakResult {
  readonly samples: readonly Timed[];
  readonly tallied: Tallied;
  readonly complaints: Readonly<Record<string, number>>;
  /** The gateway after the clients have left, when all has ended that ends by itself. */
  readonly quiet: SoakSample;
}

async function soak(options: WorldOptions): Promise<SoakResult> {
  await using world = await World.start(options);
  const samples = await watch(world);
  const tallied = await world.stopClients();
  // `idle` of sessions and upstreams, and the sweep that finds them.
  await delay(Math.min(2.5 * MINUTE_MS, totalMs));
  const quiet = await world.sampleGateway();
  return { samples, tallied, complaints: await world.complaints(), quiet };
}

const machine = machineNow();
console.log(
  `soak of ${minutes} min at ${ratePerSecond} calls/s, seed ${seed}, ${usesRedis ? 'with' : 'without'} Redis`,
);
console.log(`${machine.commit}, Node ${machine.node}, load ${machine.load.join(' ')} at the start`);
console.log(`default config but for: ${CHANGES}. Each sample forces a full collection.\n`);
const result = await withFolder((dir) => soak({ dir, ratePerSecond, seed, usesRedis }));
const slopes = slopesOf(result.samples);
const end = machineNow();
console.log(
  `\nslopes from minute ${(warmMs / MINUTE_MS).toFixed(1)} on, by least squares; load ${end.load.join(' ')} at the end`,
);
console.log(slopeTable(slopes));
console.log(`\ndone\n${countsTable(result.tallied.done)}`);
console.log(`\nfailed\n${countsTable(result.tallied.failed)}`);
for (const [kind, example] of Object.entries(result.tallied.examples)) console.log(`  ${kind}: ${example}`);
console.log(`\nwarnings and errors in the log of the gateway\n${countsTable(result.complaints)}`);
console.log(`\nafter the clients have left\n${countsTable(result.quiet)}`);
if (values.json !== undefined) {
  const report = {
    machine,
    end,
    minutes,
    ratePerSecond,
    seed,
    usesRedis,
    changes: CHANGES,
    warmMs,
    slopes: Object.fromEntries(slopes),
    ...result,
  };
  await writeFile(values.json, JSON.stringify(report, undefined, 2));
}
