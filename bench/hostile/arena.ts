import type { Agent } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { Gateway } from '../gateway-program.ts';
import { type ClientOptions, keptConnections, McpClient } from '../mcp-client.ts';
import { longestBlockMs, type Sample, total } from '../metrics-text.ts';
import { bytesWritten, memory } from '../process-cost.ts';
import { Probe, type ProbeFigures } from '../probing.ts';
import type { Figures } from '../sheet.ts';
import type { Bench } from '../suite.ts';
import { UpstreamProgram } from '../upstream-program.ts';

const MIB = 1_048_576;
const CALM_MS = 1_500;
/** Time for the collection of garbage. */
const REST_MS = 1_500;

/** The surroundings of an attack: a gateway with the attacker's upstreams and a healthy one. */
export interface Arena {
  readonly gateway: Gateway;
  /** Disposed after the measurement. */
  readonly stack: AsyncDisposableStack;
  /** Opens a session over connections of its own. */
  readonly open: (options?: Partial<ClientOptions> & { readonly connections?: number }) => Promise<McpClient>;
  /** Resolves after this time. Rejects if the gateway has ended. */
  readonly pass: (ms: number) => Promise<void>;
}

export interface AttackOptions {
  /** The entries of the attacker's upstreams, by name. */
  readonly servers?: Readonly<Record<string, object>>;
  /** Performs the attack. Its result is added to the figures. */
  readonly attack: (arena: Arena) => Promise<Figures>;
}

function arenaOf(gateway: Gateway, stack: AsyncDisposableStack): Arena {
  const keep = (agent: Agent) => stack.defer(() => agent.destroy());
  return {
    gateway,
    stack,
    open: async ({ connections = 1, ...options } = {}) => {
      const agent = options.agent ?? keptConnections(connections);
      keep(agent);
      return await McpClient.open({ url: gateway.url, agent, ...options });
    },
    pass: async (ms) => {
      await delay(ms);
      if (!gateway.program.running) throw await gateway.program.failure('has died');
    },
  };
}

async function probeDuring(
  gateway: Gateway,
  bench: Bench,
  name: string,
  act: () => Promise<void>,
): Promise<ProbeFigures> {
  await using probe = await Probe.start(gateway.url, bench.dir, name, bench.othersCore);
  await act();
  return await probe.stop();
}

function heapMb(samples: readonly Sample[]): number {
  const heap = total(samples, 'nodejs_heap_size_used_bytes') + total(samples, 'nodejs_external_memory_bytes');
  return heap / MIB;
}

/**
 * Measures an attack: memory, disk, the longest block of the event loop, and a healthy upstream before and during it.
 */
export async function underAttack(bench: Bench, { servers = {}, attack }: AttackOptions): Promise<Figures> {
  const { dir, core, checkout } = bench;
  await using healthy = await UpstreamProgram.start(dir, bench.othersCore);
  const all = { healthy: { url: healthy.url }, ...servers };
  await using gateway = await Gateway.start({ name: 'gateway', checkout, dir, core, servers: all });
  await using stack = new AsyncDisposableStack();
  const arena = arenaOf(gateway, stack);
  const calm = await probeDuring(gateway, bench, 'probe-calm', () => arena.pass(CALM_MS));
  const before = {
    heapMb: heapMb(await gateway.metrics()),
    ...memory([gateway.pid]),
    written: bytesWritten(gateway.pid),
  };

  let figures: Figures = {};
  const probe = await probeDuring(gateway, bench, 'probe', async () => {
    figures = await attack(arena);
  });
  await arena.pass(REST_MS);
  const samples = await gateway.metrics();
  const after = memory([gateway.pid]);
  return {
    ...figures,
    'RSS +MB': after.rssMb - before.rssMb,
    'peak +MB': after.peakMb - before.rssMb,
    'heap +MB': heapMb(samples) - before.heapMb,
    'written MB': (bytesWritten(gateway.pid) - before.written) / MIB,
    'block ms': longestBlockMs(samples),
    'calm p50 ms': calm.p50Ms,
    'calm p99 ms': calm.p99Ms,
    'p50 ms': probe.p50Ms,
    'p99 ms': probe.p99Ms,
    'max ms': probe.maxMs,
    failures: probe.failures,
  };
}
