import { ByteBounds } from '../../upstream/quota/byte-bounds.ts';
import { CallLimits } from '../../gateway/calls/call-limits.ts';
import { Calls } from '../../gateway/calls/calls.ts';
import { KeyedCalls } from '../../gateway/calls/keyed-calls.ts';
import { LegacyCalls } from '../../gateway/calls/legacy-calls.ts';
import { ModernCalls } from '../../gateway/calls/modern-calls.ts';
import { RepeatedCalls } from '../../gateway/calls/repeated-calls.ts';
import { TaskCalls } from '../../gateway/calls/task-calls.ts';
import { ConnectionOwners } from '../../gateway/connections/connection-owners.ts';
import type { AuditRecorder } from '../../gateway/records/audit-recorder.ts';
import { RequestRecorder } from '../../gateway/records/request-recorder.ts';
import { ListAnswers } from '../../gateway/forward/list-answers.ts';
import { PagedLists } from '../../gateway/forward/paged-lists.ts';
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
  const { sealer, owners, state, upstreams, serverInfo, metrics, log, onLimit, audit } = common;
  const { rateTable = new MemoryRateTable(onLimit), processes = () => 1 } = common;
  const { taskIds, clientTasks, urlElicitations, resourceCache, announcer, changedLists, questionPolicy } = messages;
  const { sharedOffers } = messages.upstreamEvents;
  const recorder = new RequestRecorder({
    ...common,
    requestLog: requestLogBeside(log),
    transport: common.clientTransport,
    clientOf: (caller) => seenClients.find(caller),
  });
  const auditBefore: Pick<AuditRecorder, 'begin'> | undefined = audit?.isRequired === true ? audit : undefined;
  const translator = new ResultTranslator(serverInfo, questionPolicy);
  const listRefresher = new ListRefresher({
    ...common,
    offers,
    records,
    reading: () => sharedOffers.reading,
    refreshCatalog: (holder) => changedLists.refreshCatalog(holder),
  });
  const paged = new PagedLists(onLimit);
  const lists = new ListAnswers({ sealer, translator, listRefresher, announcer, offers, paged });
  const sender = new Sender(metrics, stateLosses);
  const lifecycleOf = (upstream: string) => upstreams.get(upstream)?.lifecycle;
  /** The parts that several others get. */
  const shared = {
    ...common,
    offers,
    links,
    lists,
    listRefresher,
    isPinned: (upstream: string) => offers.isPinned(upstream),
    resourceCache,
    lifecycleOf,
    sender,
    translator,
    questionPolicy,
    recorder,
    audit: auditBefore,
  };
  const driver = new TaskDriver(sender, questionPolicy);
  const upgradedTasks = new UpgradedTasks(shared);
  const taskCalls = new TaskCalls({ ...shared, ids: taskIds, driver, upgradedTasks });
  const rates = new LeasedRates({ table: rateTable, processes, onLimit });
  const callLimits = new CallLimits({ ...shared, rates, repeats: new RepeatedCalls(onLimit), audit });
  const keyedCalls = new KeyedCalls({
    ...shared,
    store: state.keyedCalls,
    onOutcome: (outcome) => metrics.countKeyedCall(outcome),
  });
  const legacy = new LegacyCalls({ ...shared, taskCalls });
  const modern = new ModernCalls({ ...shared, taskCalls });
  const callsIn = { legacy, modern };
  const calls = new Calls({ ...shared, keyed: keyedCalls, limits: callLimits, callsIn });
  const tasks = new Tasks({
    ...shared,
    ids: taskIds,
    upgradedTasks,
    siblingsOf: (holder) => groups.siblingsOf(holder),
  });
  const { outcomes } = state;
  const parked = new ParkedCalls({ ...shared, process: owners.name, outcomes, gauge: metrics.parked });
  const groupsOf = (principal: string) => groups.ofPrincipal(principal);
  const connectionOwners = new ConnectionOwners({ owners, upstreams, groupsOf, links });
  const streamBytes = new ByteBounds(LISTEN_URIS, onLimit);
  const answering = { ...shared, calls, tasks };
  const modernRequests = new ModernRequests({
    ...answering,
    groups,
    taskIds,
    parked,
    urlElicitations,
    connectionOwners,
    streamBytes,
  });
  const gateway = new Gateway({
    ...answering,
    sessions,
    seenClients,
    clientTasks,
    modernRequests,
  });
  return { recorder, listRefresher, parked, keyedCalls, connectionOwners, paged, gateway };
}
