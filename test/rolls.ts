/**
 * Restarts three replicas behind the balancer of the compose file one after the other, again and again, under load, and prints what failed:
 *
 *     node test/rolls.ts [--rolls 10] [--rate 200] [--long SECONDS] [--older]
 *
 * `--older` begins with an older version, and upgrades and downgrades in turn. `--rate` is the number of calls a second, `--long` the time of a few long calls. Ends with 1 if a call, a stream or a session has failed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { startRemote } from './support/nonce-remote.ts';
import { OlderVersion } from './support/older-version.ts';
import { MISSING, Replicas } from './support/replicas.ts';
import { RollLoad, type RollOutcome } from './support/roll-load.ts';

const { values } = parseArgs({
  options: {
    rolls: { type: 'string', default: '10' },
    rate: { type: 'string', default: '200' },
    long: { type: 'string', default: '2' },
    older: { type: 'boolean', default: false },
  },
});

/** Calls a second of one client. */
const CLIENT_RATE = 5;
/** The time of a short call at the upstream. */
const SHORT_MS = 20; // subject
const STEADY_MS = 1_000; // subject

function percentile(sorted: readonly number[], share: number): string {
  return `${Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0)} ms`;
}

function report(name: string, { nonces, failures, slow, durationsMs }: RollOutcome): string {
  const sorted = durationsMs.toSorted((a, b) => a - b);
  const shares = [0.5, 0.99, 0.999, 1].map((share) => percentile(sorted, share));
  return `${name}: ${nonces.length} calls answered, ${failures.length} failures, ${slow} refused because Redis was slow; median, p99, p99.9, longest: ${shares.join(', ')}`;
}

if (MISSING !== undefined) throw new Error(MISSING);
await using older = values.older ? await OlderVersion.checkout() : undefined;
await using remote = await startRemote();
// The load opens sessions without end, and ends none.
const gateway = { limits: { sessionsPerPrincipal: 100_000 } };
const mcpServers = { nonce: { url: `${remote.url}/mcp` } };
const first = Array.from({ length: 3 }, () => older?.program);
await using replicas = await Replicas.start(3, { mcpServers, gateway }, {}, 'ready in turn', first);
const clients = Math.max(2, Math.round(Number(values.rate) / CLIENT_RATE));
const sessions = Math.ceil(clients / 2);
await using short = await RollLoad.start(replicas.url, {
  name: 1,
  sessions,
  moderns: clients - sessions,
  streams: 4,
  pauseMs: SHORT_MS,
  betweenMs: 1_000 / CLIENT_RATE - SHORT_MS,
});
await using long = await RollLoad.start(replicas.url, {
  name: 2,
  sessions: 2,
  moderns: 2,
  streams: 0,
  pauseMs: Number(values.long) * 1_000,
});
const beganMs = performance.now();
for (let roll = 1; roll <= Number(values.rolls); roll++) {
  for (const index of replicas.each.keys()) {
    await replicas.restart(index, roll % 2 === 0 ? older?.program : undefined);
    await sleep(STEADY_MS);
  }
  console.log(`roll ${roll}: ${short.answered + long.answered} calls so far`);
}
const outcomes = [await short.stop(), await long.stop()];
const seconds = (performance.now() - beganMs) / 1_000;
const ledger = await remote.ledger();
const nonces = outcomes.flatMap((outcome) => outcome.nonces);
const twice = Object.entries(ledger).filter(([, { ran }]) => ran > 1);
const lost = nonces.filter((nonce) => ledger[nonce]?.ran !== 1);
console.log(
  `${values.rolls} rolls of three replicas in ${seconds.toFixed(0)} s, ${(nonces.length / seconds).toFixed(0)} calls a second`,
);
console.log(outcomes.map((outcome, n) => report(n === 0 ? 'short' : 'long', outcome)).join('\n'));
console.log(`calls that ran more than once: ${twice.length}; answered calls without a run: ${lost.length}`);
const failures = outcomes.flatMap((outcome) => outcome.failures);
for (const failure of failures.slice(0, 20)) console.log(failure);
process.exitCode = failures.length + twice.length + lost.length === 0 ? 0 : 1;
