import { pino } from 'pino';
import { commonKey } from '../../src/catalog/offer.ts';
import { type View, viewsOf } from '../../src/catalog/view.ts';
import type { Config } from '../../src/config/values/config.ts';
import type { UpstreamConfig } from '../../src/config/values/upstream-config.ts';
import { ClientGroup } from '../../src/gateway/clients/client-group.ts';
import { ModernClient } from '../../src/gateway/clients/modern-client.ts';
import { Session, type SessionEvents } from '../../src/gateway/clients/session.ts';
import { StateLosses } from '../../src/gateway/connections/state-losses.ts';
import type { Caller } from '../../src/gateway/front/caller.ts';
import type { ConnectionHolder, Upstream as GatewayUpstream } from '../../src/gateway/exchange/connection-holder.ts';
import type { Client, Exchange } from '../../src/gateway/exchange/exchange.ts';
import { Gate, type VerdictObserver } from '../../src/gateway/exchange/gate.ts';
import { OpenExchange } from '../../src/gateway/exchange/open-exchange.ts';
import { LocalOwners } from '../../src/gateway/exchange/owners.ts';
import type { MessageSink } from '../../src/gateway/front/front.ts';
import { PrivateLists, type PrivateListsParts } from '../../src/gateway/lists/changes/private-lists.ts';
import { Offers } from '../../src/gateway/lists/offers.ts';
import { RawObject } from '../../src/json/json.ts';
import { LOCAL, type Principal } from '../../src/policy/principal.ts';
import { type Message, notificationText, parseMessage } from '../../src/protocol/jsonrpc.ts';
import type { Revision } from '../../src/protocol/revisions.ts';
import type { Severity } from '../../src/protocol/severity.ts';
import type { OfferStore } from '../../src/store/offer-store.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import type { CredentialSource } from '../../src/upstream/connection-key.ts';
import { ConnectionQuota } from '../../src/upstream/quota/connection-quota.ts';
import { ONE_PRINCIPAL } from '../../src/upstream/quota/fair-pool.ts';
import { Upstream } from '../../src/upstream/upstream.ts';
import type { UpstreamEvents } from '../../src/upstream/upstream-events.ts';
import { UpstreamSet } from '../../src/upstream/upstream-set.ts';
import { configWith, type Overrides } from '../downstream/edge.ts';
import { MemoryOfferStore } from '../store/memory/memory-offer-store.ts';
import { Changes } from './changes.ts';
import { UPSTREAM } from './core.ts';
import type { MemoryUpstream } from './memory-upstream.ts';

export interface PartsUpstream extends Partial<UpstreamConfig> {
  readonly memory: MemoryUpstream;
  /** Default: `gateway`. */
  readonly credentials?: CredentialSource;
}

/** What a gateway has around its parts. */
export interface PartsSurroundings {
  /** Default: one in memory that is empty. */
  readonly store?: OfferStore;
  readonly onVerdict?: VerdictObserver | undefined;
}

interface ClientOptions {
  readonly principal?: Principal;
  readonly view?: string;
  readonly revision?: Revision;
  readonly capabilities?: object;
  readonly logLevel?: Severity;
}

interface SessionOptions extends ClientOptions, Partial<Pick<SessionEvents, 'onStateKept' | 'onLinkOpen'>> {
  /** Default: one that no other session has. */
  readonly key?: string;
}

interface RequestOptions {
  readonly method?: string;
  readonly params?: object;
  readonly progressToken?: string;
}

/** A stream to a client, with the messages that it got. */
export class TestStream implements MessageSink {
  readonly messages: Message[] = [];
  /** False if the stream accepts no message. */
  isOpen = true;
  readonly #arrivals = new Changes();

  send(text: string): boolean {
    if (!this.isOpen) return false;
    this.messages.push(parseMessage(text));
    this.#arrivals.announce();
    return true;
  }

  /** The notifications so far: the method of each, with its parameters. */
  get notifications(): readonly (readonly [method: string, params: unknown])[] {
    return this.messages.flatMap((message) =>
      message.kind === 'notification' ? [[message.method, JSON.parse(message.params?.toString() ?? 'null')]] : [],
    );
  }

  /** Resolves with the first defined value of `found`, which runs again after each message. Bounded in time. */
  until<T>(found: () => T | undefined): Promise<T> {
    return this.#arrivals.until(found);
  }
}

const NO_EVENTS = {
  onNotification: () => undefined,
  onGap: () => undefined,
  onServerRequest: () => undefined,
  onLinkClosed: () => undefined,
  onStateChange: () => undefined,
};

/**
 * The real parts that the classes of a gateway work on, without a gateway: upstreams over memory transports, their lists, sessions and
 * client groups. The lists of an upstream are read when a test asks for it.
 */
export class GatewayParts implements AsyncDisposable {
  readonly config: Config;
  readonly views: ReadonlyMap<string, View>;
  readonly upstreams = new UpstreamSet<Exchange, ConnectionHolder>();
  /** Sessions and groups, in the order of their creation. */
  readonly holders: ConnectionHolder[] = [];
  readonly metrics = createMetrics('test');
  readonly store: OfferStore;
  readonly gate: Gate;
  /** The lines of the log. */
  readonly lines: string[] = [];
  readonly log = pino({ level: 'debug' }, { write: (line) => void this.lines.push(line) });
  readonly stateLosses = new StateLosses({
    metrics: this.metrics,
    log: this.log,
    upstreams: this.upstreams,
    owners: new LocalOwners(),
    onLimit: (limit) => this.metrics.countLimit(limit),
  });
  readonly offers: Offers;
  readonly #events: UpstreamEvents<Exchange, ConnectionHolder>;
  #lastKey = 0;

  constructor(
    upstreams: Readonly<Record<string, PartsUpstream>>,
    /** Receives the events of the upstreams. Lists go to the offers in any case. */
    events: Partial<UpstreamEvents<Exchange, ConnectionHolder>> = {},
    overrides: Overrides = {},
    { store = new MemoryOfferStore(), onVerdict }: PartsSurroundings = {},
  ) {
    const configs = Object.entries(upstreams).map(([id, one]) => upstreamConfig(id, one));
    this.config = configWith({ upstreams: configs, ...overrides });
    this.store = store;
    this.gate = new Gate(this.config.access, onVerdict === undefined ? [] : [onVerdict]);
    this.views = viewsOf(this.config);
    this.offers = new Offers({
      config: this.config,
      views: this.views,
      pseudonymsOf: () => [],
      audienceOf: (id, principal) => this.upstreams.get(id)?.audienceOf(principal) ?? '',
      gate: this.gate,
      store: this.store,
      log: this.log,
      metrics: this.metrics,
    });
    this.#events = {
      ...NO_EVENTS,
      knownLists: (upstream, key) => this.offers.offerIn(upstream, key),
      prepareLists: (upstream, offer) => this.offers.prepare(upstream, offer),
      onLists: (...lists) => void this.offers.update(...lists),
      onEras: (upstream, eras) => void this.offers.setEras(upstream, eras),
      ...events,
    };
    for (const [id, one] of Object.entries(upstreams)) {
      const upstream = this.create(id, one);
      this.upstreams.add(upstream);
      this.offers.setEras(id, upstream.eras);
    }
  }

  /** Returns an upstream of the config. @throws {TypeError} if there is none with this id. */
  upstream(id: string): GatewayUpstream {
    const upstream = this.upstreams.get(id);
    if (upstream === undefined) throw new TypeError(`no upstream ${id}`);
    return upstream;
  }

  /** Constructs an upstream, which may replace that of the same id. */
  create(id: string, one: PartsUpstream): GatewayUpstream {
    const config = upstreamConfig(id, one);
    const era = config.era === 'auto' ? 'either' : config.era;
    const isProcess = config.target.kind === 'stdio';
    return new Upstream(
      {
        config,
        transports: [{ era, isProcess, hasCallStreams: !isProcess, canAttach: !isProcess, start: one.memory.start }],
        quota: new ConnectionQuota({ limit: Infinity, refusal: '' }),
        shares: ONE_PRINCIPAL,
        credentials: one.credentials ?? 'gateway',
        clientInfo: RawObject.EMPTY,
        log: this.log,
        tracing: undefined,
        onLimit: () => undefined,
        onStartFailed: () => undefined,
        onListed: () => undefined,
      },
      this.#events,
    );
  }

  /** Adds an initialized session with an open stream. */
  session(options: SessionOptions = {}): { readonly session: Session; readonly stream: TestStream } {
    const caller = callerOf({ revision: '2025-11-25', ...options });
    const catalog = this.offers.catalog(caller.view, commonKey('legacy'));
    const { key = `session ${++this.#lastKey}` } = options;
    const ref = { principal: caller.principal.key, serial: this.#lastKey, expiresMs: Infinity };
    const session = new Session(key, key, ref, caller, catalog, {
      onStateKept: options.onStateKept ?? (() => undefined),
      onLinkOpen: options.onLinkOpen ?? (() => undefined),
      onPrincipalChange: () => undefined,
      hasFurtherScopes: (before, after) => this.gate.hasFurtherScopes(before, after),
      catalogOf: (one, principal) => this.offers.catalogOf(one, principal),
      onLimit: () => undefined,
      onDropped: () => undefined,
    });
    session.catalog = this.offers.catalogFor(session);
    session.logLevel = options.logLevel;
    session.isInitialized = true;
    const stream = new TestStream();
    session.setSink(stream);
    this.holders.push(session);
    return { session, stream };
  }

  /** Adds a client group with a listening stream, and a client of it. */
  group(options: ClientOptions = {}): {
    readonly group: ClientGroup;
    readonly client: ModernClient;
    readonly stream: TestStream;
    /** The tasks that the stream was notified of. */
    readonly tasks: readonly string[];
  } {
    const caller = callerOf({ revision: '2026-07-28', ...options });
    const group = new ClientGroup(
      `group ${++this.#lastKey}`,
      caller,
      this.offers.catalog(caller.view, commonKey('modern')),
    );
    group.catalog = this.offers.catalogFor(group);
    const stream = new TestStream();
    const tasks: string[] = [];
    group.subscribers.add({
      hasOtherRights: false,
      caller,
      isSubscribedTo: () => true,
      announce: (method, params) => void stream.send(notificationText(method, params)),
      onTaskChange: (_link, task) => void tasks.push(task),
      close: () => undefined,
    });
    this.holders.push(group);
    return { group, client: new ModernClient(caller, group, options.logLevel, undefined), stream, tasks };
  }

  /** Begins a request of a client, which is answered on a stream of its own. */
  exchange(
    client: Client,
    holder: ConnectionHolder,
    { method = 'tools/call', params = {}, progressToken }: RequestOptions = {},
  ): { readonly exchange: OpenExchange; readonly stream: TestStream } {
    const stream = new TestStream();
    const meta = progressToken === undefined ? {} : { _meta: { progressToken } };
    const sent = RawObject.of({ ...params, ...meta });
    const request = { kind: 'request', id: String(++this.#lastKey), method, params: sent } as const;
    const exchange = new OpenExchange(client, holder, request, stream);
    holder.addExchange(exchange);
    return { exchange, stream };
  }

  /** Returns private lists of the upstreams that nobody else hears of. */
  privateLists(onListed: PrivateListsParts['onListed']): PrivateLists {
    const { upstreams, offers, log } = this;
    const refreshCatalog = () => undefined;
    return new PrivateLists({ upstreams, offers, log, refreshCatalog, onLimit: () => undefined, onListed });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const holder of this.holders) holder.close();
    await this.upstreams.stop();
    await this.offers.stored.flush();
  }
}

function upstreamConfig(id: string, { memory: _memory, credentials: _source, ...own }: PartsUpstream): UpstreamConfig {
  return { ...UPSTREAM, id, title: id, prefix: `${id}__`, ...own };
}

function callerOf({
  principal = LOCAL,
  view = '',
  revision,
  capabilities = {},
}: ClientOptions & { readonly revision: Revision }): Caller {
  return { principal, view, revision, capabilities: RawObject.of(capabilities) };
}
