import { ByteBounds } from '../../upstream/quota/byte-bounds.ts';
import { CallLimits } from '../../gateway/calls/call-limits.ts';
import { Calls } from '../../gateway/calls/calls.ts';
import { KeyedCalls } from '../../gateway/calls/keyed-calls.ts';
import { RepeatedCalls } from '../../gateway/calls/repeated-calls.ts';
import { TaskCalls } from '../../gateway/calls/task-calls.ts';
import { ConnectionOwners } from '../../gateway/connections/connection-owners.ts';
import { RequestRecorder } from '../../gateway/records/request-recorder.ts';
import { ListAnswers } from '../../gateway/forward/list-answers.ts';
import { PageCache } from '../../gateway/forward/page-cache.ts';
import { ResultTranslator } from '../../gateway/forward/result-translator.ts';
import { Sender } from '../../gateway/forward/sender.ts';
import { Gateway } from '../../gateway/gateway.ts';
import { ListRefresher } from '../../gateway/lists/list-refresher.ts';
import { ModernRequests } from '../../gateway/modern/modern-requests.ts';
import { ParkedCalls } from '../../gateway/questions/parked-calls.ts';
import { TaskDriver } from '../../gateway/tasks/task-driver.ts';
import { Tasks } from '../../gateway/tasks/tasks.ts';
import { UpgradedTasks } from '../../gateway/tasks/upgraded-tasks.ts';
import { LeasedRates } from '../../store/leased-rates.ts';
import { MemoryRateTable } from '../../store/memory/rate-table.ts';
import { requestLogBeside } from '../../telemetry/log.ts';
import type { ClientParts } from './clients.ts';
import type { ConnectionParts } from './connections.ts';
import type { CommonParts } from './core-parts.ts';
import type { UpstreamMessageParts } from './upstream-messages.ts';

export type ClientRequestParts = ReturnType<typeof createClientRequests>;

const LISTEN_URIS = { each: 'listenUriBytesPerPrincipal', total: 'listenUriBytes' } as const;

/** Constructs the parts that answer requests of clients. */
export function createClientRequests(
  common: CommonParts,
  { offers, records, stateLosses, links }: ConnectionParts,
  { sessions, groups, seenClients }: ClientParts,
  messages: UpstreamMessageParts,
) {
  const {
    sealer,
    owners,
    counters,
    state,
    settings,
    shares,
    views,
    upstreams,
    gate,
    serverInfo,
    metrics,
    log,
    onLimit,
    audit,
  } = common;
  const { rateTable = new MemoryRateTable(onLimit), processes = () => 1 } = common;
  const { taskIds, clientTasks, urlElicitations, resourceCache, announcer, notifications, questionPolicy } = messages;
  const { sharedOffers } = messages.upstreamEvents;
  const recorder = new RequestRecorder({
    metrics,
    log,
    requestLog: requestLogBeside(log),
    transport: common.clientTransport,
    tracing: common.tracing,
    audit,
    clientOf: (caller) => seenClients.find(caller),
    onLimit,
  });
  const auditBefore = audit?.isRequired === true ? audit : undefined;
  const translator = new ResultTranslator(serverInfo, questionPolicy);
  const listRefresher = new ListRefresher({
    views,
    upstreams,
    offers,
    records,
    settings,
    reading: () => sharedOffers.reading,
    refreshCatalog: (holder) => notifications.refreshCatalog(holder),
  });
  const pages = new PageCache(onLimit);
  const lists = new ListAnswers({ sealer, translator, listRefresher, announcer, offers, pages, onLimit });
  const sender = new Sender(metrics, stateLosses);
  const driver = new TaskDriver(sender, questionPolicy);
  const upgradedTasks = new UpgradedTasks({ sender, translator, settings, onLimit });
  const taskCalls = new TaskCalls({ sender, translator, ids: taskIds, driver, upgradedTasks, onLimit });
  const rates = new LeasedRates({ table: rateTable, processes, onLimit });
  const callLimits = new CallLimits({ settings, rates, repeats: new RepeatedCalls(onLimit), counters, audit });
  const keyedCalls = new KeyedCalls({
    store: state.keyedCalls,
    owners,
    upstreams,
    settings,
    audit: auditBefore,
    onOutcome: (outcome) => metrics.countKeyedCall(outcome),
    onLimit,
  });
  const calls = new Calls({
    questionPolicy,
    upstreams,
    links,
    listRefresher,
    translator,
    resourceCache,
    sender,
    taskCalls,
    gate,
    isPinned: (upstream) => offers.isPinned(upstream),
    limits: callLimits,
    keyed: keyedCalls,
    audit: auditBefore,
    onLimit,
  });
  const tasks = new Tasks({
    questionPolicy,
    upstreams,
    links,
    sender,
    translator,
    ids: taskIds,
    gate,
    owners,
    upgradedTasks,
    siblingsOf: (holder) => groups.siblingsOf(holder),
    audit: auditBefore,
  });
  const parked = new ParkedCalls({
    sealer,
    process: owners.name,
    outcomes: state.outcomes,
    log,
    gauge: metrics.parked,
    settings,
    shares,
    counters,
    translator,
  });
  const connectionOwners = new ConnectionOwners({ owners, upstreams, groups, links });
  const lifecycleOf = (upstream: string) => upstreams.get(upstream)?.lifecycle;
  const dispatching = { lists, listRefresher, gate, lifecycleOf };
  const modernRequests = new ModernRequests({
    streamBytes: new ByteBounds(LISTEN_URIS, onLimit),
    onLimit,
    questionPolicy,
    groups,
    upstreams,
    ...dispatching,
    calls,
    tasks,
    taskIds,
    parked,
    links,
    offers,
    translator,
    sealer,
    urlElicitations,
    settings,
    counters,
    owners,
    connectionOwners,
    recorder,
    audit: auditBefore,
  });
  const gateway = new Gateway({
    views,
    sessions,
    seenClients,
    links,
    ...dispatching,
    calls,
    tasks,
    clientTasks,
    modernRequests,
    owners,
    recorder,
    translator,
    log,
    serverInfo,
    settings,
    onLimit,
    audit: auditBefore,
  });
  return { recorder, listRefresher, parked, keyedCalls, connectionOwners, pages, gateway };
}
