import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { PATIENCE_MS } from '../support/patience.ts';
import { childrenOf, isGone } from '../support/stdio.ts';
import type { Clock } from './client.ts';
import type { Fault, UpstreamName } from './plan.ts';
import type { World } from './world.ts';

const POLL_MS = 100;

/** Causes one fault at its time, and ends it. Resolves when it has ended. @returns the promises of the gateway that it broke. */
export async function cause(world: World, fault: Fault, clock: Clock): Promise<string[]> {
  await delay(Math.max(0, fault.atMs - clock.now()));
  const until = () => delay(Math.max(0, fault.untilMs - clock.now()));
  switch (fault.kind) {
    case 'kill replica':
    case 'end replica':
      return await endReplica(world, fault.replica, fault.kind, until);
    case 'stop replica': {
      const { process } = world.replica(fault.replica);
      process.pause();
      await until();
      process.resume();
      return [];
    }
    case 'reload wrong config':
    case 'reload config':
      await reload(world, fault.replica, fault.kind, until);
      return [];
    case 'cut replica from Redis':
    case 'cut replica from others': {
      const way = fault.kind === 'cut replica from Redis' ? 'Redis' : 'others';
      world.network.cut(fault.replica, way);
      await until();
      world.network.restore(fault.replica, way);
      return [];
    }
    case 'partition from Redis':
    case 'partition from others':
    case 'partition from Redis and others': {
      const ways = (['Redis', 'others'] as const).filter((way) => fault.kind.includes(way));
      for (const way of ways) world.network.cut(fault.replica, way, fault.direction);
      await until();
      for (const way of ways) world.network.restore(fault.replica, way, fault.direction);
      return [];
    }
    case 'kill Redis':
      await world.redis.kill();
      await until();
      await world.redis.restart();
      return [];
    case 'stop Redis':
      world.redis.pause();
      await until();
      world.redis.resume();
      return [];
    case 'flush Redis':
      await inlineCommand(world.network.hostOf('Redis'), world.redis.port, 'FLUSHALL');
      return [];
    case 'fail Redis over':
      return await failOver(world);
    case 'kill Redis master':
      await world.redis.kill();
      return [];
    case 'kill upstream':
      for (const pid of pidsOf(world, fault.upstream)) kill(pid, 'SIGKILL');
      return [];
    case 'stop upstream': {
      const pids = pidsOf(world, fault.upstream);
      for (const pid of pids) kill(pid, 'SIGSTOP');
      await until();
      for (const pid of pids) kill(pid, 'SIGCONT');
      return [];
    }
    case 'forget sessions':
      for (const pid of pidsOf(world, fault.upstream)) kill(pid, 'SIGUSR2');
      return [];
  }
}

async function endReplica(
  world: World,
  index: number,
  kind: 'kill replica' | 'end replica',
  until: () => Promise<void>,
): Promise<string[]> {
  const { pid } = world.replica(index).process;
  const children = childrenOf(pid);
  const hasEnded = await world.endReplica(index, kind === 'kill replica' ? 'SIGKILL' : 'SIGTERM');
  const endedMs = performance.now();
  const leaving = left(children).finally(() => {
    world.longestChildMs = Math.max(world.longestChildMs, Math.round(performance.now() - endedMs));
  });
  await until();
  await world.startReplica(index);
  const alive = await leaving;
  return [
    ...(hasEnded ? [] : [`replica ${index} (${pid}) does not end after SIGTERM`]),
    ...(alive.length === 0 ? [] : [`replica ${index} (${pid}): children outlive it: ${alive.join()}`]),
  ];
}

/** Returns the processes that are still alive after a moment. */
async function left(pids: readonly number[]): Promise<number[]> {
  const lateMs = performance.now() + PATIENCE_MS;
  let alive = pids.filter((pid) => !isGone(pid));
  while (alive.length > 0 && performance.now() < lateMs) {
    await delay(POLL_MS);
    alive = alive.filter((pid) => !isGone(pid));
  }
  return alive;
}

async function reload(
  world: World,
  index: number,
  kind: 'reload wrong config' | 'reload config',
  until: () => Promise<void>,
): Promise<void> {
  const { process, file } = world.replica(index);
  if (kind === 'reload wrong config') await writeFile(process.configFile, '{"mcpServers": {"stdio": ');
  else await process.configure({ ...file, gateway: { ...file.gateway, limits: { sessionsPerPrincipal: 900 } } });
  signal(world, index);
  await until();
  await process.configure(file);
  signal(world, index);
}

function signal(world: World, index: number): void {
  const { isDown, process } = world.replica(index);
  if (!isDown) kill(process.pid, 'SIGHUP');
}

/** Returns the command line of a process; empty if it has ended. */
function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1');
  } catch {
    return '';
  }
}

/** Sends one command to a Redis or a sentinel. Returns its reply; empty if there is none. */
async function inlineCommand(host: string, port: number, command: string): Promise<string> {
  const socket = connect(port, host);
  socket.on('error', () => undefined);
  let reply = '';
  socket.on('data', (chunk: Buffer) => {
    reply += chunk.toString('latin1');
  });
  socket.end(`${command}\r\n`);
  await once(socket, 'close');
  return reply.trim();
}

async function failOver({ network, sentinelPort }: World): Promise<string[]> {
  if (sentinelPort === undefined) return ['this trial has no sentinel'];
  const reply = await inlineCommand(network.hostOf('Redis'), sentinelPort, 'SENTINEL FAILOVER main');
  return reply === '+OK' ? [] : [`the sentinel does not fail over: ${reply}`];
}

/** Returns the processes of an upstream. Those of `stdio` are children of the replicas. */
function pidsOf(world: World, upstream: UpstreamName): readonly number[] {
  if (upstream !== 'stdio') {
    const remote = world.remotes.get(upstream);
    return remote === undefined ? [] : [remote.process.pid];
  }
  const children = world.replicas.filter(({ isDown }) => !isDown).flatMap(({ process }) => childrenOf(process.pid));
  return children.filter((pid) => commandOf(pid).includes('ledger-stdio'));
}

/** Sends a signal to a process that may have ended. */
function kill(pid: number, signalName: NodeJS.Signals): void {
  if (!isGone(pid)) process.kill(pid, signalName);
}
