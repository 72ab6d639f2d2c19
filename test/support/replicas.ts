import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Child } from './child.ts';
import { freePort } from './free-port.ts';
import { type GatewayFile, type RunningGateway, startGateway } from './gateway.ts';
import { findHaproxy, startHaproxy } from './haproxy.ts';
import { debianProgram } from './programs.ts';
import { RedisServer } from './redis.ts';
import { waitUntil } from './wait-until.ts';

const NGINX = await debianProgram('nginx', 'nginx', 'usr/sbin/nginx');
const HAPROXY = await findHaproxy();

/** Longer than a replica waits for its requests in flight. */
const DRAINED_MS = 75_000;

/** The reason why these tests cannot run; undefined if they can. */
export const MISSING: string | undefined =
  'missing' in NGINX ? NGINX.missing : 'missing' in HAPROXY ? HAPROXY.missing : undefined;

/**
 * The order in which the balancer chooses the replica of a request. An nginx takes all in turn or at random, and asks none for its readiness; the HAProxy of
 * the compose file takes those in turn that say that they are ready.
 */
export type Spread = 'in turn' | 'at random' | 'ready in turn';

/** Replicas of one gateway as processes, with a real Redis, behind a real balancer. */
export class Replicas implements AsyncDisposable {
  readonly redis: RedisServer;
  /** URL of `/mcp` at the balancer. */
  readonly url: string;
  readonly #each: RunningGateway[];
  readonly #config: GatewayFile;
  readonly #balancer: Child;
  readonly #dir: string;

  private constructor(
    redis: RedisServer,
    each: RunningGateway[],
    config: GatewayFile,
    url: string,
    balancer: Child,
    dir: string,
  ) {
    this.redis = redis;
    this.#each = each;
    this.#config = config;
    this.url = url;
    this.#balancer = balancer;
    this.#dir = dir;
  }

  /** Returns the URL of `/mcp` at the balancer, or of `/mcp/<name>` for an upstream or profile. */
  endpoint(name?: string): string {
    return name === undefined ? this.url : `${this.url}/${name}`;
  }

  logs(): string {
    return this.each.map((replica, n) => `replica ${n}:\n${replica.logs()}`).join('\n');
  }

  /** Waits until each replica knows all others. */
  async untilAllKnown(): Promise<void> {
    const isKnown = new RegExp(`^linkspan_replicas ${this.each.length}$`, 'm');
    for (const { operatorUrl } of this.each)
      await waitUntil(async () => isKnown.test(await (await fetch(`${operatorUrl}/metrics`)).text()));
  }

  /** Returns what the balancer has written about requests that failed. It tries a refused connection again elsewhere, so that is no failure. */
  balancerLogs(): string {
    const lines = this.#balancer.logs().split('\n');
    return lines.filter((line) => !line.includes('(111: Connection refused)')).join('\n');
  }

  get each(): readonly RunningGateway[] {
    return this.#each;
  }

  /**
   * Starts that many replicas of the same config. @param own settings of `gateway.redis`. @param programs the `main.ts` of each replica; default:
   * that of this tree.
   */
  static async start(
    count: number,
    { gateway = {}, ...file }: GatewayFile,
    own: object = {},
    spread: Spread = 'in turn',
    programs: readonly (string | undefined)[] = [],
  ): Promise<Replicas> {
    // A start that fails leaves nothing behind.
    await using stack = new AsyncDisposableStack();
    const redis = stack.use(await RedisServer.start());
    const settings = { url: redis.url, wrappingKeys: [randomBytes(32).toString('base64')], ...own };
    const config = { ...file, gateway: { ...gateway, redis: settings } };
    const starts = Array.from({ length: count }, async (_, n) =>
      stack.use(await startGateway(config, { program: programs[n] })),
    );
    await Promise.allSettled(starts);
    const each = await Promise.all(starts);
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-replicas-'));
    stack.defer(() => rm(dir, { recursive: true, force: true }));
    const port = await freePort();
    const balancer =
      spread === 'ready in turn'
        ? await startHaproxy(HAPROXY, dir, port, each)
        : await startBalancer(dir, port, each, spread);
    stack.move();
    return new Replicas(redis, each, config, `http://127.0.0.1:${port}/mcp`, balancer, dir);
  }

  /** Asks a replica to end, as an operator does, and starts another one at its address. @param program its `main.ts`; default: that of this tree. */
  async restart(index: number, program?: string): Promise<void> {
    await this.at(index).stop(DRAINED_MS);
    await this.startAgain(index, program);
  }

  /** Starts a replica at the address of one that has ended. */
  async startAgain(index: number, program?: string): Promise<void> {
    const { url, operatorUrl } = this.at(index);
    const [listen, operator] = [url, operatorUrl].map((each) => new URL(each).host);
    const gateway = { ...this.#config.gateway, listen, operator };
    this.#each[index] = await startGateway({ ...this.#config, gateway }, { program });
  }

  /** Returns a replica by its number. */
  at(index: number): RunningGateway {
    const replica = this.each[index];
    if (replica === undefined) throw new Error(`no replica ${index}`);
    return replica;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Each part ends, also if another one fails to.
    await using stack = new AsyncDisposableStack();
    stack.defer(() => rm(this.#dir, { recursive: true, force: true }));
    stack.use(this.redis);
    stack.defer(async () => {
      const ends = await Promise.allSettled(this.each.map((replica) => replica.stop(DRAINED_MS)));
      for (const end of ends) if (end.status === 'rejected') throw end.reason;
    });
    stack.defer(async () => void (await this.#balancer.stop()));
  }
}

/** The address that a program listens on, and a command that starts the command after it, such as in a network namespace. */
interface ProgramPlace {
  readonly host: string;
  readonly via: readonly string[];
}

/** Starts an nginx on this port that sends each request to another replica. */
export async function startBalancer(
  dir: string,
  port: number,
  replicas: readonly { readonly url: string }[],
  spread: Exclude<Spread, 'ready in turn'> = 'in turn',
  { host, via }: ProgramPlace = { host: '127.0.0.1', via: [] },
): Promise<Child> {
  if ('missing' in NGINX) throw new Error(NGINX.missing);
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (kind) => `${kind}_temp_path ${dir}/${kind};`,
  );
  const servers = replicas.map(({ url }) => `server ${new URL(url).host} max_fails=0;`);
  const text = [
    'daemon off;',
    'worker_processes 1;',
    process.getuid?.() === 0 ? 'user root;' : '',
    `pid ${dir}/nginx.pid;`,
    'error_log stderr warn;',
    'events { worker_connections 512; }',
    `http { access_log off; ${temporary.join(' ')}`,
    `upstream replicas { ${spread === 'at random' ? 'random;' : ''} ${servers.join(' ')} }`,
    `server { listen ${host}:${port}; location / { proxy_pass http://replicas; proxy_http_version 1.1;`,
    'proxy_set_header Host $host; proxy_set_header Connection ""; proxy_buffering off; proxy_read_timeout 120s; proxy_next_upstream error; } } }',
  ].join('\n');
  await writeFile(join(dir, 'nginx.conf'), text);
  const [command, ...args] = [...via, NGINX.path, '-p', dir, '-e', 'stderr', '-c', join(dir, 'nginx.conf')];
  const child = await Child.start(command, args);
  try {
    await waitUntil(async () => {
      if (!child.running) throw new Error(child.logs());
      return await fetch(`http://${host}:${port}/`).then(
        () => true,
        () => false,
      );
    });
    return child;
  } catch (thrown) {
    await child.stop();
    throw thrown;
  }
}
