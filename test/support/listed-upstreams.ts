import { ListRefresher } from '../../src/gateway/lists/list-refresher.ts';
import { StartRecords } from '../../src/gateway/lists/start-records.ts';
import type { Overrides } from '../downstream/edge.ts';
import { GatewayParts, type PartsSurroundings, type PartsUpstream } from './gateway-parts.ts';
import { PATIENCE_MS } from './patience.ts';

export const REMOTE = { kind: 'http', url: 'http://memory', headers: {} } as const;

export interface ListedOptions extends PartsSurroundings {
  readonly waitMs?: number;
  readonly access?: Overrides['access'];
  readonly reading?: () => Promise<unknown> | undefined;
}

/** Scripted upstreams with the parts of the gateway that read and keep their lists. */
export class ListedUpstreams extends GatewayParts {
  readonly records: StartRecords;
  readonly refresher: ListRefresher;

  private constructor(upstreams: Readonly<Record<string, PartsUpstream>>, options: ListedOptions) {
    const { waitMs = PATIENCE_MS, access, reading } = options;
    super(upstreams, {}, { lists: { waitMs }, access }, options);
    const { config, views, offers, store, log } = this;
    this.records = new StartRecords(offers.stored.upstreamKeys(), store, log);
    this.refresher = new ListRefresher({
      views,
      upstreams: this.upstreams,
      offers,
      records: this.records,
      settings: () => config,
      reading: () => reading?.(),
      onLimit: (limit) => this.metrics.countLimit(limit),
      refreshCatalog: (holder) => {
        holder.catalog = offers.catalogFor(holder);
        holder.catalogVersion = offers.version;
      },
    });
  }

  /** Reads what an earlier process has stored. */
  static async open(
    upstreams: Readonly<Record<string, PartsUpstream>>,
    options: ListedOptions = {},
  ): Promise<ListedUpstreams> {
    const listed = new ListedUpstreams(upstreams, options);
    await listed.offers.restore();
    await listed.records.restore();
    return listed;
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await super[Symbol.asyncDispose]();
    await this.records.flush();
  }
}
