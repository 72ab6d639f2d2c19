import { setTimeout as delay } from 'node:timers/promises';
import { ChaosClient, type Clock } from './client.ts';
import { cause } from './faults.ts';
import type { Attempt, Recovery, Trial } from './history.ts';
import { LegacyCaller } from './legacy-caller.ts';
import { ModernCaller } from './modern-caller.ts';
import { LoopbackNetwork, NamespaceNetwork } from './network.ts';
import { type Plan, type PlannedClient, probe, UPSTREAMS, type UpstreamName } from './plan.ts';
import { SdkCaller } from './sdk-caller.ts';
import { keyOf, World, type WorldOptions } from './world.ts';

/** The longest time after the last fault until every client is served by every upstream. */
const RECOVERY_MS = 40_000; // subject
const PROBE_PAUSE_MS = 300;

interface Options extends WorldOptions {
  /** Puts each replica into a network namespace of its own. */
  readonly hasNamespaces?: boolean;
  /** Called with the logs of the replicas before they are removed. */
  readonly onLogs?: (logs: readonly string[]) => void;
}

/** Carries out a plan on processes of its own. */
export async function runTrial(plan: Plan, { onLogs, hasNamespaces = false, ...own }: Options = {}): Promise<Trial> {
  const network = hasNamespaces ? await NamespaceNetwork.open() : new LoopbackNetwork();
  await using world = await World.start(network, own);
  const beganMs = performance.now();
  const beganUnixMs = Date.now();
  const clock: Clock = { now: () => performance.now() - beganMs };
  const clients = plan.clients.map((planned) => openClient(planned, world.url, clock));
  const calling = Promise.all(clients.map((client) => client.run()));
  const causing = Promise.all(
    plan.faults.map((fault) =>
      cause(world, fault, clock).catch((thrown: unknown) => [`${fault.kind} at ${fault.atMs} ms: ${String(thrown)}`]),
    ),
  );
  const [broken] = await Promise.all([causing, calling]);
  const recoveries = await Promise.all(
    clients.flatMap((client) => UPSTREAMS.map((upstream) => recover(client, upstream))),
  );
  await Promise.all(clients.map((client) => client.close()));
  const ended = world.replicas.flatMap(({ isDown, process }, index) =>
    isDown || process.isRunning ? [] : [`replica ${index} (${process.pid}) has ended by itself`],
  );
  onLogs?.(world.replicas.map((_, index) => world.logsOf(index)));
  return {
    plan,
    histories: clients.map(({ history }) => history),
    ledger: world.ledger(beganUnixMs),
    recoveries,
    defects: [...broken.flat(), ...ended],
    longestChildMs: world.longestChildMs,
  };
}

function openClient(planned: PlannedClient, url: string, clock: Clock): ChaosClient {
  const { kind, principal, revision } = planned;
  const seen = new Set<string>();
  const key = keyOf(principal);
  const caller =
    kind === 'legacy'
      ? new LegacyCaller(url, key, revision, seen)
      : kind === 'modern'
        ? new ModernCaller(url, key, seen)
        : new SdkCaller(kind, url, key, seen);
  return new ChaosClient(planned, caller, seen, clock);
}

/** Calls an upstream until it answers. */
async function recover(client: ChaosClient, upstream: UpstreamName): Promise<Recovery> {
  const beganMs = performance.now();
  let last = '';
  for (let n = 1; performance.now() - beganMs < RECOVERY_MS; n++) {
    const attempt = await client.call(probe(client.planned, upstream, n), 1);
    const tookMs = Math.round(performance.now() - beganMs);
    if (attempt?.ends[0]?.kind === 'ok') return { client: client.planned.name, upstream, tookMs, last };
    last = lastWords(attempt);
    await delay(PROBE_PAUSE_MS);
  }
  return { client: client.planned.name, upstream, tookMs: undefined, last };
}

function lastWords(attempt: Attempt | undefined): string {
  const [end] = attempt?.ends ?? [];
  if (end?.kind === 'error') return `${end.code}: ${end.text}`;
  return end?.kind === 'closed' ? end.why : (end?.kind ?? 'no session');
}
