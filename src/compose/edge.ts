import { isDeepStrictEqual } from 'node:util';
import type { Logger } from 'pino';
import { type Authenticator, createAuthenticator } from '../auth/authenticate.ts';
import { revokedBy } from '../auth/revoked.ts';
import type { Address, Config } from '../config/config.ts';
import { isLoopback } from '../config/schema/address.ts';
import { StartError } from '../errors.ts';
import { createApp, createEndpoints, type Endpoints } from '../downstream/http/app.ts';
import { createEdgeMemory } from '../downstream/memory/edge-memory.ts';
import { MemoryEventLogs } from '../downstream/streams/memory-event-log.ts';
import type { AdminApp } from '../operator/admin/admin-app.ts';
import { createOperatorApp } from '../operator/app.ts';
import type { ConfigControl } from '../operator/config-control.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { VERSION } from '../version.ts';
import type { Core } from './core.ts';
import { type HttpHandler, Listener } from './listener.ts';
import { fullUpstreamStatuses } from './upstream-status.ts';

/** The number of ports that are tried for the operator if none was configured. */
const OPERATOR_PORTS = 100;

/** The parts that an {@link Edge} is constructed from. */
export interface EdgeParts {
  readonly core: Core;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly startedAtMs: number;
  readonly control: Pick<ConfigControl, 'state'>;
  readonly admin: AdminApp;
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
  #authenticator: Authenticator;
  #clients: Listener;
  #operator: Listener | undefined;
  /** Listeners that were replaced and still finish requests. */
  readonly #retiring = new Set<Listener>();

  private constructor(
    config: Config,
    parts: EdgeParts,
    endpoints: Endpoints,
    authenticator: Authenticator,
    clients: Listener,
  ) {
    this.#config = config;
    this.#parts = parts;
    this.#endpoints = endpoints;
    this.#authenticator = authenticator;
    this.#clients = clients;
  }

  /** Opens the listeners of a config. @throws {StartError} if an address cannot be used. */
  static async open(config: Config, parts: EdgeParts): Promise<Edge> {
    const { core, log, metrics } = parts;
    const memory = createEdgeMemory(config, metrics);
    const { eventLimit, eventLimitBytes } = config.sessions;
    const eventLogs = new MemoryEventLogs({ events: eventLimit, bytes: eventLimitBytes }, memory.events);
    const endpoints = createEndpoints({ front: core.gateway, config, log, metrics, memory, eventLogs });
    const authenticator = createAuthenticator(config.auth, { log });
    const clients = await openClients(config, (origin) =>
      clientsHandler(parts, config, endpoints, authenticator, origin),
    );
    const edge = new Edge(config, parts, endpoints, authenticator, clients);
    try {
      edge.#operator = await openOperator(config, (address) => operatorHandler(parts, config, address));
    } catch (thrown) {
      await clients.close();
      throw thrown;
    }
    return edge;
  }

  /** `http://host:port` for clients. */
  get origin(): string {
    return this.#clients.origin;
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
    const { log } = this.#parts;
    // Verified tokens are cached there, so an equal one stays.
    const isSameAuth = isDeepStrictEqual(this.#config.auth, next.auth);
    const authenticator = isSameAuth ? this.#authenticator : createAuthenticator(next.auth, { log });
    const toClients = (origin: string) => clientsHandler(this.#parts, next, this.#endpoints, authenticator, origin);
    const toOperator = (address: Address) => operatorHandler(this.#parts, next, address);
    const isMoved = !isSameAddress(this.#config.listen, next.listen);
    const isOperatorMoved = !isSameAddress(this.#config.operator, next.operator);
    if (isMoved) assertOtherPort('gateway.listen', this.#config.listen, next.listen);
    if (isOperatorMoved) assertOtherPort('gateway.operator', this.#config.operator, next.operator);
    const clients = isMoved ? await openClients(next, toClients) : this.#clients;
    let operator = this.#operator;
    try {
      if (isOperatorMoved) operator = await openOperator(next, toOperator);
    } catch (thrown) {
      if (isMoved) await clients.close();
      throw thrown;
    }
    return {
      apply: async () => {
        const before = { config: this.#config, clients: this.#clients, operator: this.#operator };
        this.#config = next;
        this.#authenticator = authenticator;
        this.#clients = clients;
        this.#operator = operator;
        // Open connections to an address that is about to close are served by the new config too.
        before.clients.handler = toClients(isMoved ? clients.origin : before.clients.origin);
        const { operator: address } = before.config;
        if (before.operator !== undefined && address !== undefined) before.operator.handler = toOperator(address);
        this.#endpoints.setConfig(next);
        if (!isSameAuth) this.#endpoints.endStreams(revokedBy(before.config.auth, next.auth));
        const { drainMs } = next.reload;
        await Promise.all([
          isMoved ? this.#retire(before.clients, drainMs) : undefined,
          isOperatorMoved && before.operator !== undefined ? this.#retire(before.operator, drainMs) : undefined,
        ]);
      },
      abandon: async () => {
        if (isMoved) await clients.close();
        if (isOperatorMoved) await operator?.close();
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
    this.#endpoints.drain();
  }

  /** Closes all listeners and their connections. */
  async close(): Promise<void> {
    const operator = this.#operator === undefined ? [] : [this.#operator];
    await Promise.all([this.#clients, ...operator, ...this.#retiring].map((listener) => listener.close()));
  }
}

function isSameAddress(a: Address | undefined, b: Address | undefined): boolean {
  return isDeepStrictEqual(a, b);
}

/** @throws {StartError} if both addresses have one port: the new one cannot be opened before the old one is closed. */
function assertOtherPort(key: string, before: Address | undefined, after: Address | undefined): void {
  if (before?.port !== after?.port || before === undefined || before.port === 0) return;
  throw new StartError(`${key}: another host at the same port (${before.port}) needs a restart, or another port`);
}

function openClients(config: Config, make: (origin: string) => HttpHandler): Promise<Listener> {
  return Listener.open(config.listen, 'gateway.listen or --listen', make);
}

async function openOperator(
  { operator, operatorMayMove }: Config,
  make: (address: Address) => HttpHandler,
): Promise<Listener | undefined> {
  if (operator === undefined) return undefined;
  const ports = operatorMayMove ? OPERATOR_PORTS : 1;
  return await Listener.open(operator, 'gateway.operator or --operator', () => make(operator), ports);
}

function clientsHandler(
  { core, log, metrics }: EdgeParts,
  config: Config,
  endpoints: Endpoints,
  authenticator: Authenticator,
  origin: string,
): HttpHandler {
  return createApp({ front: core.gateway, endpoints, authenticator, config, origin, log, metrics });
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
