import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { beginEvents, eventOf, FixtureServer, textResult, toolNamed } from '../fixture-server.ts';
import { Gateway, type GatewayOptions, OWN_CHECKOUT, writeConfig } from '../gateway-program.ts';
import { WITH_HEAP_REPORT } from '../heap.ts';
import { makePrincipals } from '../keys.ts';
import { Program } from '../program.ts';
import { startRedis } from '../replicas.ts';
import { UpstreamProgram } from '../upstream-program.ts';
import { COMING, OWN_PROCESS, SLOW, SLOW_MS, type SoakJob } from './job.ts';
import { takeSample, type SoakSample } from './samples.ts';
import { parseTally, type Tallied } from './tally.ts';

/** More principals than one, so that their bounds and shares take part. */
const PRINCIPALS = 4;
const STOP_MS = 60_000;

/**
 * Settings that differ from the defaults, with the reason. Sessions that are left behind, their processes and their records last for
 * half an hour to 30 days by default, so that their number would grow during the whole run.
 */
const CHANGED = {
  sessions: { idle: '1m', maxAge: '5m' },
} as const;
const IDLE = { idle: '1m' } as const;
export const CHANGES =
  'sessions.idle 1m, sessions.maxAge 5m, idle 1m of every upstream (so that what is left behind ends within the run), 4 API keys';

export interface WorldOptions {
  readonly dir: string;
  readonly ratePerSecond: number;
  readonly seed: number;
  readonly usesRedis: boolean;
}

/** Answers after a while, as an event. It stops if the gateway gives up. */
function startSlow(): Promise<FixtureServer> {
  return FixtureServer.start({
    capabilities: { tools: {} },
    answer: ({ id, method, response }) => {
      if (method !== 'tools/call') return { tools: [toolNamed('slow')] };
      beginEvents(response);
      const timer = setTimeout(
        () => response.end(eventOf({ jsonrpc: '2.0', id, result: textResult('late') })),
        SLOW_MS,
      );
      response.once('close', () => clearTimeout(timer));
      return undefined;
    },
  });
}

function stdio(isolation: 'shared' | 'session'): object {
  const script = fileURLToPath(new URL('../upstream-stdio.ts', import.meta.url));
  return { command: process.execPath, args: [script, '2025-11-25'], isolation, ...IDLE };
}

/** A gateway with upstreams of all kinds, and its clients in a process of their own. */
export class World implements AsyncDisposable {
  readonly gateway: Gateway;
  readonly #stack: AsyncDisposableStack;
  readonly #clients: Program;
  readonly #options: GatewayOptions;
  readonly #redis: Redis | undefined;

  private constructor(
    stack: AsyncDisposableStack,
    parts: { gateway: Gateway; clients: Program; options: GatewayOptions; redis: Redis | undefined },
  ) {
    this.#stack = stack;
    this.gateway = parts.gateway;
    this.#clients = parts.clients;
    this.#options = parts.options;
    this.#redis = parts.redis;
  }

  static async start({ dir, ratePerSecond, seed, usesRedis }: WorldOptions): Promise<World> {
    await using stack = new AsyncDisposableStack();
    const remote = stack.use(await UpstreamProgram.start(dir, undefined));
    const modern = stack.use(await UpstreamProgram.start(dir, undefined, '2026-07-28'));
    const slow = stack.use(await startSlow());
    const redis = usesRedis ? await startRedis('redis', dir, undefined) : undefined;
    if (redis !== undefined) stack.use(redis.program);
    const { authorizations, settings } = makePrincipals(PRINCIPALS);
    const servers = {
      remote: { url: remote.url, ...IDLE },
      modern: { url: modern.url, ...IDLE },
      [SLOW]: { url: slow.url, ...IDLE },
      shared: stdio('shared'),
      [OWN_PROCESS]: stdio('session'),
    };
    const options: GatewayOptions = {
      name: 'gateway',
      checkout: OWN_CHECKOUT,
      dir,
      core: 'every',
      servers,
      settings: { ...settings, ...CHANGED, accessLog: 'auto', ...redis?.settings },
      env: WITH_HEAP_REPORT,
    };
    const gateway = stack.use(await Gateway.start(options));
    const job: SoakJob = {
      url: gateway.url,
      sseUrl: new URL('/sse', gateway.url).href,
      authorizations,
      ratePerSecond,
      seed,
    };
    const script = fileURLToPath(new URL('../soak-clients.ts', import.meta.url));
    const clients = stack.use(await Program.start('clients', [process.execPath, script, JSON.stringify(job)], dir));
    const keys = redis === undefined ? undefined : new Redis(redis.url);
    stack.defer(() => keys?.disconnect());
    return new World(stack.move(), { gateway, clients, options, redis: keys });
  }

  /** @throws {Error} if the gateway or its clients have ended. */
  async sample(): Promise<SoakSample> {
    if (!this.#clients.running) throw await this.#clients.failure('have ended');
    return await this.sampleGateway();
  }

  async sampleGateway(): Promise<SoakSample> {
    const redis = this.#redis;
    const keys = redis === undefined ? undefined : () => redis.dbsize();
    return await takeSample(this.gateway, join(this.#options.dir, this.#options.name, 'state'), keys);
  }

  /** Reloads the config, with or without another upstream. */
  async reload(isThere: boolean): Promise<void> {
    const { servers } = this.#options;
    await writeConfig({ ...this.#options, servers: isThere ? { ...servers, [COMING]: stdio('shared') } : servers });
  }

  /** Stops the clients and returns what they have done. */
  async stopClients(): Promise<Tallied> {
    this.#clients.child.kill('SIGTERM');
    await this.#clients.exited(STOP_MS);
    return parseTally(await this.#clients.log());
  }

  /** Returns the warnings and errors of the gateway's log by their text. */
  async complaints(): Promise<Readonly<Record<string, number>>> {
    const counts = new Map<string, number>();
    for (const [, msg = ''] of (await this.gateway.program.log()).matchAll(
      /^\{"level":"?(?:warn|error|fatal|[456]0)"?.*?"msg":"([^"]+)"/gm,
    )) {
      counts.set(msg, (counts.get(msg) ?? 0) + 1);
    }
    return Object.fromEntries(counts);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}
