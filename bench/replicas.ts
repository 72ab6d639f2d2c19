import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { findRedis } from '../test/support/redis-program.ts';
import { Gateway, type GatewayOptions } from './gateway-program.ts';
import { listenOnLoopback } from './loopback.ts';
import { pinned, Program } from './program.ts';

const START_MS = 10_000;

/** Two gateways that share a Redis, and the programs that they consist of. */
export interface Replicas {
  readonly gateways: readonly [Gateway, Gateway];
  readonly programs: readonly Program[];
}

async function freePort(): Promise<number> {
  const server = createServer();
  const port = await listenOnLoopback(server);
  server.close();
  await once(server, 'close');
  return port;
}

/** Starts a Redis that keeps nothing on disk. @throws {Error} if it cannot be had. */
export async function startRedis(
  name: string,
  dir: string,
  core: number | undefined,
): Promise<{ readonly program: Program; readonly url: string; readonly settings: object }> {
  const { server, env } = await findRedis();
  const port = await freePort();
  const command = [server, '--port', `${port}`, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'];
  const program = await Program.start(name, pinned(core, command), dir, env);
  await program.until(async () => (await program.log()).includes('Ready to accept') || undefined, START_MS);
  const wrappingKeys = [randomBytes(32).toString('base64')];
  const url = `redis://127.0.0.1:${port}`;
  return { program, url, settings: { redis: { url, wrappingKeys } } };
}

/** Starts two replicas of a gateway. @param redisCore the core of Redis, whose CPU is not that of the gateway. */
export async function startReplicas(options: GatewayOptions, redisCore: number | undefined): Promise<Replicas> {
  const programs: Program[] = [];
  try {
    const redis = await startRedis(`${options.name}-redis`, options.dir, redisCore);
    programs.push(redis.program);
    const start = async (which: string) => {
      const settings = { ...options.settings, ...redis.settings };
      const gateway = await Gateway.start({ ...options, name: `${options.name}-${which}`, settings });
      programs.push(gateway.program);
      return gateway;
    };
    return { gateways: [await start('a'), await start('b')], programs };
  } catch (thrown) {
    await Promise.all(programs.map((program) => program[Symbol.asyncDispose]()));
    throw thrown;
  }
}
