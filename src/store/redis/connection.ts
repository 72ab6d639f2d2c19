import { messageOf, systemCode } from '../../thrown.ts';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RedisConfig } from '../../config/values/config.ts';
import { resultOrLate, settlesWithin } from '../../deadline.ts';
import { GatewayError, StartError } from '../../errors.ts';
import { Breaker } from './breaker.ts';
import { type ChannelListener, type SubscriptionClient, Subscriptions } from './subscriptions.ts';

/** The longest time that a command waits for Redis. */
export const COMMAND_MS = 250;
/** The longest time of commands of the library itself, such as those of a handshake. Ours have {@link resultOrLate}, which bears a late event loop. */
const LIBRARY_MS = 5_000;
/** Message of the error of the client library for a command that took too long. */
const TIMED_OUT = 'Command timed out';
/** A part of the message of the client library for a command without a connection. */
const OFFLINE = 'enableOfflineQueue';
const timedOut = () => new Error(TIMED_OUT);
const CONNECT_MS = 1_000;
/** A connection that answers nothing for this long is made again. */
const SILENT_MS = 5_000;
/** The longest pause between two attempts to connect. */
const RETRY_MS = 1_000;
/** A start fails if Redis cannot be reached for this long. */
const START_MS = 10_000;
/** The time that a refusal for lack of memory is reported after the last one. */
const FULL_MS = 5_000;

/** A Lua script, which Redis runs as a whole. */
export interface Script {
  readonly lua: string;
  readonly sha: string;
}

/** Lua that sets `time` to the clock of Redis (seconds and microseconds), and `now` to its ms since the epoch. */
export const NOW_LUA = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`;

export function scriptOf(lua: string): Script {
  return { lua, sha: createHash('sha1').update(lua).digest('hex') };
}

export interface RedisEvents {
  /** A command has failed: `timeout`, `connection`, `full` or `refused`. */
  onCommandFailed(reason: FailureReason): void;
}

/** The longest times that the connection waits. Others than the defaults are for tests. */
export interface RedisTimes {
  /** The longest time of {@link RedisConnection.open}. Default: 10 s. */
  readonly startMs?: number;
  /** The longest time of a command. Default: 250 ms. */
  readonly commandMs?: number;
}

export type FailureReason = 'timeout' | 'connection' | 'full' | 'refused';

/** Sends commands to a server, or to the nodes of a cluster. */
interface CommandClient {
  call(command: string, args: (string | number)[]): Promise<unknown>;
  connect(): Promise<void>;
  disconnect(): void;
}

interface Clients {
  readonly commands: CommandClient;
  readonly subscriptions: SubscriptionClient;
  /** Returns the connection that has the channels; undefined if it is always the same. */
  subscriber(): unknown;
  /** Returns the last error of a connection, in words; undefined if there was none since the last connection. */
  socketError(): string | undefined;
  /** Returns the local address of the connection; undefined if there is none. */
  localHost(): string | undefined;
}

/**
 * The connections to Redis. Each command ends within {@link COMMAND_MS}; if several have failed, the next ones fail at once. A command that has
 * timed out may still run, so commands must bear that.
 */
export class RedisConnection implements AsyncDisposable {
  readonly #clients: Clients;
  readonly #events: RedisEvents;
  readonly #commandMs: number;
  readonly #breaker = new Breaker();
  readonly #subscriptions: Subscriptions;
  #fullMs = -Infinity;
  #patientUntilMs = -Infinity;

  private constructor(clients: Clients, events: RedisEvents, commandMs: number) {
    this.#clients = clients;
    this.#events = events;
    this.#commandMs = commandMs;
    this.#subscriptions = new Subscriptions(
      clients.subscriptions,
      (reply) => resultOrLate(reply, commandMs, timedOut),
      () => clients.subscriber(),
    );
  }

  /** Connects. Loads the client library, which nothing else does. @throws {StartError} if Redis cannot be reached. */
  static async open(
    config: RedisConfig,
    events: RedisEvents,
    { startMs = START_MS, commandMs = COMMAND_MS }: RedisTimes = {},
  ): Promise<RedisConnection> {
    const connection = new RedisConnection(await createClients(config), events, commandMs);
    try {
      await connection.#connect(config, startMs);
      return connection;
    } catch (thrown) {
      await connection[Symbol.asyncDispose]();
      throw thrown;
    }
  }

  async #connect({ target }: RedisConfig, startMs: number): Promise<void> {
    const { commands, subscriptions } = this.#clients;
    this.bePatient(startMs);
    // Later attempts are made by the client itself. That of a cluster whose nodes cannot be reached never ends this one.
    await settlesWithin(Promise.allSettled([commands.connect(), subscriptions.connect()]), startMs);
    try {
      await this.#patiently(() => commands.call('PING', []));
    } catch (thrown) {
      const where = target.nodes.map(({ host, port }) => `${host}:${port}`).join(', ');
      const why = this.#wordsOf(thrown);
      throw new StartError(`Redis cannot be used at ${where} (gateway.redis.url): ${why}`, { cause: thrown });
    }
    this.endPatience();
  }

  /** Returns the message of a failure. Without a connection, the library names one of its options, and the last error of a socket is the reason. */
  #wordsOf(thrown: unknown): string {
    const message = messageOf(thrown);
    return message.includes(OFFLINE) ? (this.#clients.socketError() ?? 'there is no connection') : message;
  }

  /** The reason why Redis cannot be used at present, in words; undefined if it can. */
  get failure(): string | undefined {
    const { failure } = this.#breaker;
    if (failure !== undefined) return `Redis cannot be used: ${failure}`;
    return performance.now() - this.#fullMs < FULL_MS ? 'Redis is full (maxmemory) and refuses writes' : undefined;
  }

  /** The address of this machine on the connection to Redis; undefined if there is no such connection. */
  get localHost(): string | undefined {
    return this.#clients.localHost();
  }

  /**
   * Runs a script. One that Redis does not know yet takes two commands, which end within the time of one.
   *
   * @param keys must all be in one slot. @throws {GatewayError} `store-unavailable`
   */
  async run({ lua, sha }: Script, keys: readonly string[], args: readonly (string | number)[]): Promise<unknown> {
    const lateMs = performance.now() + this.#commandMs;
    try {
      return await this.#send('EVALSHA', [sha, keys.length, ...keys, ...args]);
    } catch (thrown) {
      if (!isReply(thrown) || !thrown.message.startsWith('NOSCRIPT')) throw thrown;
      const limitMs = this.#isPatient ? this.#commandMs : Math.max(1, lateMs - performance.now());
      return await this.#send('EVAL', [lua, keys.length, ...keys, ...args], limitMs);
    }
  }

  /** Sends a command. @throws {GatewayError} `store-unavailable` */
  async command(name: string, ...args: readonly (string | number)[]): Promise<unknown> {
    return await this.#send(name, args);
  }

  /** Sends a command that reads a text. Returns undefined if there is none. @throws {GatewayError} `store-unavailable` */
  async text(name: string, ...args: readonly (string | number)[]): Promise<string | undefined> {
    const reply = await this.#send(name, args);
    return typeof reply === 'string' ? reply : undefined;
  }

  /** Repeats commands without an answer for this time from now on. A start does so, since the process itself may be busy. */
  bePatient(forMs = START_MS): void {
    this.#patientUntilMs = performance.now() + forMs;
  }

  /** Lets commands without an answer fail again. */
  endPatience(): void {
    this.#patientUntilMs = -Infinity;
  }

  get #isPatient(): boolean {
    return performance.now() < this.#patientUntilMs;
  }

  /** Runs a command. While the connection is patient, runs it again if Redis cannot be reached or does not answer in time. */
  async #patiently<T>(run: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await run();
      } catch (thrown) {
        const cause = thrown instanceof GatewayError ? thrown.cause : thrown;
        if (isReply(cause) || !this.#isPatient) throw thrown;
        await sleep(COMMAND_MS);
      }
    }
  }

  #send(name: string, args: readonly (string | number)[], limitMs = this.#commandMs): Promise<unknown> {
    return this.#patiently(() => this.#sendOnce(name, args, limitMs));
  }

  async #sendOnce(name: string, args: readonly (string | number)[], limitMs: number): Promise<unknown> {
    if (!this.#breaker.mayTry(performance.now())) throw unavailable(this.#breaker.failure);
    try {
      const reply = await resultOrLate(this.#clients.commands.call(name, [...args]), limitMs, timedOut);
      this.#breaker.onSuccess();
      return reply;
    } catch (thrown) {
      throw this.#toFailure(thrown);
    }
  }

  /** Returns the error for a failed command. Errors of our own scripts and commands stay as they are. */
  #toFailure(thrown: unknown): unknown {
    const message = this.#wordsOf(thrown);
    if (isReply(thrown)) {
      if (message.startsWith('OOM')) {
        this.#breaker.onSuccess();
        this.#fullMs = performance.now();
        this.#events.onCommandFailed('full');
        return unavailable(this.failure, thrown);
      }
      if (!UNAVAILABLE.test(message)) {
        this.#breaker.onSuccess();
        return thrown;
      }
    }
    const reason = isReply(thrown) ? 'refused' : message === TIMED_OUT ? 'timeout' : 'connection';
    this.#events.onCommandFailed(reason);
    this.#breaker.onFailure(reason === 'timeout' ? `no answer within ${COMMAND_MS} ms` : message, performance.now());
    return unavailable(`Redis cannot be used: ${message}`, thrown);
  }

  /** Listens on a channel. Messages that are published while the connection is down are lost, which the listener is told. */
  async subscribe(channel: string, listener: ChannelListener): Promise<void> {
    await this.#patiently(() => this.#subscriptions.add(channel, listener));
  }

  async unsubscribe(channel: string): Promise<void> {
    await this.#subscriptions.remove(channel);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#subscriptions.close();
    this.#clients.commands.disconnect();
  }
}

/**
 * Replies of a Redis that cannot serve now, though it may later. Those that begin with `ERR` are of scripts in a cluster: their slot moves to
 * another node, or the cluster is down.
 */
const UNAVAILABLE =
  /^(?:(?:LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS|MISCONF|NOAUTH|WRONGPASS|NOPERM|BUSY)\b|ERR Script attempted to (?:access a non local key|execute a ))/;

/** Returns whether Redis itself has answered with this error. */
function isReply(thrown: unknown): thrown is Error {
  return thrown instanceof Error && thrown.name === 'ReplyError';
}

function unavailable(message = 'Redis cannot be used', cause?: unknown): GatewayError {
  // Addresses and the texts of Redis are for the log.
  return new GatewayError('store-unavailable', {}, cause ?? new Error(message));
}

async function createClients({ target, caFile }: RedisConfig): Promise<Clients> {
  const { Cluster, Redis } = await import('../libraries/ioredis.ts');
  const tls = target.tls ? { tls: caFile === undefined ? {} : { ca: await readCa(caFile) } } : {};
  const retryStrategy = (attempt: number) => Math.min(50 * 2 ** attempt, RETRY_MS);
  const { username, password } = target;
  const common = {
    ...(username === undefined ? {} : { username }),
    ...(password === undefined ? {} : { password }),
    connectionName: 'linkspan',
    connectTimeout: CONNECT_MS,
    commandTimeout: LIBRARY_MS,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    lazyConnect: true,
  };
  let lastError: string | undefined;
  // Without a listener the error of a failed connection would end the process. The next command reports it.
  const noteError = (error: Error) => {
    if (!error.message.includes(OFFLINE)) lastError = error.message || systemCode(error);
  };
  const forgetError = () => {
    lastError = undefined;
  };
  const socketError = () => lastError;
  const hosts = target.nodes.map(({ host, port }) => ({ host, port }));
  if (target.kind === 'cluster') {
    const redisOptions = { ...common, ...tls, socketTimeout: SILENT_MS };
    const options = {
      redisOptions,
      enableOfflineQueue: false,
      lazyConnect: true,
      maxRedirections: 3,
      clusterRetryStrategy: retryStrategy,
    };
    const [cluster, subscriptions] = [new Cluster(hosts, options), new Cluster(hosts, options)];
    for (const client of [cluster, subscriptions]) client.on('error', noteError);
    cluster.on('ready', forgetError);
    const localHost = () => cluster.nodes('master').find(({ status }) => status === 'ready')?.stream.localAddress;
    const commands: CommandClient = {
      call: (name, args) => cluster.call(name, args),
      connect: () => cluster.connect(),
      disconnect: () => cluster.disconnect(),
    };
    return { commands, subscriptions, subscriber: () => subscriberOf(subscriptions), socketError, localHost };
  }
  const [first = { host: '127.0.0.1', port: 6379 }] = hosts;
  const place =
    target.kind === 'sentinel'
      ? {
          sentinels: hosts,
          name: target.master,
          sentinelRetryStrategy: retryStrategy,
          sentinelCommandTimeout: CONNECT_MS,
          enableTLSForSentinelMode: target.tls,
          ...(target.tls ? { sentinelTLS: tls.tls } : {}),
        }
      : first;
  const options = {
    ...common,
    ...tls,
    ...place,
    db: target.database,
    retryStrategy,
    // The master may have become a replica: connect again.
    reconnectOnError: (error: Error) => error.message.startsWith('READONLY'),
  };
  const commands = new Redis({ ...options, socketTimeout: SILENT_MS });
  // Nobody would handle the errors of the channels that the library restores by itself.
  const subscriptions = new Redis({ ...options, autoResubscribe: false });
  for (const client of [commands, subscriptions]) client.on('error', noteError);
  // The library would go on in database 0.
  commands.on('error', (error) => isOfSelect(error) && commands.disconnect(true));
  commands.on('ready', forgetError);
  const subscriber = () => undefined;
  return { commands, subscriptions, subscriber, socketError, localHost: () => commands.stream?.localAddress };
}

/** Returns whether Redis has refused to use a database. */
function isOfSelect(error: Error): boolean {
  const command = isReply(error) && 'command' in error ? error.command : undefined;
  return typeof command === 'object' && command !== null && 'name' in command && command.name === 'select';
}

/** Returns the connection to the node of a cluster that has the channels. The library names it nowhere in its interface. */
function subscriberOf(cluster: object): unknown {
  const holder = 'subscriber' in cluster ? cluster.subscriber : undefined;
  if (typeof holder !== 'object' || holder === null || !('getInstance' in holder)) return undefined;
  return typeof holder.getInstance === 'function' ? holder.getInstance() : undefined;
}

async function readCa(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (thrown) {
    const why = messageOf(thrown);
    throw new StartError(`gateway.redis.caFile cannot be read: ${why}`, { cause: thrown });
  }
}
