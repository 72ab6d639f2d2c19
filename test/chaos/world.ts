import { hash, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Child } from '../support/child.ts';
import { freePort } from '../support/free-port.ts';
import { type GatewayFile, type RunningGateway, startGateway } from '../support/gateway.ts';
import { marker } from '../support/leftovers.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { RedisServer, startSentinel } from '../support/redis.ts';
import { startBalancer } from '../support/replicas.ts';
import type { LedgerEntry } from './history.ts';
import type { Network } from './network.ts';
import { PRINCIPALS, type PrincipalName, REMOTE, type RemoteName, REPLICAS, UPSTREAMS } from './plan.ts';

const SERVERS = join(import.meta.dirname, '../fixtures/servers');
/** Longest time from SIGTERM to the end. Longer than a replica waits for its calls in flight: one may wait for the answer to a question whose client has gone. */
const END_MS = 75_000;
const STARTS = 30;
const REPATIENCE_MS = 300; // subject
/** Short enough for a trial to reach them, and long enough for a busy machine. */
const TIMEOUTS = { start: '8s', connect: '2s', firstByte: '5s', call: '4s', max: '8s' };
/** Returns the key of a principal. */
export function keyOf(principal: PrincipalName): string {
  return `a-key-of-${principal}-0123456789abcdef`;
}

/** One replica: a process that can be ended and started again under the same address. */
interface Replica {
  readonly dir: string;
  readonly file: GatewayFile;
  readonly url: string;
  process: RunningGateway;
  /** True while the trial has ended it. */
  isDown: boolean;
  /** The logs of its earlier processes. */
  readonly logs: string[];
}

/** A remote upstream: a process that is started again when it ends. */
interface Remote {
  readonly name: RemoteName;
  readonly port: number;
  process: Child;
}

export interface WorldOptions {
  /** Redis has a replica, and a sentinel watches both. */
  readonly hasSentinel?: boolean;
  /** Redis keeps the events of streams, so that any replica resumes them. */
  readonly keepsEvents?: boolean;
}

/** The Redis of a trial. */
interface TrialRedis extends AsyncDisposable {
  readonly server: RedisServer;
  readonly sentinelPort?: number;
  /** The URL that replicas use; undefined if they connect to the server itself, by a way that can be cut. */
  readonly sentinelUrl?: string;
}

/** Starts a Redis that keeps its data over a kill. */
async function durableRedis(dir: string, network: Network): Promise<TrialRedis> {
  await mkdir(join(dir, 'redis'));
  const options = ['--dir', join(dir, 'redis'), '--appendonly', 'yes', '--protected-mode', 'no'];
  const place = { host: network.hostOf('Redis'), via: network.via('Redis') };
  const server = await RedisServer.startAt(await freePort(), place, ...options);
  return { server, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

/** Starts a Redis with a replica and a sentinel, on loopback. */
async function watchedRedis(): Promise<TrialRedis> {
  const sentinel = await startSentinel();
  const { url, port, master } = sentinel;
  return {
    server: master,
    sentinelPort: port,
    sentinelUrl: url,
    [Symbol.asyncDispose]: () => sentinel[Symbol.asyncDispose](),
  };
}

/** The processes of one trial: three replicas behind nginx, Redis, and upstreams that record their calls. */
export class World implements AsyncDisposable {
  readonly dir: string;
  /** URL of `/mcp` at the balancer. */
  readonly url: string;
  readonly network: Network;
  readonly redis: RedisServer;
  /** The port of the sentinel that watches Redis; undefined if there is none. */
  readonly sentinelPort: number | undefined;
  readonly replicas: readonly Replica[];
  readonly remotes: ReadonlyMap<RemoteName, Remote>;
  /** The longest time from the end of a replica to that of its last child, in steps of 100 ms. */
  longestChildMs = 0;
  readonly #balancer: Child;
  readonly #redis: TrialRedis;
  #isClosing = false;

  private constructor(
    dir: string,
    url: string,
    network: Network,
    redis: TrialRedis,
    replicas: readonly Replica[],
    remotes: ReadonlyMap<RemoteName, Remote>,
    balancer: Child,
  ) {
    this.dir = dir;
    this.url = url;
    this.network = network;
    this.redis = redis.server;
    this.sentinelPort = redis.sentinelPort;
    this.#redis = redis;
    this.replicas = replicas;
    this.remotes = remotes;
    this.#balancer = balancer;
    for (const remote of remotes.values()) this.#restart(remote);
  }

  /** Starts all processes. The world closes the network. A start that fails leaves no process behind. */
  static async start(
    network: Network,
    { hasSentinel = false, keepsEvents = false }: WorldOptions = {},
  ): Promise<World> {
    await using stack = new AsyncDisposableStack();
    stack.use(network);
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-chaos-'));
    stack.defer(() => rm(dir, { recursive: true, force: true }));
    for (const name of UPSTREAMS) writeFileSync(ledgerFile(dir, name), '');
    const redis = stack.use(await (hasSentinel ? watchedRedis() : durableRedis(dir, network)));
    const remotes = new Map<RemoteName, Remote>();
    for (const name of REMOTE) {
      const port = await freePort();
      const process = stack.use(await startRemote(dir, name, network.host, port));
      remotes.set(name, { name, port, process });
    }
    const wrappingKeys = [randomBytes(32).toString('base64')];
    const starts = Array.from({ length: REPLICAS }, async (_, n) => {
      const replica = await startReplica(dir, n, network, { ...redis, keepsEvents }, remotes, wrappingKeys);
      stack.defer(() => replica.process.stop(END_MS));
      return replica;
    });
    // Those that have started are ended also if another one fails.
    await Promise.allSettled(starts);
    const replicas = await Promise.all(starts);
    const port = await freePort();
    const host = network.hostOf('balancer');
    const balancer = await startBalancer(dir, port, replicas, 'in turn', { host, via: network.via('balancer') });
    stack.move();
    return new World(dir, `http://${host}:${port}/mcp`, network, redis, replicas, remotes, balancer);
  }

  replica(index: number): Replica {
    const replica = this.replicas[index];
    if (replica === undefined) throw new Error(`no replica ${index}`);
    return replica;
  }

  /** Ends a replica, which stays down until `startReplica`. Returns false if it had to be killed. */
  async endReplica(index: number, signal: 'SIGKILL' | 'SIGTERM'): Promise<boolean> {
    const replica = this.replica(index);
    replica.isDown = true;
    replica.process.kill(signal);
    const late = delay(END_MS, 'late' as const, { ref: false });
    const isLate = (await Promise.race([replica.process.ended, late])) === 'late';
    if (isLate) replica.process.kill('SIGKILL');
    await replica.process.ended;
    replica.logs.push(replica.process.logs());
    return !isLate;
  }

  /** Starts a replica again. Without Redis a start fails, so it is tried several times, as a supervisor does. */
  async startReplica(index: number): Promise<void> {
    const replica = this.replica(index);
    for (let n = 1; replica.isDown; n++) {
      try {
        replica.process = await startGateway(replica.file, {
          dir: replica.dir,
          timeoutMs: PATIENCE_MS,
          via: this.network.via(index),
        });
        replica.isDown = false;
      } catch (thrown) {
        replica.logs.push(String(thrown));
        if (n === STARTS) throw thrown;
        await delay(REPATIENCE_MS);
      }
    }
  }

  /** Returns the logs of all processes of a replica. */
  logsOf(index: number): string {
    const replica = this.replica(index);
    return [...replica.logs, replica.isDown ? '' : replica.process.logs()].join('\n--- new process\n');
  }

  /** Returns all executions, with times since `beganMs` (Unix). */
  ledger(beganMs: number): LedgerEntry[] {
    return UPSTREAMS.flatMap((name) =>
      readFileSync(ledgerFile(this.dir, name), 'utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map((line): LedgerEntry => {
          const entry: LedgerEntry = JSON.parse(line);
          return { ...entry, atMs: entry.atMs - beganMs };
        }),
    );
  }

  /** Starts a remote upstream again each time that it ends. */
  #restart(remote: Remote): void {
    void remote.process.ended.then(async () => {
      if (this.#isClosing) return;
      remote.process = await startRemote(this.dir, remote.name, this.network.host, remote.port);
      if (this.#isClosing) await remote.process.stop();
      else this.#restart(remote);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosing = true;
    await this.#balancer.stop();
    await Promise.allSettled(
      this.replicas.map(async ({ isDown, process }) => {
        if (!isDown) await process.stop();
      }),
    );
    for (const { process } of this.remotes.values()) await process.stop();
    await this.#redis[Symbol.asyncDispose]();
    await this.network[Symbol.asyncDispose]();
    await rm(this.dir, { recursive: true, force: true });
  }
}

function ledgerFile(dir: string, upstream: string): string {
  return join(dir, `${upstream}.ledger`);
}

function ledgerEnv(dir: string, upstream: string): Readonly<Record<string, string>> {
  return { LEDGER: ledgerFile(dir, upstream), LEDGER_NAME: upstream };
}

async function startRemote(dir: string, name: RemoteName, host: string, port: number): Promise<Child> {
  const env = { ...marker(), ...ledgerEnv(dir, name), LEDGER_HOST: host };
  const child = await Child.start(process.execPath, [join(SERVERS, 'ledger-http.ts'), name, String(port)], { env });
  try {
    await child.waitForLine((line) => /^listening on/.exec(line)?.[0], PATIENCE_MS);
    return child;
  } catch (thrown) {
    await child.stop();
    throw thrown;
  }
}

async function startReplica(
  dir: string,
  index: number,
  network: Network,
  redis: Pick<TrialRedis, 'server' | 'sentinelUrl'> & { readonly keepsEvents: boolean },
  remotes: ReadonlyMap<RemoteName, Remote>,
  wrappingKeys: readonly string[],
): Promise<Replica> {
  const own = join(dir, `replica-${index}`);
  await mkdir(own);
  const [port, internal] = [await freePort(), await freePort()];
  const ways = await network.open(index, redis.server.port, internal);
  const host = network.hostOf(index);
  const url = (name: RemoteName) => `http://${network.host}:${remotes.get(name)?.port}`;
  const apiKeys = PRINCIPALS.map((name) => ({ name, sha256: hash('sha256', keyOf(name)) }));
  const file: GatewayFile = {
    mcpServers: {
      stdio: {
        command: process.execPath,
        args: [join(SERVERS, 'ledger-stdio.ts')],
        env: ledgerEnv(dir, 'stdio'),
        timeouts: TIMEOUTS,
      },
      legacy: { url: `${url('legacy')}/mcp`, era: 'legacy', timeouts: TIMEOUTS },
      modern: { url: `${url('modern')}/mcp`, era: 'modern', timeouts: TIMEOUTS },
      sse: { type: 'sse', url: `${url('sse')}/sse`, timeouts: TIMEOUTS },
    },
    gateway: {
      listen: `${host}:${port}`,
      allowedHosts: ['127.0.0.1', network.hostOf('balancer')],
      auth: { apiKeys },
      accessLog: 'all',
      redis: { ...ways, url: redis.sentinelUrl ?? ways.url, wrappingKeys, events: redis.keepsEvents },
    },
  };
  const started = await startGateway(file, { dir: own, timeoutMs: PATIENCE_MS, via: network.via(index) });
  return { dir: own, file, url: started.url, process: started, isDown: false, logs: [] };
}
