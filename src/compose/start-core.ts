import type { Logger } from 'pino';
import type { AuditTrail } from '../audit/audit-trail.ts';
import { DecisionPoint } from '../auth/decision-point.ts';
import { updateViews, type View } from '../catalog/view.ts';
import type { Config } from '../config/values/config.ts';
import type { IdentityKeys } from '../credentials/identity-keys.ts';
import { ExternalDecisions } from '../gateway/exchange/external-decisions.ts';
import { Gate, type Verdict } from '../gateway/exchange/gate.ts';
import { AuditRecorder } from '../gateway/records/audit-recorder.ts';
import { LocalOwners } from '../gateway/exchange/owners.ts';
import { PrincipalShares } from '../gateway/exchange/principal-shares.ts';
import { Sealer } from '../gateway/handles/sealer.ts';
import { RawObject } from '../json/json.ts';
import { scopesOnDemandOf } from '../policy/scopes-on-demand.ts';
import type { KeyStore } from '../store/key-store.ts';
import { openState, type State } from '../store/open-state.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { UpstreamSet } from '../upstream/upstream-set.ts';
import { VERSION } from '../version.ts';
import { configApplier } from './reload/apply-config.ts';
import { Core } from './core/core.ts';
import { createClientRequests } from './core/client-requests.ts';
import { createClients } from './core/clients.ts';
import { createConnections } from './core/connections.ts';
import type { CommonParts, CoreParts } from './core/core-parts.ts';
import { registerScrapes } from './core/scrapes.ts';
import { decisionReporter, failureReporter, verdictReporter } from './core/verdict-reporter.ts';
import { createUpstreamMessages } from './core/upstream-messages.ts';
import type { UpstreamTransports } from './transports.ts';
import { UpstreamChanges } from './reload/upstream-changes.ts';

/** The options of {@link startCore}. By default, this process is the only one, and nothing is traced or recorded. */
export interface CoreOptions extends Partial<
  Pick<CoreParts, 'owners' | 'state' | 'counters' | 'rateTable' | 'processes' | 'clientTransport' | 'tracing'>
> {
  /** Keeps sessions in the state directory, if no other process owns it. Default: true. */
  readonly mayOwnState?: boolean;
  /** The keys that seal handles and name endpoints. Default: those of the state. */
  readonly keys?: KeyStore | undefined;
  /** The keys of identity tokens, which are those of the state. */
  readonly identity?: IdentityKeys | undefined;
  readonly audit?: AuditTrail | undefined;
}

/**
 * Opens the state, constructs the core and starts it.
 *
 * @throws if the state directory cannot be used.
 */
export async function startCore(
  config: Config,
  metrics: Metrics,
  transports: UpstreamTransports,
  log: Logger,
  options: CoreOptions = {},
): Promise<Core> {
  const { mayOwnState: mayOwn = true, counters, rateTable, processes, tracing } = options;
  const audit = options.audit === undefined ? undefined : new AuditRecorder(options.audit);
  const state = options.state ?? (await openLocalState(config, metrics, log, mayOwn));
  if (mayOwn && state.notice !== undefined) {
    log.warn({ stateDir: config.stateDir, why: state.notice }, 'sessions are not kept');
  }
  options.identity?.use(state.keys);
  const sealer = await Sealer.open(options.keys ?? state.keys);
  const { owners = new LocalOwners(), clientTransport = 'tcp' } = options;
  const given = { config, metrics, transports, log, counters, rateTable, processes, tracing };
  const core = createCore({ ...given, state, sealer, owners, clientTransport, audit });
  await core.start();
  return core;
}

/** Opens the state directory. */
async function openLocalState(config: Config, metrics: Metrics, log: Logger, mayOwn: boolean): Promise<State> {
  return await openState(config.stateDir, {
    mayOwn,
    events: {
      onWriteFailed: () => metrics.countStateWriteFailure(),
      onFailing: (error) => log.error({ err: error, stateDir: config.stateDir }, 'state directory cannot be written'),
      onRecovered: () => log.info({ stateDir: config.stateDir }, 'state directory can be written again'),
      onLimit: (limit) => metrics.countLimit(limit),
      onRefused: ({ message: reason }) => log.warn({ reason }, 'the state directory is not safe'),
    },
  });
}

/**
 * Constructs the core: connections, clients, messages of upstreams, requests of clients. Each part gets the parts that it needs;
 * only callbacks name later ones. No part runs before `start`.
 */
function createCore(parts: CoreParts): Core {
  const { config, metrics, audit, transports, log } = parts;
  let current = config;
  const views = new Map<string, View>();
  updateViews(views, config);
  const onLimit: CommonParts['onLimit'] = (limit) => metrics.countLimit(limit);
  const shares = new PrincipalShares({ config, onRefused: (pool) => metrics.countShareRefusal(pool), onLimit });
  const onRuleFailed = failureReporter(metrics, log);
  const observers = [
    verdictReporter(metrics, log, onRuleFailed),
    (verdict: Verdict) => requests.recorder.onVerdict(verdict),
    ...(audit === undefined ? [] : [audit.onVerdict]),
  ];
  const onAnswer = decisionReporter(metrics, log);
  const point = new DecisionPoint({ egress: transports.egress, onAnswer, onLimit });
  const common: CommonParts = {
    ...parts,
    settings: () => current,
    views,
    upstreams: new UpstreamSet(),
    shares,
    gate: new Gate(config.access, observers, shares, onRuleFailed, scopesOnDemandOf(config.auth)),
    serverInfo: RawObject.of({ name: 'linkspan', title: 'Linkspan', version: VERSION }),
    onLimit,
    external: new ExternalDecisions({
      settings: () => current,
      ask: (...question) => point.ask(...question),
      onAmbiguous: (answer) => onAnswer(answer, 0),
      report: (verdict) => common.gate.report(verdict),
    }),
  };
  const connections = createConnections(common, {
    holders: () => clients.holders,
    siblingsOf: (holder) => clients.groups.siblingsOf(holder),
    onReattached: (link) => messages.changedLists.onPossibleChanges(link),
    onOpen: (link, holder) => messages.changedLists.onOpen(link, holder),
    beforeOpen: (holder, upstream) => requests.listRefresher.beginListing(holder, upstream),
  });
  const clients = createClients(common, connections, {
    onRestored: (session) => messages.changedLists.onRestored(session),
    onRightsChange: (session) => messages.changedLists.refreshCatalog(session),
  });
  const messages = createUpstreamMessages(common, connections, clients);
  const requests = createClientRequests(common, connections, clients, messages);
  for (const upstream of config.upstreams) {
    const made = messages.factory.create(upstream);
    common.upstreams.add(made);
    connections.offers.setEras(made.id, made.eras);
  }
  registerScrapes(common, connections, messages);
  const pieces = { ...common, ...connections, ...clients, ...messages, ...requests };
  const upstreamChanges = new UpstreamChanges(pieces);
  const setConfig = (next: Config) => {
    current = next;
  };
  return new Core({ ...pieces, upstreamChanges, apply: configApplier({ ...pieces, upstreamChanges, setConfig }) });
}
