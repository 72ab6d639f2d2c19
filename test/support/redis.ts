import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import type { RedisConfig } from '../../src/config/values/config.ts';
import { parseRedisUrl } from '../../src/config/schema/redis-url.ts';
import type { RedisAccess } from '../../src/store/redis/access.ts';
import { RedisConnection } from '../../src/store/redis/connection.ts';
import { redisKeys } from '../../src/store/redis/keys.ts';
import { SealedBox } from '../../src/store/redis/sealed-box.ts';
import { makeCertificate } from './certificate.ts';
import { Child } from './child.ts';
import { freePort } from './free-port.ts';
import { PATIENCE_MS } from './patience.ts';
import { findRedis, type RedisProgram } from './redis-program.ts';
import { waitUntil } from './wait-until.ts';

/** Another program may take the port between its choice and its use. */
const TRIES = 5;
/** The name that Redis gives its file. */
const SNAPSHOT = 'dump.rdb';

let programs: Promise<RedisProgram> | undefined;

/** The address that a server listens on, and a command that starts the command after it, such as in a network namespace. */
interface ServerPlace {
  readonly host: string;
  readonly via: readonly string[];
}

const LOOPBACK: ServerPlace = { host: '127.0.0.1', via: [] };

/** A real `redis-server` that keeps nothing on disk. It is on a port of 127.0.0.1 by default. */
export class RedisServer implements AsyncDisposable {
  readonly port: number;
  readonly #place: ServerPlace;
  readonly #options: readonly string[];
  #child: Child;
  /** The file of the last {@link save}. */
  #snapshot: Buffer | undefined;

  private constructor(port: number, place: ServerPlace, options: readonly string[], child: Child) {
    this.port = port;
    this.#place = place;
    this.#options = options;
    this.#child = child;
  }

  /** Starts a server. @param options of its command line, such as `--maxmemory 1mb`. */
  static async start(...options: readonly string[]): Promise<RedisServer> {
    for (let attempt = 1; ; attempt++) {
      const port = await freePort();
      try {
        return await RedisServer.startAt(port, LOOPBACK, ...options);
      } catch (thrown) {
        if (attempt === TRIES) throw thrown;
      }
    }
  }

  /** Starts a server on this port. */
  static async startAt(port: number, place: ServerPlace, ...options: readonly string[]): Promise<RedisServer> {
    return new RedisServer(port, place, options, await startServer(port, place, options));
  }

  get url(): string {
    return `redis://${this.#place.host}:${this.port}`;
  }

  /** Stops the process without ending it: connections stay open and nothing is answered. */
  pause(): void {
    this.#child.kill('SIGSTOP');
  }

  resume(): void {
    this.#child.kill('SIGCONT');
  }

  /** Removes everything. */
  async flush(): Promise<void> {
    await this.#command('FLUSHALL');
  }

  /** Returns the names of the entries that match a glob. */
  async keys(glob: string): Promise<string[]> {
    return [await this.#command('KEYS', glob)].flat().map(String);
  }

  async #command(name: string, ...args: readonly string[]): Promise<unknown> {
    const times = { commandMs: PATIENCE_MS };
    const connection = await RedisConnection.open(redisConfig(this.url), { onCommandFailed: () => undefined }, times);
    try {
      return await connection.command(name, ...args);
    } finally {
      await connection[Symbol.asyncDispose]();
    }
  }

  /** Saves the data, for a {@link restart}. */
  async save(): Promise<void> {
    await this.#command('SAVE');
    const [, dir] = [await this.#command('CONFIG', 'GET', 'dir')].flat();
    this.#snapshot = await readFile(join(String(dir), SNAPSHOT));
  }

  /** Returns all that the server has: its file, without compression. */
  async contents(): Promise<string> {
    await this.#command('CONFIG', 'SET', 'rdbcompression', 'no');
    await this.save();
    return this.#snapshot?.toString('latin1') ?? '';
  }

  /** Reads all commands that clients send from now on, with their arguments. */
  async monitor(): Promise<{ readonly text: () => string } & Disposable> {
    const socket = connect(this.port, this.#place.host);
    let text = '';
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      text += chunk;
    });
    socket.write('MONITOR\r\n');
    await waitUntil(() => text.startsWith('+OK'));
    return { text: () => text, [Symbol.dispose]: () => socket.destroy() };
  }

  /** Kills the server, whose data since the last {@link save} is lost. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#child.ended;
  }

  /** Starts the server again on its port, with the data of the last {@link save}, if there was one. */
  async restart(): Promise<void> {
    this.#child = await startServer(this.port, this.#place, this.#options, this.#snapshot);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}

async function startServer(
  port: number,
  { host, via }: ServerPlace,
  options: readonly string[],
  snapshot?: Buffer,
): Promise<Child> {
  programs ??= findRedis();
  const { server, env } = await programs;
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-redis-'));
  if (snapshot !== undefined) await writeFile(join(dir, SNAPSHOT), snapshot);
  const fixed = ['--port', `${port}`, '--bind', host, '--save', '', '--appendonly', 'no', '--dir', dir];
  const [command = '', ...args] = [...via, server, ...fixed, ...options];
  const child = await Child.start(command, args, { env });
  void child.ended.then(() => rm(dir, { recursive: true, force: true }));
  await child.waitForLine((line) => (line.includes('Ready to accept connections') ? true : undefined));
  return child;
}

/** Returns a server for all tests of a file, which ends after them. Call it outside of tests. */
export function sharedRedis(): Promise<RedisServer> {
  const server = RedisServer.start();
  after(async () => await (await server)[Symbol.asyncDispose]());
  return server;
}

/** Returns the settings for a Redis at this URL, with keys and a prefix of their own. */
export function redisConfig(url: string, own: Partial<RedisConfig> = {}): RedisConfig {
  const target = parseRedisUrl(url);
  if (target === undefined) throw new Error(`not a URL of Redis: ${url}`);
  return {
    target,
    caFile: undefined,
    prefix: `t${randomUUID()}`.slice(0, 32),
    wrappingKeys: [randomBytes(32).toString('base64url')],
    internal: undefined,
    advertise: undefined,
    events: false,
    ...own,
  };
}

const opened = new Set<RedisConnection>();
after(async () => {
  for (const connection of opened) await connection[Symbol.asyncDispose]();
});

/**
 * Connects as one process of a gateway. The connection ends after the tests of the file.
 *
 * @param commandMs the longest time of a command.
 */
export async function openRedis(config: RedisConfig, commandMs = PATIENCE_MS): Promise<RedisAccess> {
  const connection = await RedisConnection.open(config, { onCommandFailed: () => undefined }, { commandMs });
  opened.add(connection);
  return { connection, keys: redisKeys(config.prefix), box: new SealedBox(config.wrappingKeys) };
}

/** Starts three nodes of a cluster, and waits until it serves. */
export async function startCluster(): Promise<
  { readonly url: string; readonly nodes: readonly RedisServer[] } & AsyncDisposable
> {
  await using stack = new AsyncDisposableStack();
  const options = ['--cluster-enabled', 'yes', '--cluster-node-timeout', '2000'];
  const nodes: RedisServer[] = [];
  for (const n of [0, 1, 2]) {
    nodes.push(stack.use(await RedisServer.start(...options, '--cluster-config-file', `nodes-${n}.conf`)));
  }
  const direct = await Promise.all(nodes.map(async (node) => (await openRedis(redisConfig(node.url))).connection));
  const slots = 16_384;
  for (const [n, connection] of direct.entries()) {
    const [from, to] = [Math.ceil((slots * n) / 3), Math.ceil((slots * (n + 1)) / 3) - 1];
    await connection.command('CLUSTER', 'ADDSLOTSRANGE', from, to);
    for (const node of nodes) await connection.command('CLUSTER', 'MEET', '127.0.0.1', node.port);
  }
  await waitUntil(async () => {
    const infos = await Promise.all(direct.map((connection) => connection.command('CLUSTER', 'INFO')));
    return infos.every((info) => /cluster_state:ok/.test(String(info)) && /cluster_known_nodes:3/.test(String(info)));
  });
  for (const connection of direct) await connection[Symbol.asyncDispose]();
  const hosts = nodes.map(({ port }) => `127.0.0.1:${port}`).join(',');
  const servers = stack.move();
  return {
    url: `redis+cluster://${hosts}`,
    nodes,
    [Symbol.asyncDispose]: () => servers.disposeAsync(),
  };
}

/** Starts a master with a replica, and a sentinel that watches them. */
export async function startSentinel(): Promise<
  {
    readonly url: string;
    readonly port: number;
    readonly master: RedisServer;
    readonly replica: RedisServer;
  } & AsyncDisposable
> {
  const master = await RedisServer.start();
  const replica = await RedisServer.start('--replicaof', `127.0.0.1 ${master.port}`);
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-sentinel-'));
  const file = join(dir, 'sentinel.conf');
  const port = await freePort();
  const lines = [
    `port ${port}`,
    'bind 127.0.0.1',
    `dir ${dir}`,
    `sentinel monitor main 127.0.0.1 ${master.port} 1`,
    'sentinel down-after-milliseconds main 1000',
    'sentinel failover-timeout main 3000',
  ];
  await writeFile(file, `${lines.join('\n')}\n`);
  const { server, env } = await findRedis();
  const sentinel = await Child.start(server, [file, '--sentinel'], { env });
  await sentinel.waitForLine((line) => (line.includes('+slave') ? true : undefined));
  return {
    url: `redis+sentinel://127.0.0.1:${port}/main`,
    port,
    master,
    replica,
    [Symbol.asyncDispose]: async () => {
      await sentinel.stop();
      await Promise.all([master, replica].map((each) => each[Symbol.asyncDispose]()));
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Starts a server that accepts TLS alone, and a certificate of its own. */
export async function startTls(): Promise<{ readonly url: string; readonly caFile: string } & AsyncDisposable> {
  const made = await makeCertificate();
  const { certFile: pem, keyFile: key } = made;
  const port = await freePort();
  const tls = ['--tls-port', `${port}`, '--tls-cert-file', pem, '--tls-key-file', key, '--tls-ca-cert-file', pem];
  const server = await RedisServer.start(...tls, '--tls-auth-clients', 'no');
  return {
    url: `rediss://127.0.0.1:${port}`,
    caFile: pem,
    [Symbol.asyncDispose]: async () => {
      await server[Symbol.asyncDispose]();
      await made[Symbol.asyncDispose]();
    },
  };
}
