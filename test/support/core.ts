import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Logger, pino } from 'pino';
import type { AuditTrail } from '../../src/audit/audit-trail.ts';
import type { Core } from '../../src/compose/core/core.ts';
import { startCore } from '../../src/compose/start-core.ts';
import { type UpstreamTransports, upstreamTransports } from '../../src/compose/transports.ts';
import { diffConfigs } from '../../src/config/changes/diff.ts';
import type { Config, LimitsConfig } from '../../src/config/values/config.ts';
import { CLIENT_FEATURES, type UpstreamConfig } from '../../src/config/values/upstream-config.ts';
import type { ClientSession, MessageSink } from '../../src/gateway/front/front.ts';
import { LOCAL, type Principal } from '../../src/policy/principal.ts';
import { RawObject } from '../../src/json/json.ts';
import { type Answer, type Message, parseMessage } from '../../src/protocol/jsonrpc.ts';
import { createMetrics, type Metrics } from '../../src/telemetry/metrics.ts';
import type { CredentialSource } from '../../src/upstream/connection-key.ts';
import { openState, type State } from '../../src/store/open-state.ts';
import type { OutcomeStore } from '../../src/store/outcome-store.ts';
import type { MemoryUpstream } from './memory-upstream.ts';
import type { JoinedProcess, JoinedProcesses } from './joined-processes.ts';
import { Changes } from './changes.ts';
import { PATIENCE_MS } from './patience.ts';

/** The core with scripted upstreams and scripted clients, without sockets and processes. */
export interface TestCore extends AsyncDisposable {
  readonly core: Core;
  readonly config: Config;
  readonly metrics: Metrics;
  connect(options?: ConnectOptions): Promise<TestClient>;
  /** Applies other settings than those of the start, as a reload does. */
  reload(change: Partial<Config>): ReturnType<Core['apply']>;
  /** Stops the core, and starts another one with the same state. */
  restart(): Promise<void>;
}

export interface ConnectOptions {
  readonly capabilities?: object;
  readonly revision?: string;
  readonly view?: string;
  readonly principal?: Principal;
  /** Makes the client keep a stream open for messages that belong to no request. */
  readonly listens?: boolean;
}

/** The members of an upstream that a test does not name. */
export const UPSTREAM: Omit<UpstreamConfig, 'id' | 'title' | 'prefix'> = {
  target: { kind: 'stdio', command: 'memory', args: [], env: {}, cwd: undefined },
  rawUris: false,
  isolation: 'session',
  clientFeatures: CLIENT_FEATURES,
  samplingBudget: 2_000_000,
  era: 'legacy',
  start: 'lazy',
  required: false,
  timeouts: {
    startMs: PATIENCE_MS,
    connectMs: PATIENCE_MS,
    firstByteMs: PATIENCE_MS,
    callMs: PATIENCE_MS,
    toolMs: PATIENCE_MS,
    maxMs: 2 * PATIENCE_MS,
  },
  concurrency: 32,
  queue: 64,
  queueMs: PATIENCE_MS,
  idleMs: 60_000,
  maxConnections: 64,
  includeTools: undefined,
  excludeTools: [],
  problem: undefined,
};

interface RequestOptions {
  readonly id?: string;
  readonly session?: ClientSession;
  /** The principal of the request. Default: that of the session. */
  readonly principal?: Principal;
  readonly onMessage?: (message: Message) => void;
}

/** One client with its session, and every message to it, in order. */
export class TestClient {
  readonly initialized: RawObject;
  readonly session: ClientSession;
  /** The messages on the stream that belongs to no request. */
  readonly listened: Message[] = [];
  readonly #core: () => Core;
  readonly #arrivals = new Changes();
  readonly #sink: MessageSink;
  #lastId = 0;

  constructor(core: () => Core, session: ClientSession, answer: RawObject, listens: boolean) {
    this.#core = core;
    this.session = session;
    this.initialized = answer;
    this.#sink = this.sink(this.listened);
    if (listens) session.setSink(this.#sink);
  }

  sink(into: Message[]): MessageSink {
    return {
      send: (text) => {
        into.push(parseMessage(text));
        this.#arrivals.announce();
        return true;
      },
    };
  }

  /** Sends a request. Returns its answer, and the messages on its stream before the answer. */
  async request(
    method: string,
    params: object = {},
    options: RequestOptions = {},
  ): Promise<{ readonly answer: Answer; readonly messages: Message[] }> {
    const { answer, messages } = await this.send(method, params, options);
    assert.ok(answer !== undefined, `${method} was cancelled`);
    return { answer, messages };
  }

  /** Sends a request that may be cancelled, and then has no answer. */
  async send(
    method: string,
    params: object = {},
    options: RequestOptions = {},
  ): Promise<{ readonly answer: Answer | undefined; readonly messages: Message[] }> {
    const messages: Message[] = [];
    const id = options.id ?? String(++this.#lastId);
    const sink: MessageSink = {
      send: (text) => {
        const message = parseMessage(text);
        messages.push(message);
        options.onMessage?.(message);
        this.#arrivals.announce();
        return true;
      },
    };
    const request = { kind: 'request', id, method, params: RawObject.of(params) } as const;
    const { gateway } = this.#core();
    const { session = this.session, principal } = options;
    const answer = await gateway.handleRequest(session, request, sink, undefined, principal);
    return { answer, messages };
  }

  /** Returns the parsed result of a request that must succeed. */
  async result(method: string, params: object = {}): Promise<Record<string, unknown>> {
    const { answer } = await this.request(method, params);
    if (answer.kind === 'error') throw new Error(`${method}: ${JSON.stringify(answer.error)}`);
    return JSON.parse(answer.result);
  }

  notify(method: string, params?: object): void {
    const notification = { kind: 'notification', method, params: params && RawObject.of(params) } as const;
    this.#core().gateway.handleNotification(this.session, notification);
  }

  answer(id: string, value: object): void {
    const response = { kind: 'result', id, result: JSON.stringify(value) } as const;
    this.#core().gateway.handleResponse(this.session, response);
  }

  /** Answers a question with an error. */
  refuse(id: string, code: number): void {
    this.#core().gateway.handleResponse(this.session, { kind: 'error', id, error: { code, message: 'Refused' } });
  }

  /**
   * Resolves with the first defined value of `found`, which runs again after each message to this client. Bounded in
   * time.
   */
  until<T>(found: () => T | undefined): Promise<T> {
    return this.#arrivals.until(found);
  }

  /** Resolves when a message of this method has arrived on the stream that belongs to no request. */
  waitForMessage(method: string): Promise<Message> {
    return this.until(() => this.listened.find((message) => 'method' in message && message.method === method));
  }

  listen(): void {
    this.session.setSink(this.#sink);
  }
}

interface TestUpstream extends Partial<UpstreamConfig> {
  readonly memory?: MemoryUpstream;
  readonly credentials?: CredentialSource;
  /** True if its transport continues sessions of earlier connections. */
  readonly canAttach?: boolean;
}

type Overrides = Partial<Omit<Config, 'limits'>> & { readonly limits?: Partial<LimitsConfig> };

/** Opens the state directory, with a store of ends that other processes have too. */
async function stateWith(stateDir: string, outcomes: OutcomeStore): Promise<State> {
  const ignore = () => undefined;
  const events = { onWriteFailed: ignore, onFailing: ignore, onRecovered: ignore, onLimit: ignore, onRefused: ignore };
  return { ...(await openState(stateDir, { mayOwn: true, events })), outcomes };
}

export async function testCore(
  /** Upstreams without `memory` are reached over real transports. */
  upstreams: Readonly<Record<string, TestUpstream>>,
  { limits, ...overrides }: Overrides = {},
  /** The processes of one gateway, if the core is one of several. */
  processes?: JoinedProcesses,
  audit?: AuditTrail,
  log: Logger = pino({ level: 'silent' }),
): Promise<TestCore> {
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-core-'));
  const config: Config = {
    file: join(stateDir, 'config.json'),
    listen: { host: '127.0.0.1', port: 0 },
    workers: 1,
    operator: undefined,
    operatorMayMove: false,
    accessLog: 'all',
    tracing: undefined,
    audit: undefined,
    rates: [],
    repeats: undefined,
    publicUrl: undefined,
    tls: undefined,
    allowedHosts: [],
    allowedOrigins: [],
    trustedProxies: [],
    stateDir,
    defaultStateDir: stateDir,
    auth: { jwt: [], apiKeys: [] },
    operatorKeys: [],
    limits: {
      bodyBytes: 4 << 20,
      messageBytes: 16 << 20,
      processes: 64,
      sessions: 10_000,
      sessionsPerPrincipal: 1000,
      parkedPerPrincipal: 256,
      parkedPerUpstream: 1_024,
      inFlightPerSession: 256,
      streamsPerPrincipal: 1_000,
      ...limits,
    },
    sessions: {
      required: true,
      idleMs: 60_000,
      maxAgeMs: 3_600_000,
      parkMs: 60_000,
      keepAliveMs: 15_000,
      eventLimit: 1000,
      eventLimitBytes: 8 << 20,
    },
    jsonAnswers: [],
    legacySse: true,
    logLevel: 'silent',
    overload: { loopDelayMs: 500, memory: 'of cgroup' },
    idempotency: { keepMs: 3_600_000 },
    names: { maxChars: 48 },
    instructions: { maxChars: 4000 },
    lists: { waitMs: PATIENCE_MS },
    reload: { watch: true, drainMs: 60_000 },
    redis: undefined,
    profiles: [],
    upstreams: Object.entries(upstreams).map(
      ([id, { memory: _memory, credentials: _credentials, canAttach: _canAttach, ...own }]) => ({
        ...UPSTREAM,
        id,
        title: id,
        prefix: `${id}__`,
        ...own,
      }),
    ),
    ...overrides,
  };
  let metrics = createMetrics('test');
  let joined: JoinedProcess | undefined;
  const start = async () => {
    metrics = createMetrics('test');
    const wire = await upstreamTransports(config, metrics, log);
    const reach: UpstreamTransports = {
      egress: wire.egress,
      prepare: (next) => wire.prepare(next),
      transportTo: (upstream, limits) => {
        const { memory, credentials = 'gateway', canAttach = false } = upstreams[upstream.id] ?? {};
        if (memory === undefined) return wire.transportTo(upstream, limits);
        const era = upstream.era === 'auto' ? 'either' : upstream.era;
        const isProcess = upstream.target.kind === 'stdio';
        return {
          options: [{ era, isProcess, hasCallStreams: !isProcess, canAttach, start: memory.start }],
          credentials,
          update: () => undefined,
          close: () => Promise.resolve(),
        };
      },
      processUsage: () => wire.processUsage(),
      [Symbol.asyncDispose]: () => wire[Symbol.asyncDispose](),
    };
    joined = processes?.join();
    const started = await startCore(config, metrics, reach, log, {
      audit,
      ...(joined === undefined ? {} : { owners: joined }),
      ...(processes?.counters === undefined ? {} : { counters: processes.counters }),
      ...(processes?.outcomes === undefined ? {} : { state: await stateWith(stateDir, processes.outcomes) }),
    });
    joined?.serve(started.gateway);
    return started;
  };
  let core = await start();
  return {
    get core() {
      return core;
    },
    get metrics() {
      return metrics;
    },
    config,
    connect: async ({
      capabilities = {},
      revision = '2025-11-25',
      view = '',
      principal = LOCAL,
      listens = true,
    } = {}) => {
      const params = RawObject.of({
        protocolVersion: revision,
        capabilities,
        clientInfo: { name: 'test', version: '1' },
      });
      const request = { kind: 'request', id: '0', method: 'initialize', params } as const;
      const { session, answer } = await core.gateway.initialize(request, principal, view);
      if (session === undefined || answer.kind === 'error') throw new Error(JSON.stringify(answer));
      const client = new TestClient(() => core, session, RawObject.parse(answer.result), listens);
      client.notify('notifications/initialized');
      return client;
    },
    reload: async (change) => {
      const next = { ...config, ...change };
      return await core.apply(next, diffConfigs(config, next));
    },
    restart: async () => {
      joined?.leave();
      await core.stop();
      core = await start();
    },
    [Symbol.asyncDispose]: async () => {
      joined?.leave();
      await core.stop();
      await rm(stateDir, { recursive: true, force: true });
    },
  };
}

export function toolCall(name: string, args: object = {}, meta?: object): object {
  return { name, arguments: args, ...(meta === undefined ? {} : { _meta: meta }) };
}
