import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { TcpRelay } from '../support/tcp-relay.ts';
import { type Direction, REPLICAS } from './plan.ts';

/** A way between processes that can be cut: between a replica and Redis, or between it and the other replicas. */
export type Way = 'Redis' | 'others';

/** A process of a trial: a replica by its number, or one of the two that all replicas need. */
export type Place = number | 'Redis' | 'balancer';

/** Settings of `gateway.redis` of a replica: the address of Redis as it sees it, and what else its network needs. */
export interface RedisWays {
  readonly url: string;
  readonly internal?: string;
  readonly advertise?: string;
}

/** The network of one trial. */
export interface Network extends AsyncDisposable {
  /** The address of upstreams. */
  readonly host: string;
  /** Returns the address of a process. */
  hostOf(place: Place): string;
  /** Returns the command that starts a program in the place of a process; empty for none. */
  via(place: Place): readonly string[];
  /** Opens the ways of a replica to these ports. `internalPort` is free, and used only if the result names it. */
  open(replica: number, redisPort: number, internalPort: number): Promise<RedisWays>;
  /** @throws {RangeError} if this network cannot cut one direction alone. */
  cut(replica: number, way: Way, direction?: Direction): void;
  restore(replica: number, way: Way, direction?: Direction): void;
}

const LOOPBACK = '127.0.0.1';

/** All processes on loopback. A way that is cut refuses connections, and closes those that are open. */
export class LoopbackNetwork implements Network {
  readonly host = LOOPBACK;
  readonly #relays = new Map<string, TcpRelay>();

  hostOf(): string {
    return LOOPBACK;
  }

  via(): readonly string[] {
    return [];
  }

  async open(replica: number, redisPort: number, internalPort: number): Promise<RedisWays> {
    const [toRedis, toReplica] = [await TcpRelay.open(redisPort), await TcpRelay.open(internalPort)];
    this.#relays.set(`${replica} Redis`, toRedis).set(`${replica} others`, toReplica);
    return {
      url: `redis://${LOOPBACK}:${toRedis.port}`,
      internal: `${LOOPBACK}:${internalPort}`,
      advertise: `${LOOPBACK}:${toReplica.port}`,
    };
  }

  cut(replica: number, way: Way, direction: Direction = 'both'): void {
    if (direction !== 'both') throw new RangeError('on loopback a way is cut in both directions');
    this.#relays.get(`${replica} ${way}`)?.cut();
  }

  restore(replica: number, way: Way): void {
    this.#relays.get(`${replica} ${way}`)?.restore();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const relay of this.#relays.values()) await relay[Symbol.asyncDispose]();
  }
}

/** A process that keeps a network namespace. */
interface Holder {
  readonly pid: number;
  end(): Promise<void>;
}

/** A network namespace with one device. */
interface Namespace {
  readonly holder: Holder;
  readonly device: string;
  readonly address: string;
}

/** No device has this address. */
const NOBODY = '02:00:00:00:00:01';
const PLACES: readonly Place[] = ['Redis', 'balancer', ...Array.from({ length: REPLICAS }, (_, n) => n)];

/**
 * Each replica, Redis and the balancer in a network namespace of its own, connected by a bridge. Upstreams and clients are at the bridge. On a way that
 * is cut packets vanish, as with a cable that is pulled out: the sender has a wrong Ethernet address for the receiver. So each direction
 * can be cut alone. Needs root on Linux, and no kernel modules but veth and bridge.
 */
export class NamespaceNetwork implements Network {
  readonly host: string;
  readonly #prefix: string;
  readonly #bridge: string;
  readonly #namespaces = new Map<Place, Namespace>();

  readonly #onExit = () => removeDevices(this.#bridge);

  private constructor() {
    const octet = 1 + (process.pid % 250);
    this.#prefix = `10.213.${octet}`;
    this.#bridge = `lsc${octet}`;
    this.host = `${this.#prefix}.1`;
  }

  /** The reason why this user cannot make such a network; undefined if that is possible. */
  static get missing(): string | undefined {
    if (process.platform !== 'linux') return 'network namespaces need Linux';
    if (process.getuid?.() !== 0) return 'network namespaces need root';
    const name = `lsp${process.pid % 10_000}`;
    const tries: readonly (readonly string[])[] = [
      ['unshare', '--net', 'true'],
      ['nsenter', '--version'],
      ['ip', 'link', 'add', name, 'type', 'bridge'],
      ['ip', 'link', 'add', `${name}a`, 'type', 'veth', 'peer', 'name', `${name}b`],
    ];
    try {
      for (const [command = '', ...args] of tries) run(command, args);
      return undefined;
    } catch (thrown) {
      return `network namespaces are not possible here: ${String(thrown)}`;
    } finally {
      for (const device of [name, `${name}a`]) spawnSync('ip', ['link', 'del', device]);
    }
  }

  /** @throws {Error} if this user may not make namespaces. */
  static async open(): Promise<NamespaceNetwork> {
    const network = new NamespaceNetwork();
    const bridge = network.#bridge;
    // A trial that is ended by a signal leaves no device behind.
    process.once('exit', network.#onExit);
    try {
      ip('link', 'add', bridge, 'type', 'bridge');
      ip('addr', 'add', `${network.host}/24`, 'dev', bridge);
      ip('link', 'set', bridge, 'up');
      for (const [index, place] of PLACES.entries()) await network.#openNamespace(place, index);
      return network;
    } catch (thrown) {
      await network[Symbol.asyncDispose]();
      throw thrown;
    }
  }

  async #openNamespace(place: Place, index: number): Promise<void> {
    const holder = await hold();
    const [outer, device] = [`${this.#bridge}-${index}`, `${this.#bridge}-i${index}`];
    const address = `${this.#prefix}.${11 + index}`;
    this.#namespaces.set(place, { holder, device, address });
    ip('link', 'add', outer, 'type', 'veth', 'peer', 'name', device);
    ip('link', 'set', device, 'netns', String(holder.pid));
    ip('link', 'set', outer, 'master', this.#bridge);
    ip('link', 'set', outer, 'up');
    this.#inside(place, 'link', 'set', 'lo', 'up');
    this.#inside(place, 'addr', 'add', `${address}/24`, 'dev', device);
    this.#inside(place, 'link', 'set', device, 'up');
  }

  hostOf(place: Place): string {
    return this.#at(place).address;
  }

  via(place: Place): readonly string[] {
    return ['nsenter', `--net=/proc/${this.#at(place).holder.pid}/ns/net`];
  }

  /** Replicas find the addresses that they have for each other themselves, as on machines of their own. */
  async open(_replica: number, redisPort: number): Promise<RedisWays> {
    return { url: `redis://${this.hostOf('Redis')}:${redisPort}` };
  }

  cut(replica: number, way: Way, direction: Direction = 'both'): void {
    for (const [from, to] of pairs(replica, way, direction)) {
      const neighbour = [this.hostOf(to), 'lladdr', NOBODY, 'dev', this.#at(from).device, 'nud', 'permanent'];
      this.#inside(from, 'neigh', 'replace', ...neighbour);
    }
  }

  restore(replica: number, way: Way, direction: Direction = 'both'): void {
    for (const [from, to] of pairs(replica, way, direction)) {
      this.#inside(from, 'neigh', 'del', this.hostOf(to), 'dev', this.#at(from).device);
    }
  }

  #at(place: Place): Namespace {
    const found = this.#namespaces.get(place);
    if (found === undefined) throw new RangeError(`no place ${place}`);
    return found;
  }

  #inside(place: Place, ...args: readonly string[]): void {
    const [command = '', ...rest] = [...this.via(place), 'ip', ...args];
    run(command, rest);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    process.off('exit', this.#onExit);
    for (const { holder } of this.#namespaces.values()) await holder.end();
    removeDevices(this.#bridge);
  }
}

/** Returns the senders and receivers whose packets are lost. */
function pairs(replica: number, way: Way, direction: Direction): readonly (readonly [from: Place, to: Place])[] {
  const others = Array.from({ length: REPLICAS }, (_, n) => n).filter((n) => n !== replica);
  const peers: readonly Place[] = way === 'Redis' ? ['Redis'] : others;
  return peers.flatMap((peer) => [
    ...(direction === 'in' ? [] : [[replica, peer] as const]),
    ...(direction === 'out' ? [] : [[peer, replica] as const]),
  ]);
}

/** Removes a bridge and its devices, as far as they exist. The kernel removes those of an ended namespace late. */
function removeDevices(bridge: string): void {
  const devices = PLACES.map((_, index) => `${bridge}-${index}`);
  for (const name of [...devices, bridge]) spawnSync('ip', ['link', 'del', name]);
}

async function hold(): Promise<Holder> {
  const child = spawn('unshare', ['--net', 'sh', '-c', 'echo ready; exec sleep 100000'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const ended = once(child, 'exit');
  await once(child.stdout, 'data');
  if (child.pid === undefined) throw new Error('unshare has no process id');
  const kill = () => child.kill('SIGKILL');
  process.once('exit', kill);
  return {
    pid: child.pid,
    end: async () => {
      process.off('exit', kill);
      kill();
      await ended;
    },
  };
}

function ip(...args: readonly string[]): void {
  run('ip', args);
}

function run(command: string, args: readonly string[]): void {
  const { status, stderr, error } = spawnSync(command, args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${error?.message ?? stderr}`);
}
