import { isDeepStrictEqual } from 'node:util';
import type { Logger } from 'pino';
import { type ConfigAuthenticator, createAuthenticator } from '../auth/authenticate.ts';
import { revokedBy } from '../auth/revoked.ts';
import type { Address, Config } from '../config/config.ts';
import { isLoopback } from '../config/schema/address.ts';
import type { IdentityKeys } from '../credentials/identity-keys.ts';
import type { Egress } from '../egress/egress.ts';
import type { Callers } from '../policy/callers.ts';
import { createApp, createEndpoints, type Endpoints } from '../downstream/http/app.ts';
import { endpointOf } from '../downstream/admission/admission.ts';
import { createEdgeMemory, type EdgeMemory } from '../downstream/memory/edge-memory.ts';
import type { RefusalAudit } from '../downstream/admission/refusal-audit.ts';
import type { EventLogs } from '../downstream/streams/event-log.ts';
import { MemoryEventLogs } from '../downstream/streams/memory-event-log.ts';
import { StoredEventLogs, type StoredEventLogsParts } from '../downstream/streams/stored-event-log.ts';
import type { ApiKeyStore } from '../store/api-key-store.ts';
import type { AdminApp } from '../operator/admin/admin-app.ts';
import { createOperatorApp } from '../operator/app.ts';
import type { ConfigControl } from '../operator/config-control.ts';
import type { Principal } from '../policy/principal.ts';
import { LoadGuard } from '../load/load-guard.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';
import type { Core } from './core/core.ts';
import { ClientKeys } from './keys/client-keys.ts';
import { assertOtherPort, type HttpHandler, Listener } from './listener.ts';
import { OperatorPort, type OperatorPortChange } from './operator-port.ts';
import { fullUpstreamStatuses } from './upstream-status.ts';

/**
 * The interval in which streams end whose credentials have expired, or were revoked while the stream was opened. Streams whose rights have
 * changed follow them.
 */
const OVER_SWEEP_MS = 1_000;
/** The interval at which a process that accepts no more connections ends streams that it passes on. */
const END_STREAMS_MS = 250;

/** The parts that an {@link Edge} is constructed from. */
export interface EdgeParts {
  readonly core: Core;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly startedAtMs: number;
  readonly control: Pick<ConfigControl, 'state'>;
  readonly admin: AdminApp;
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
  /** Returns whether to send traffic here, and all reasons against it in words. */
  ready(): { readonly ready: boolean; readonly reasons: readonly string[] };
}

/** Another config for the edge, of which nothing has taken effect. Exactly one of its methods must be called. */
export interface EdgeChange {
  /** Serves requests by the config. Resolves when the addresses that it does not have are closed. */
  apply(): Promise<void>;
  /** Closes the addresses that were opened for it. */
  abandon(): Promise<void>;
}

/** The listeners of a gateway and their handlers. Both can be swapped; the endpoints behind them keep streams and events. */
export class Edge {
  readonly #parts: EdgeParts;
  readonly #endpoints: Endpoints;
  #config: Config;
  #authenticator: ConfigAuthenticator;
  readonly #keys: ClientKeys;
  readonly #sweeping: NodeJS.Timeout;
  readonly #load: LoadGuard;
  #clients: Listener;
  #operator: OperatorPort | undefined;
  /** Listeners that were replaced and still finish requests. */
  readonly #retiring = new Set<Listener>();

  private constructor(
    config: Config,
    parts: EdgeParts,
    endpoints: Endpoints,
    { authenticator, keys }: Access,
    clients: Listener,
    load: LoadGuard,
  ) {
    this.#config = config;
    this.#parts = parts;
    this.#endpoints = endpoints;
    this.#authenticator = authenticator;
    this.#keys = keys;
    this.#clients = clients;
    this.#load = load;
    this.#sweeping = setInterval(() => this.#sweep(), OVER_SWEEP_MS).unref();
  }

  /** Opens the listeners of a config. @throws {StartError} if an address cannot be used. */
  static async open(config: Config, parts: EdgeParts): Promise<Edge> {
    const { core, log, metrics, refusals } = parts;
    const memory = createEdgeMemory(config, metrics);
    const eventLogs = eventLogsOf(config, memory, parts);
    let edge: Edge | undefined;
    const keys = await ClientKeys.open(config, {
      metrics,
      log,
      shared: parts.sharedKeys,
      onChange: (lost) => {
        if (edge !== undefined) edge.#onKeysChanged(lost);
      },
    });
    const load = loadGuardOf(parts, memory, {
      config: () => (edge === undefined ? config : edge.#config),
      listens: () => (edge === undefined ? 0 : edge.#endpoints.mcp.listenCount),
    });
    try {
      const authenticator = createAuthenticator(config.auth, authenticatorDeps(parts, keys));
      const current = () => (edge === undefined ? authenticator : edge.#authenticator);
      const challengeIfOver = (principal: Principal, view: string) =>
        edge === undefined ? undefined : edge.#challengeIfOver(principal, view);
      const currentOf = (principal: Principal) => current().currentOf(principal);
      const endpoints = createEndpoints({
        front: core.gateway,
        config,
        log,
        metrics,
        memory,
        eventLogs,
        refusals,
        load,
        challengeIfOver,
        currentOf,
      });
      const clients = await openClients(config, (origin) =>
        clientsHandler(parts, config, endpoints, authenticator, origin),
      );
      edge = new Edge(config, parts, endpoints, { authenticator, keys }, clients, load);
      edge.#operator = await OperatorPort.open(config, (next, address) => operatorHandler(parts, next, address));
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
    core.groups.endOf(lost);
    core.sessions
      .endOf(lost)
      .catch((thrown: unknown) =>
        log.warn({ err: thrown }, 'sessions of a removed API key could not be ended for good'),
      );
  }

  #challengeIfOver(principal: Principal, view: string): string | undefined {
    const authenticator = this.#authenticator;
    if (!authenticator.isOver(principal)) return undefined;
    return authenticator.challengeOf(principal, endpointOf(this.publicOrigin, view));
  }

  #sweep(): void {
    const authenticator = this.#authenticator;
    this.#endpoints.endStreams((principal) => authenticator.isOver(principal));
    // The answer of a subscription stream names its resources, so the client asks again. Sessions tell their clients of changed lists.
    this.#endpoints.mcp.endListens((principal) => authenticator.currentOf(principal) !== principal);
    this.#parts.core.sessions.updatePrincipals((principal) => authenticator.currentOf(principal));
  }

  /** The endpoints behind the listeners. */
  get endpoints(): Endpoints {
    return this.#endpoints;
  }

  /** Returns the groups that the API keys of a name have now, or the reason why there are none to return. */
  groupsOfKey(name: string): readonly string[] | string {
    return this.#keys.current.groupsOf(name, Date.now());
  }

  /** `http://host:port` or `https://host:port` for clients. */
  get origin(): string {
    return this.#clients.origin;
  }

  /** The origin under which others reach the gateway, by the running config. */
  get publicOrigin(): string {
    return this.#config.publicUrl ?? this.#clients.origin;
  }

  /** The greatest body of a request, by the running config. */
  get bodyBytes(): number {
    return this.#config.limits.bodyBytes;
  }

  get operatorOrigin(): string | undefined {
    return this.#operator?.origin;
  }

  /**
   * Opens the addresses of another config that are not open yet.
   *
   * @throws {StartError} if one of them cannot be used. Then nothing has changed.
   */
  async prepare(next: Config): Promise<EdgeChange> {
    const keys = await this.#keys.prepare(next);
    try {
      return await this.#prepare(next, keys);
    } catch (thrown) {
      await keys.abandon();
      throw thrown;
    }
  }

  async #prepare(next: Config, keys: Awaited<ReturnType<ClientKeys['prepare']>>): Promise<EdgeChange> {
    // Verified tokens are cached there, so an equal one stays.
    const isSameAuth = isDeepStrictEqual(this.#config.auth, next.auth);
    const authenticator = isSameAuth
      ? this.#authenticator
      : createAuthenticator(next.auth, authenticatorDeps(this.#parts, this.#keys), this.#authenticator);
    const toClients = (origin: string) => clientsHandler(this.#parts, next, this.#endpoints, authenticator, origin);
    const isTls = ({ tls }: Config) => tls !== undefined;
    const isMoved = !isDeepStrictEqual(this.#config.listen, next.listen) || isTls(this.#config) !== isTls(next);
    if (isMoved) assertOtherPort('gateway.listen', this.#config.listen, next.listen);
    const clients = isMoved ? await openClients(next, toClients) : this.#clients;
    let operator: OperatorPortChange | undefined;
    try {
      operator = await this.#operator?.prepare(next);
    } catch (thrown) {
      if (isMoved) await clients.close();
      throw thrown;
    }
    return {
      apply: async () => {
        const before = { config: this.#config, clients: this.#clients };
        if (next.tls !== undefined) before.clients.setTls(next.tls);
        this.#config = next;
        if (!isSameAuth) this.#authenticator.replaceBy(authenticator);
        this.#authenticator = authenticator;
        keys.apply();
        this.#clients = clients;
        // Open connections to an address that is about to close are served by the new config too.
        before.clients.handler = toClients(isMoved ? clients.origin : before.clients.origin);
        this.#endpoints.setConfig(next);
        if (!isSameAuth) this.#endpoints.endStreams(revokedBy(before.config.auth, next.auth));
        const { drainMs } = next.reload;
        await Promise.all([isMoved ? this.#retire(before.clients, drainMs) : undefined, operator?.apply()]);
      },
      abandon: async () => {
        await keys.abandon();
        if (isMoved) await clients.close();
        await operator?.abandon();
      },
    };
  }

  async #retire(listener: Listener, drainMs: number): Promise<void> {
    this.#retiring.add(listener);
    await listener.retire(drainMs);
    this.#retiring.delete(listener);
  }

  /** Refuses new requests, and ends streams on which no answer is due. Requests in flight continue. */
  drain(): void {
    this.#clients.announceEnd();
    this.#endpoints.drain();
  }

  /** The reasons for which new requests are refused, in words. */
  get loadReasons(): readonly string[] {
    return this.#load.reasons;
  }

  /** The number of answers that are on their way to other processes, whose clients may read slowly. */
  get forwardedCount(): number {
    return this.#endpoints.mcp.forwarded.answeringCount;
  }

  /** Accepts no more connections, and closes each open one after its response, at the latest after `drainMs`. */
  async retire(drainMs: number): Promise<void> {
    const { mcp } = this.#endpoints;
    mcp.endPassedOnStreams();
    // One that was about to be opened ends in a later round.
    const ending = setInterval(() => mcp.endPassedOnStreams(), END_STREAMS_MS);
    try {
      await this.#clients.retire(drainMs);
    } finally {
      clearInterval(ending);
    }
  }

  /** Resolves when the responses that have begun are written, at the latest after `waitMs`. */
  async finish(waitMs: number): Promise<void> {
    // Ends the streams on which an answer was due the first time.
    this.#endpoints.drain();
    await Promise.all([this.#clients, ...this.#retiring].map((listener) => listener.finish(waitMs)));
  }

  /** Closes all listeners and their connections. */
  async close(): Promise<void> {
    clearInterval(this.#sweeping);
    this.#load[Symbol.dispose]();
    await this.#keys[Symbol.asyncDispose]();
    await Promise.all([this.#clients, ...this.#retiring].map((listener) => listener.close()));
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
): Parameters<typeof createAuthenticator>[1] {
  return {
    log,
    egress,
    keys: () => keys.current,
    onKeyUsed: (principal, nowMs) => keys.onUsed(principal, nowMs),
    onVerified: (principal, token) => callers?.remember(principal, token),
    exchangesTokens: () => callers?.exchangesTokens === true,
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
): EventLogs {
  const memory = new MemoryEventLogs({ events: sessions.eventLimit, bytes: sessions.eventLimitBytes }, events);
  if (storedEvents === undefined) return memory;
  return new StoredEventLogs({
    ...storedEvents,
    memory,
    onLimit: (limit) => metrics.countLimit(limit),
    onError: (thrown) => log.error({ err: thrown }, 'events of a stream cannot be stored'),
  });
}

function openClients(config: Config, make: (origin: string) => HttpHandler): Promise<Listener> {
  return Listener.open(config.listen, 'gateway.listen or --listen', make, { tls: config.tls });
}

function clientsHandler(
  { core, log, metrics, refusals, identity }: EdgeParts,
  config: Config,
  endpoints: Endpoints,
  authenticator: ConfigAuthenticator,
  origin: string,
): HttpHandler {
  const jwks = async () => await identity?.jwks(Date.now());
  return createApp({ front: core.gateway, endpoints, authenticator, config, origin, log, metrics, refusals, jwks });
}

/** @param address of the listener that it handles, which may be about to close. */
function operatorHandler(parts: EdgeParts, config: Config, address: Address): HttpHandler {
  const { core, metrics, startedAtMs, control, admin } = parts;
  const app = createOperatorApp({
    metrics,
    version: VERSION,
    allowedHosts: config.allowedHosts,
    startedAtMs,
    isLocal: isLoopback(address.host),
    admin,
    ready: () => parts.ready(),
    config: () => control.state,
    upstreams: () => fullUpstreamStatuses(core),
  });
  return { app };
}
