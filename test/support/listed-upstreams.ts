import { pino } from 'pino';
import { commonKey } from '../../src/catalog/offer.ts';
import { viewsOf } from '../../src/catalog/view.ts';
import type { Config } from '../../src/config/config.ts';
import type { UpstreamConfig } from '../../src/config/upstream-config.ts';
import { ClientGroup } from '../../src/gateway/clients/client-group.ts';
import type { Upstream, Upstreams } from '../../src/gateway/exchange/connection-holder.ts';
import { Gate, type VerdictObserver } from '../../src/gateway/exchange/gate.ts';
import { ListRefresher } from '../../src/gateway/lists/list-refresher.ts';
import { Offers } from '../../src/gateway/lists/offers.ts';
import { StartRecords } from '../../src/gateway/lists/start-records.ts';
import { RawObject } from '../../src/json/json.ts';
import type { AccessConfig } from '../../src/policy/access-config.ts';
import { LOCAL, type Principal } from '../../src/policy/principal.ts';
import type { OfferStore } from '../../src/store/offer-store.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import type { CredentialSource } from '../../src/upstream/connection-key.ts';
import { remoteQuota } from '../../src/upstream/quota/quotas.ts';
import { Upstream as UpstreamOf } from '../../src/upstream/upstream.ts';
import { UpstreamSet } from '../../src/upstream/upstream-set.ts';
import { configWith } from '../downstream/edge.ts';
import { MemoryOfferStore } from '../store/memory/memory-offer-store.ts';
import { sharesOf } from '../upstream/quota/shares.ts';
import { UPSTREAM } from './core.ts';
import type { MemoryUpstream } from './memory-upstream.ts';
import { PATIENCE_MS } from './patience.ts';

export const REMOTE = { kind: 'http', url: 'http://memory', headers: {} } as const;

export interface ListedUpstream extends Partial<UpstreamConfig> {
  readonly memory: MemoryUpstream;
  readonly credentials?: CredentialSource;
}

export interface ListedOptions {
  /** Default: one in memory that is empty. */
  readonly store?: OfferStore;
  readonly waitMs?: number;
  readonly access?: AccessConfig;
  readonly onVerdict?: VerdictObserver;
  readonly reading?: () => Promise<unknown> | undefined;
}

/** Scripted upstreams with the parts of the gateway that read and keep their lists, and no others. */
export interface ListedUpstreams extends AsyncDisposable {
  readonly config: Config;
  readonly upstreams: Upstreams;
  readonly offers: Offers;
  readonly records: StartRecords;
  readonly gate: Gate;
  readonly refresher: ListRefresher;
  /** Returns the upstream of this id. @throws if there is none. */
  upstream(id: string): Upstream;
  /** Creates an upstream, which is not in the set. */
  create(id: string, upstream: ListedUpstream): Upstream;
  /** Returns a client of the modern era, which stands for any holder of connections. */
  client(options?: {
    readonly view?: string;
    readonly principal?: Principal;
    readonly capabilities?: object;
  }): ClientGroup;
}

const LOG = pino({ level: 'silent' });

function configOf(id: string, { memory: _memory, credentials: _credentials, ...own }: ListedUpstream): UpstreamConfig {
  return { ...UPSTREAM, id, title: id, prefix: `${id}__`, ...own };
}

export async function listedUpstreams(
  scripted: Readonly<Record<string, ListedUpstream>>,
  { store = new MemoryOfferStore(), waitMs = PATIENCE_MS, access, onVerdict, reading }: ListedOptions = {},
): Promise<ListedUpstreams> {
  const upstreams: Upstreams = new UpstreamSet();
  const configs = Object.entries(scripted).map(([id, one]) => configOf(id, one));
  const config = configWith({ upstreams: configs, lists: { waitMs }, access });
  const [views, gate] = [viewsOf(config), new Gate(access, onVerdict === undefined ? [] : [onVerdict])];
  const audienceOf = (id: string, principal: string) => upstreams.get(id)?.audienceOf(principal) ?? '';
  const offers = new Offers({ config, views, audienceOf, gate, store, log: LOG, metrics: createMetrics('test') });
  const records = new StartRecords(offers.upstreamKeys(), store, LOG);
  await offers.restore();
  await records.restore();
  const refresher = new ListRefresher({
    views,
    upstreams,
    offers,
    records,
    settings: () => config,
    reading: () => reading?.(),
    refreshCatalog: (holder) => {
      holder.catalog = offers.catalogFor(holder);
      holder.catalogVersion = offers.version;
    },
  });
  const shares = sharesOf();
  const quota = remoteQuota(10_000, shares);
  const ignore = () => undefined;
  const create = (id: string, one: ListedUpstream): Upstream => {
    const own = configOf(id, one);
    const isProcess = own.target.kind === 'stdio';
    const era = own.era === 'auto' ? 'either' : own.era;
    return new UpstreamOf(
      {
        config: own,
        transports: [{ era, isProcess, hasCallStreams: !isProcess, start: one.memory.start }],
        credentials: one.credentials ?? 'gateway',
        quota,
        shares,
        clientInfo: RawObject.of({ name: 'linkspan', version: '1' }),
        log: LOG,
        tracing: undefined,
        onLimit: ignore,
        onStartFailed: ignore,
        onListed: ignore,
      },
      {
        onNotification: ignore,
        onServerRequest: ignore,
        onLinkClosed: ignore,
        onStateChange: ignore,
        prepareLists: (upstream, offer) => offers.prepare(upstream, offer),
        onLists: (upstream, key, offer) => void offers.update(upstream, key, offer),
        onEras: (upstream, eras) => void offers.setEras(upstream, eras),
      },
    );
  };
  for (const [id, one] of Object.entries(scripted)) {
    const upstream = create(id, one);
    upstreams.add(upstream);
    offers.setEras(id, upstream.eras);
  }
  let clients = 0;
  return {
    config,
    upstreams,
    offers,
    records,
    gate,
    refresher,
    create,
    upstream: (id) => {
      const found = upstreams.get(id);
      if (found === undefined) throw new RangeError(`no upstream "${id}"`);
      return found;
    },
    client: ({ view = '', principal = LOCAL, capabilities = {} } = {}) => {
      const caller = { principal, view, revision: '2026-07-28', capabilities: RawObject.of(capabilities) } as const;
      return new ClientGroup(`client ${++clients}`, caller, offers.catalog(view, commonKey('modern')));
    },
    [Symbol.asyncDispose]: async () => {
      await upstreams.stop();
      await offers.flush();
      await records.flush();
    },
  };
}
