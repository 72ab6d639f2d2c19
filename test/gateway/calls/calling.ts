import assert from 'node:assert/strict';
import type { Config } from '../../../src/config/values/config.ts';
import type { UpstreamConfig } from '../../../src/config/values/upstream-config.ts';
import { GatewayError } from '../../../src/errors.ts';
import { assertAllowed, type CallJudgeParts } from '../../../src/gateway/calls/call-judge.ts';
import { CallLimits } from '../../../src/gateway/calls/call-limits.ts';
import { Calls, type CallsParts } from '../../../src/gateway/calls/calls.ts';
import { KeyedCalls } from '../../../src/gateway/calls/keyed-calls.ts';
import { LegacyCalls } from '../../../src/gateway/calls/legacy-calls.ts';
import { ModernCalls } from '../../../src/gateway/calls/modern-calls.ts';
import { RepeatedCalls } from '../../../src/gateway/calls/repeated-calls.ts';
import { TaskCalls } from '../../../src/gateway/calls/task-calls.ts';
import { HolderLinks } from '../../../src/gateway/connections/holder-links.ts';
import { LocalOwners } from '../../../src/gateway/exchange/owners.ts';
import { ModernClient } from '../../../src/gateway/clients/modern-client.ts';
import type { Session } from '../../../src/gateway/clients/session.ts';
import type { VerdictObserver } from '../../../src/gateway/exchange/gate.ts';
import type { OpenExchange } from '../../../src/gateway/exchange/open-exchange.ts';
import { route, type UpstreamRoute } from '../../../src/gateway/exchange/route.ts';
import { ResourceCache } from '../../../src/gateway/forward/resource-cache.ts';
import { ResultTranslator } from '../../../src/gateway/forward/result-translator.ts';
import { Sender } from '../../../src/gateway/forward/sender.ts';
import { Sealer } from '../../../src/gateway/handles/sealer.ts';
import { TaskIds } from '../../../src/gateway/handles/task-ids.ts';
import { ListRefresher } from '../../../src/gateway/lists/list-refresher.ts';
import { StartRecords } from '../../../src/gateway/lists/start-records.ts';
import { QuestionPolicy } from '../../../src/gateway/questions/question-policy.ts';
import { TaskDriver } from '../../../src/gateway/tasks/task-driver.ts';
import { UpgradedTasks } from '../../../src/gateway/tasks/upgraded-tasks.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { LimitName } from '../../../src/limits.ts';
import type { Request } from '../../../src/protocol/jsonrpc.ts';
import type { KeyedCallStore } from '../../../src/store/keyed-call-store.ts';
import { LeasedRates } from '../../../src/store/leased-rates.ts';
import { MemoryKeyStore } from '../../../src/store/memory/key-store.ts';
import { MemoryKeyedCallStore } from '../../../src/store/memory/keyed-call-store.ts';
import { MemoryRateTable } from '../../../src/store/memory/rate-table.ts';
import { MemoryTaskStore } from '../../../src/store/memory/task-store.ts';
import { NO_FEATURES } from '../../../src/upstream/link/link.ts';
import type { Overrides } from '../../downstream/edge.ts';
import { accessOf } from '../../policy/policies.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result, type Script } from '../../support/memory-upstream.ts';

export const ECHO = { name: 'echo', inputSchema: { type: 'object' } };
export const DONE = { content: [] };
const FORM = { message: 'name?', requestedSchema: { type: 'object', properties: {} } };

interface Own extends Partial<Pick<CallsParts, 'audit'> & Pick<CallJudgeParts, 'isPinned'>> {
  readonly upstream?: Partial<UpstreamConfig>;
  readonly config?: Overrides;
  readonly onVerdict?: VerdictObserver;
  readonly keyedStore?: KeyedCallStore;
}

/** Calls at one upstream of these scripted answers, with everything that they are made of. */
export async function calling(memory: MemoryUpstream, own: Own = {}) {
  const at = new GatewayParts(
    { up: { memory, ...own.upstream } },
    { onLinkClosed: (link, reason) => links.onLinkClosed(link, reason) },
    own.config,
    { onVerdict: own.onVerdict },
  );
  const limitsHit: LimitName[] = [];
  const onLimit = (limit: LimitName) => void limitsHit.push(limit);
  const settings = (): Config => at.config;
  const { upstreams, offers, views, metrics, stateLosses, log } = at;
  const links: HolderLinks = new HolderLinks({
    upstreams,
    views: at.views,
    stateLosses,
    log,
    onLimit,
    siblingsOf: () => [],
    onReattached: () => undefined,
    beforeOpen: () => undefined,
    onOpen: () => undefined,
  });
  const questionPolicy = new QuestionPolicy({ rulesOf: (id) => upstreams.get(id)?.config, metrics, log });
  const translator = new ResultTranslator(RawObject.of({ name: 'gateway' }), questionPolicy);
  const sender = new Sender(metrics, stateLosses);
  const ids = new TaskIds(await Sealer.open(new MemoryKeyStore()), new MemoryTaskStore(onLimit), 'here');
  const driver = new TaskDriver(sender, questionPolicy);
  const upgradedTasks = new UpgradedTasks({ sender, translator, settings, onLimit });
  const listRefresher = new ListRefresher({
    views,
    upstreams,
    offers,
    settings,
    records: new StartRecords(offers.stored.upstreamKeys(), at.store, log),
    reading: () => undefined,
    onLimit,
    refreshCatalog: (holder) => {
      holder.catalog = offers.catalogFor(holder);
    },
  });
  const rates = new LeasedRates({ table: new MemoryRateTable(onLimit), processes: () => 1, onLimit });
  const repeats = new RepeatedCalls(onLimit);
  const keyed = new KeyedCalls({
    store: own.keyedStore ?? new MemoryKeyedCallStore(onLimit),
    owners: new LocalOwners(),
    upstreams,
    settings,
    audit: undefined,
    onOutcome: () => undefined,
    onLimit,
  });
  const shared = { links, sender, onLimit };
  const taskCalls = new TaskCalls({ ...shared, translator, ids, driver, upgradedTasks });
  const judging = { gate: at.gate, isPinned: own.isPinned ?? (() => false), listRefresher };
  const resourceCache = new ResourceCache(true, onLimit);
  const answering = { translator, listRefresher };
  const callsIn = {
    legacy: new LegacyCalls({ ...shared, ...answering, taskCalls }),
    modern: new ModernCalls({
      ...shared,
      ...judging,
      ...answering,
      questionPolicy,
      taskCalls,
      resourceCache,
    }),
  };
  const limits = new CallLimits({ settings, rates, repeats, counters: undefined, audit: undefined });
  const reading = { resourceCache, translator };
  const calls = new Calls({ ...judging, ...reading, upstreams, links, keyed, limits, audit: own.audit, callsIn });
  const upstream = at.upstream('up');
  await upstream.refresh('legacy', NO_FEATURES, '');
  return {
    at,
    links,
    upstream,
    /** Judges a call again, as before it is sent. */
    judge: (exchange: OpenExchange, to: UpstreamRoute, hasWaited: boolean) =>
      assertAllowed(judging, exchange, to, hasWaited),
    resourceCache,
    answering,
    /** The limits that calls have come to, in order. */
    limitsHit,
    /** Begins a request of a session, or of a client of a group. */
    begin: (from: Session | ModernClient, params: object = { name: 'up__echo' }, method = 'tools/call') => {
      const holder = from instanceof ModernClient ? from.group : from;
      const { exchange, stream } = at.exchange(from, holder, { method, params });
      const to = route(from.catalog, exchange.request);
      assert.ok(to.kind === 'upstream');
      return { exchange, stream, to, answer: () => calls.send(exchange, to) };
    },
  };
}

type Calling = Awaited<ReturnType<typeof calling>>;

/** An upstream whose tool calls are answered when the test says so, in the order of arrival. */
export function holding(script: Script = {}) {
  const held: { readonly peer: Peer; readonly request: Request }[] = [];
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      if (request.method === 'tools/call') held.push({ peer, request });
      else peer.send(result(request, {}));
    },
    ...script,
  });
  return { memory, next: () => memory.until(() => held.shift()) };
}

/** An upstream of 2026-07-28 that answers `tools/call`. */
export function modern(call: NonNullable<Script['request']>): MemoryUpstream {
  const common = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' };
  return memoryUpstream({
    isRaw: true,
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      if (request.method === 'tools/call') return call(peer, request);
      return peer.send(result(request, { ...common, supportedVersions: ['2026-07-28'], capabilities: { tools: {} } }));
    },
  });
}

/** A modern upstream that asks for a name, unless the call has one. */
export function asking() {
  const complete: { readonly peer: Peer; readonly request: Request }[] = [];
  const inputRequests = { name: { method: 'elicitation/create', params: FORM } };
  const memory = modern((peer, request) => {
    const isAsked = request.params?.object('arguments')?.raw('ask') !== undefined;
    if (!isAsked || request.params?.raw('inputResponses') !== undefined) complete.push({ peer, request });
    else peer.send(result(request, { resultType: 'input_required', inputRequests, requestState: 's' }));
  });
  return {
    memory,
    finish: async () => {
      const { peer, request } = await memory.until(() => complete.shift());
      peer.send(result(request, { resultType: 'complete', ...DONE }));
      return request;
    },
  };
}

export const sentCalls = (memory: MemoryUpstream) => memory.requests('tools/call');
/** An access policy that allows nothing. */
export const NOTHING = accessOf({}, []);
export const ASKED = { name: 'up__echo', arguments: { ask: true } };

/** Returns the kind of the outcome of a call, or the code of its error with the advice whether it ran. */
export async function endOf(answer: ReturnType<Calls['send']>): Promise<string> {
  try {
    return (await answer).kind;
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) throw thrown;
    return `${thrown.code} ${thrown.executed}`;
  }
}

/** Answers the question on the stream of a request. */
export async function answerQuestion(
  { session, stream }: ReturnType<GatewayParts['session']>,
  asked: Asked,
): Promise<void> {
  const question = await asked.stream.until(() => asked.stream.messages.find(({ kind }) => kind === 'request'));
  assert.ok(question.kind === 'request' && stream.messages.length === 0);
  assert.ok(session.onResponse(question.id, { kind: 'result', result: '{"action":"accept","content":{"name":"x"}}' }));
}

export type Asked = ReturnType<Calling['begin']>;
