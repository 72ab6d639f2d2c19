import { isDeepStrictEqual } from 'node:util';
import type { Logger } from 'pino';
import { type ConfigAuthenticator, createAuthenticator } from '../auth/authenticate.ts';
import { scopeChallengeText } from '../auth/challenge.ts';
import { metadataUrl } from '../auth/metadata.ts';
import { revokedBy } from '../auth/revoked.ts';
import type { Config } from '../config/values/config.ts';
import type { IdentityKeys } from '../credentials/identity-keys.ts';
import type { Egress } from '../egress/egress.ts';
import type { Callers } from '../policy/callers.ts';
import { createApp, createEndpoints, type Endpoints } from '../downstream/http/app.ts';
import { endpointPath } from '../endpoint-path.ts';
import { createEdgeMemory, type EdgeMemory } from '../downstream/memory/edge-memory.ts';
import type { RefusalAudit } from '../downstream/admission/refusal-audit.ts';
import type { OpenEventLog } from '../downstream/streams/event-log.ts';
import { memoryEventLogs } from '../downstream/streams/memory-event-log.ts';
import { storedEventLogs, type StoredEventLogsParts } from '../downstream/streams/stored-event-log.ts';
import type { ApiKeyStore } from '../store/api-key-store.ts';
import type { Principal } from '../policy/principal.ts';
import { LoadGuard } from '../load/load-guard.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { Cleanups } from './cleanups.ts';
import type { Core } from './core/core.ts';
import { ClientKeys } from './keys/client-keys.ts';
import type { Listener } from './listener.ts';
import { CLIENT_PORT, type HandlerOf, MovablePort, OPERATOR_PORT, type PortChange } from './movable-port.ts';

/**
 * The interval in which streams end whose credentials have expired, or were revoked while the stream was opened. Streams whose rights have
 * changed follow them.
 */
const OVER_SWEEP_MS = 1_000;
/** The interval at which a process that accepts no more connections ends streams on which no answer is due. */
const END_STREAMS_MS = 250;

export interface EdgeParts {
  readonly core: Core;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly operatorHandlerOf: HandlerOf;
  /** Undefined if there is no audit log. */
  readonly refusals?: RefusalAudit | undefined;
  /** The store of events for other processes; undefined if there is none. */
  readonly storedEvents?: Pick<StoredEventLogsParts, 'store' | 'onRefused'> | undefined;
  /** The API keys that all replicas share; undefined if there are none. */
  readonly sharedKeys?: ApiKeyStore | undefined;
  /** Remembers the principals that were authenticated, for credentials of upstreams. Default: nobody needs them. */
  readonly callers?: Callers | undefined;
  /** Sends requests to issuers. Default: direct connections. */
  readonly egress?: Egress | undefined;
  /** The keys that are published for upstreams. */
  readonly identity?: IdentityKeys | undefined;
}

/** The listeners of a gateway and their handlers. Both can be swapped; the endpoints behind them keep streams and events. */
export class Edge {
  readonly #parts: EdgeParts;
  /** Behind the listeners. */
  readonly endpoints: Endpoints;
  #config: Config;
  #authenticator: ConfigAuthenticator;
  /** Not made for each config: such a function would keep the authenticator of that config in memory. */
  readonly #present = () => this.#authenticator;
  readonly #keys: ClientKeys;
  readonly #sweeping: NodeJS.Timeout;
  readonly #load: LoadGuard;
  /** The time at which streams of 2024-11-05 end that the config does not allow any more; monotonic ms. */
  #sseUntilMs = 0;
  readonly #clients: MovablePort<Listener>;
  #operator: MovablePort<Listener | undefined> | undefined;

  private constructor(
    config: Config,
    parts: EdgeParts,
    endpoints: Endpoints,
    { authenticator, keys }: Access,
    clients: MovablePort<Listener>,
    load: LoadGuard,
  ) {
    this.#config = config;
    this.#parts = parts;
    this.endpoints = endpoints;
    this.#authenticator = authenticator;
    this.#keys = keys;
    this.#clients = clients;
    this.#load = load;
    parts.metrics.onScrape('unreachableIssuers', () => this.#authenticator.failures.length);
    this.#sweeping = setInterval(() => this.#sweep(), OVER_SWEEP_MS).unref();
  }

  /** Opens the listeners of a config. @throws {StartError} if an address cannot be used. */
  static async open(config: Config, parts: EdgeParts): Promise<Edge> {
    const { core, log, metrics, refusals } = parts;
    const memory = createEdgeMemory(config, metrics);
    const openEventLog = eventLogsOf(config, memory, parts);
    let edge: Edge | undefined;
    const running = () => (edge === undefined ? config : edge.#config);
    const keys = await ClientKeys.open(config, {
      metrics,
      log,
      shared: parts.sharedKeys,
      onChange: (lost) => {
        if (edge !== undefined) edge.#onKeysChanged(lost);
      },
    });
    const load = loadGuardOf(parts, memory, {
      config: running,
      listens: () => (edge === undefined ? 0 : edge.endpoints.mcp.listenCount),
    });
    try {
      const authenticator = createAuthenticator(config.auth, authenticatorDeps(parts, keys, running));
      const current = () => (edge === undefined ? authenticator : edge.#authenticator);
      const challengeIfOver = (principal: Principal, path: string) =>
        edge === undefined ? undefined : edge.#challengeIfOver(principal, path);
      const scopeChallenge = (scopes: readonly string[], view: string) =>
        scopeChallengeText(scopes, edge && metadataUrl(edge.publicOrigin + endpointPath(view)));
      const currentOf = (principal: Principal) => current().currentOf(principal);
      const endpoints = createEndpoints({
        front: core.gateway,
        config,
        log,
        metrics,
        memory,
        openEventLog,
        refusals,
        load,
        challengeIfOver,
        scopeChallenge,
        currentOf,
      });
      const toClients = clientsHandlerOf(parts, endpoints, authenticator);
      const clients = await MovablePort.open(CLIENT_PORT, config, toClients);
      edge = new Edge(config, parts, endpoints, { authenticator, keys }, clients, load);
      edge.#operator = await MovablePort.open(OPERATOR_PORT, config, parts.operatorHandlerOf);
      return edge;
    } catch (thrown) {
      load[Symbol.dispose]();
      if (edge === undefined) await keys[Symbol.asyncDispose]();
      else await edge.close();
      throw thrown;
    }
  }

  /** Ends everything that removed API keys have open, and judges the rest by the present rights of the keys. @param lost keys of the principals that have no API key any more. */
  #onKeysChanged(lost: ReadonlySet<string>): void {
    const { core, log } = this.#parts;
    this.#sweep();
    if (lost.size === 0) return;
    core.groups.releaseWhere(({ principal }) => lost.has(principal));
    core.sessions
      .endWhere(({ principal }) => lost.has(principal))
      .catch((thrown: unknown) =>
        log.warn({ err: thrown }, 'sessions of a removed API key could not be ended for good'),
      );
  }

  #challengeIfOver(principal: Principal, path: string): string | undefined {
    const authenticator = this.#authenticator;
    if (!authenticator.isOver(principal)) return undefined;
    return authenticator.challengeOf(principal, this.publicOrigin + path);
  }

  #sweep(): void {
    const authenticator = this.#authenticator;
    this.endpoints.endStreams((principal) => authenticator.isOver(principal));
    // The answer of a subscription stream names its resources, so the client asks again. Sessions tell their clients of changed lists.
    this.endpoints.mcp.streams.endListens((principal) => authenticator.currentOf(principal) !== principal);
    this.#parts.core.sessions.updatePrincipals((principal) => authenticator.currentOf(principal));
    if (!this.#config.legacySse) this.#endSse();
  }

  #endSse(): void {
    const { sse } = this.endpoints;
    if (performance.now() < this.#sseUntilMs) sse.endIdle();
    else sse.endStreams(() => true);
  }

  /** Returns the groups that the API keys of a name have now, or the reason why there are none to return. */
  groupsOfKey(name: string): readonly string[] | string {
    return this.#keys.current.groupsOf(name, Date.now());
  }

  /** `http://host:port` or `https://host:port` for clients. */
  get origin(): string {
    return this.#clients.listener.origin;
  }

  /** The origin under which others reach the gateway, by the running config. */
  get publicOrigin(): string {
    return this.#config.publicUrl ?? this.origin;
  }

  /** The greatest body of a request, by the running config. */
  get bodyBytes(): number {
    return this.#config.limits.bodyBytes;
  }

  get operatorOrigin(): string | undefined {
    return this.#operator?.listener?.origin;
  }

  /**
   * Opens the addresses of another config that are not open yet.
   *
   * @throws {StartError} if one of them cannot be used. Then nothing has changed.
   */
  async prepare(next: Config): Promise<PortChange> {
    await using prepared = new Cleanups();
    const keys = await this.#keys.prepare(next);
    prepared.defer(() => keys.abandon());
    // Verified tokens are cached there, so an equal one stays.
    const isSameAuth = isDeepStrictEqual(this.#config.auth, next.auth);
    const authenticator = isSameAuth
      ? this.#authenticator
      : createAuthenticator(
          next.auth,
          authenticatorDeps(this.#parts, this.#keys, () => this.#config),
          this.#authenticator,
        );
    const clients = await this.#clients.prepare(next, clientsHandlerOf(this.#parts, this.endpoints, authenticator));
    prepared.defer(() => clients.abandon());
    const operator = await this.#operator?.prepare(next);
    prepared.defer(() => operator?.abandon());
    const abandoned = prepared.move();
    return {
      apply: async () => {
        const { auth, legacySse } = this.#config;
        if (legacySse) this.#sseUntilMs = performance.now() + next.reload.drainMs;
        if (next.tls !== undefined) this.#clients.listener.setTls(next.tls);
        this.#config = next;
        if (!isSameAuth) this.#authenticator.replaceBy(authenticator, this.#present);
        this.#authenticator = authenticator;
        keys.apply();
        this.endpoints.setConfig(next);
        if (!isSameAuth) this.endpoints.endStreams(revokedBy(auth, next.auth));
        await Promise.all([clients.apply(), operator?.apply()]);
      },
      abandon: () => abandoned[Symbol.asyncDispose](),
    };
  }

  /**
   * Refuses new requests. Requests in flight continue. Streams on which no answer is due end at once if another process takes them, else in
   * {@link finish}. Many clients open a stream again twice within seconds, and never after that.
   *
   * @param isForRestart whether clients can come back only after the next start.
   */
  drain(hasOthers: boolean, isForRestart = false): void {
    this.#clients.listener.announceEnd();
    if (hasOthers) this.endpoints.drain(isForRestart);
    else this.endpoints.refuseNew();
  }

  /** The reasons for which new requests are refused, or credentials cannot be judged by their present state, in words. */
  get reasons(): readonly string[] {
    const { failure } = this.#keys;
    return [...this.#load.reasons, ...(failure === undefined ? [] : [failure]), ...this.#authenticator.failures];
  }

  /** The number of answers that are on their way to other processes, whose clients may read slowly. */
  get forwardedCount(): number {
    return this.endpoints.mcp.forwarded.answeringCount;
  }

  /**
   * Accepts no more connections, and closes each open one after its response, at the latest after `drainMs`.
   *
   * @param isForRestart returns whether clients can come back only after the next start.
   */
  async retire(drainMs: number, isForRestart: () => boolean): Promise<void> {
    // Clients may have resumed theirs since the drain began.
    const endStreams = () => this.endpoints.drain(isForRestart());
    endStreams();
    // One that was about to be opened ends in a later round, and so does one whose process has not ended it by then.
    const ending = setInterval(() => {
      endStreams();
      this.endpoints.mcp.endPassedOnStreams();
    }, END_STREAMS_MS);
    try {
      await this.#clients.listener.retire(drainMs);
    } finally {
      clearInterval(ending);
    }
  }

  /** Resolves when the responses that have begun are written, at the latest after `waitMs`. */
  async finish(waitMs: number): Promise<void> {
    // Ends the streams that were left, and those on which an answer was due.
    this.endpoints.drain(true);
    await this.#clients.finish(waitMs);
  }

  /** Closes all listeners and their connections. */
  async close(): Promise<void> {
    clearInterval(this.#sweeping);
    this.#load[Symbol.dispose]();
    await this.#keys[Symbol.asyncDispose]();
    await this.#clients.close();
    await this.#operator?.close();
  }
}

/** The parts of an {@link Edge} that decide who may use it. */
interface Access {
  readonly authenticator: ConfigAuthenticator;
  readonly keys: ClientKeys;
}

function authenticatorDeps(
  { log, egress, callers, metrics }: EdgeParts,
  keys: ClientKeys,
  running: () => Config,
): Parameters<typeof createAuthenticator>[1] {
  return {
    log,
    egress,
    keys: () => keys.current,
    onKeyUsed: (principal, nowMs) => keys.onUsed(principal, nowMs),
    onVerified: (principal, token) => callers?.remember(principal, token),
    // By the config alone, so that all processes that have it name a principal alike.
    exchangesTokens: () =>
      running().upstreams.some(({ target }) => target.kind !== 'stdio' && target.auth?.kind === 'exchange'),
    onLimit: (limit) => metrics.countLimit(limit),
  };
}

/** Guards the edge against more work than the process can do. */
function loadGuardOf(
  { core, metrics, log }: EdgeParts,
  { unsent, events }: EdgeMemory,
  current: { readonly config: () => Config; readonly listens: () => number },
): LoadGuard {
  const guard = new LoadGuard({
    settings: current.config,
    inFlight: () => core.inFlightCount - current.listens(),
    dropCaches: () => core.dropCaches(),
    closeReaders: () => {
      for (const budget of [unsent, events]) budget.shedTo(budget.bytes / 2);
    },
    onShed: (reason) => metrics.countShed(reason),
    log,
  });
  metrics.onScrape('loopDelay', () => guard.delayMs / 1_000);
  metrics.onScrape('memoryUsed', () => guard.memory);
  return guard;
}

/** Makes the event logs of sessions. */
function eventLogsOf(
  { sessions }: Config,
  { events }: EdgeMemory,
  { storedEvents, metrics, log }: EdgeParts,
): OpenEventLog {
  const openInMemory = memoryEventLogs({ events: sessions.eventLimit, bytes: sessions.eventLimitBytes }, events);
  if (storedEvents === undefined) return openInMemory;
  return storedEventLogs({
    ...storedEvents,
    openInMemory,
    onLimit: (limit) => metrics.countLimit(limit),
    onError: (thrown) => log.error({ err: thrown }, 'events of a stream cannot be stored'),
  });
}

function clientsHandlerOf(
  { core, log, metrics, refusals, identity }: EdgeParts,
  endpoints: Endpoints,
  authenticator: ConfigAuthenticator,
): HandlerOf {
  const jwks = async () => await identity?.jwks(Date.now());
  const shared = { front: core.gateway, endpoints, authenticator, log, metrics, refusals, jwks };
  return (config, _address, origin) => createApp({ ...shared, config, origin });
}
