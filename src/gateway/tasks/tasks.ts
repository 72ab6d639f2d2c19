import { toClient as urisToClient } from '../../catalog/rewrite.ts';
import type { ViewUpstream } from '../../catalog/view.ts';
import { GatewayError } from '../../errors.ts';
import { withoutEnvelope } from '../../protocol/envelope.ts';
import { inputRequestsText, readRequests } from '../../protocol/input-required.ts';
import { arrayText, RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { MODERN, featuresOf } from '../../protocol/revisions.ts';
import { declaresTasks, isTerminal, TASKS_EXTENSION, withRelatedTask } from '../../protocol/tasks.ts';
import type { Link } from '../../upstream/link/link.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { ClientGroup } from '../clients/client-group.ts';
import type { QuestionPolicy } from '../questions/question-policy.ts';
import type { ResultTranslator } from '../forward/result-translator.ts';
import type { Caller } from '../exchange/caller.ts';
import type { Client, Exchange } from '../exchange/exchange.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { ConnectionHolder, Upstreams } from '../exchange/connection-holder.ts';
import type { UpgradedSite, UpgradedTasks } from './upgraded-tasks.ts';
import type { Sender } from '../forward/sender.ts';
import { release } from './task-holds.ts';
import type { KnownTask, TaskIds, TaskAddress } from '../handles/task-ids.ts';
import { ModernClient } from '../clients/modern-client.ts';

export interface TasksParts {
  readonly upstreams: Upstreams;
  readonly links: HolderLinks;
  readonly sender: Sender;
  readonly translator: ResultTranslator;
  readonly ids: TaskIds;
  readonly upgradedTasks: UpgradedTasks;
  readonly questionPolicy: QuestionPolicy;
}

const EXTENSION_METHODS = new Set(['tasks/get', 'tasks/update', 'tasks/cancel']);
const CORE_METHODS = new Set(['tasks/get', 'tasks/result', 'tasks/list', 'tasks/cancel']);

/** Answers what clients ask about their tasks, each at the upstream that has it, under the id the client knows. */
export class Tasks {
  readonly #parts: TasksParts;

  constructor(parts: TasksParts) {
    this.#parts = parts;
  }

  /** @throws {GatewayError} `method-not-found`, `missing-capability`, `unknown-task`, and why the upstream did not answer. */
  async request(exchange: OpenExchange): Promise<Answer> {
    const { request, client, holder } = exchange;
    mustKnow(client, request.method);
    if (request.method === 'tasks/list') return await this.#list(exchange);
    const id = request.params?.string('taskId');
    if (id === undefined) throw new GatewayError('invalid-params', { message: '"taskId" must be a string' });
    const { ids, upstreams, links } = this.#parts;
    const place = await ids.open(client.caller, id);
    const viewed = client.catalog.view.upstreams.find((one) => one.id === place.upstream);
    const upstream = upstreams.get(place.upstream);
    if (viewed === undefined || upstream === undefined) throw new GatewayError('unknown-task');
    const at = client instanceof ModernClient ? client.group.byKey(place.holder) : holder;
    const link = links.findOpen(at, upstream.id) ?? (await exchange.unlessCancelled(links.open(at, upstream.id)));
    try {
      if (!(at instanceof ClientGroup)) return await this.#core(exchange, upstream, link, { ...place, id });
      if (link.era === 'modern') return await this.#extension(exchange, upstream, link, place, id, viewed);
      return named(await this.#upgraded(exchange, { upstream, link, task: place.task, holder: at }), place.task, id);
    } finally {
      upstream.onCallEnd(link);
    }
  }

  async #upgraded(exchange: OpenExchange, site: UpgradedSite): Promise<Answer> {
    const { upgradedTasks } = this.#parts;
    switch (exchange.request.method) {
      case 'tasks/update':
        return await upgradedTasks.update(exchange, site);
      case 'tasks/cancel':
        return await upgradedTasks.cancel(exchange, site);
      default:
        return await upgradedTasks.get(exchange, site);
    }
  }

  /** From a client to an upstream that both know the extension. */
  async #extension(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    link: Link<Exchange, ConnectionHolder>,
    { task }: TaskAddress,
    id: string,
    viewed: ViewUpstream,
  ): Promise<Answer> {
    const { translator } = this.#parts;
    const params = (exchange.request.params ?? RawObject.EMPTY).with('taskId', JSON.stringify(task));
    const answer = await this.#enter(exchange, upstream, link, params);
    const given = { upstream: upstream.id, isModern: true, source: undefined };
    const told = translator.toClient(exchange, given, answer);
    if (told.kind === 'error' || exchange.request.method !== 'tasks/get') return named(told, task, id);
    const state = detailed(
      this.#parts.questionPolicy,
      exchange.client,
      upstream.id,
      viewed,
      RawObject.parse(told.result),
    );
    return named({ kind: 'result', result: state.with('resultType', '"complete"').toString() }, task, id);
  }

  /** Between two that know the tasks of 2025-11-25. */
  async #core(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    link: Link<Exchange, ConnectionHolder>,
    { task, id }: Pick<TaskAddress, 'task'> & { readonly id: string },
  ): Promise<Answer> {
    if (link.era === 'modern') throw new GatewayError('unknown-task');
    const { method, params } = exchange.request;
    const sent = withoutEnvelope((params ?? RawObject.EMPTY).with('taskId', JSON.stringify(task)));
    const answer = await this.#enter(exchange, upstream, link, sent);
    const given = { upstream: upstream.id, isModern: false, source: undefined };
    const told = this.#parts.translator.toClient(exchange, given, answer);
    if (method === 'tasks/result') release({ upstream, link, task });
    if (told.kind === 'result' && method === 'tasks/result') {
      return { kind: 'result', result: withRelatedTask(RawObject.parse(told.result), id).toString() };
    }
    if (told.kind === 'result' && isTerminal(RawObject.parse(told.result).string('status')))
      release({ upstream, link, task });
    return named(told, task, id);
  }

  async #enter(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, ConnectionHolder>,
    link: Link<Exchange, ConnectionHolder>,
    params: RawObject,
  ): Promise<Answer> {
    const { sender } = this.#parts;
    // It waits as long as the task takes, and would keep others out meanwhile.
    if (exchange.request.method === 'tasks/result') {
      const { maxMs } = upstream.config.timeouts;
      return await sender.send(exchange, upstream, link, { params, silentMs: maxMs }).answer;
    }
    await exchange.acquireSlot(upstream.limiter);
    try {
      return await sender.send(exchange, upstream, link, { params }).answer;
    } finally {
      exchange.releaseSlot();
    }
  }

  /** What an upstream lists may be other clients' too, so each task that is this client's is asked for by itself. */
  async #list(exchange: OpenExchange): Promise<Answer> {
    const { ids } = this.#parts;
    const own = ids.list(exchange.client.caller);
    const states = await Promise.all(own.map((known) => this.#state(exchange, known)));
    const tasks = arrayText(states.flatMap((state) => (state === undefined ? [] : [state])));
    return { kind: 'result', result: `{"tasks":${tasks}}` };
  }

  /** Undefined for what its upstream does not know or cannot be asked about now. */
  async #state({ client, holder }: OpenExchange, known: KnownTask): Promise<string | undefined> {
    const { links, upstreams, ids } = this.#parts;
    const link = links.findOpen(holder, known.upstream);
    const callMs = upstreams.get(known.upstream)?.config.timeouts.callMs;
    if (link === undefined || link.era === 'modern' || callMs === undefined) return undefined;
    const limits = { timeoutMs: callMs, maxMs: callMs, progress: false, context: undefined } as const;
    const call = link.connection.call('tasks/get', RawObject.of({ taskId: known.task }), limits);
    const answer = await call.answer.catch(() => undefined);
    if (answer?.kind === 'result') {
      return RawObject.parse(answer.result).with('taskId', JSON.stringify(known.id)).toString();
    }
    if (answer !== undefined && known.holder === holder.key) ids.remove(client.caller, known);
    return undefined;
  }
}

/** @throws {GatewayError} `method-not-found`, `missing-capability` */
function mustKnow({ caller, catalog }: Client, method: string): void {
  const isKnown =
    caller.revision === MODERN
      ? EXTENSION_METHODS.has(method)
      : CORE_METHODS.has(method) &&
        featuresOf(caller.revision).coreTasks &&
        catalog.capabilities.raw('tasks') !== undefined;
  if (!isKnown) throw new GatewayError('method-not-found', { message: method });
  if (caller.revision === MODERN) mustDeclareTasks(caller, method);
}

/** @throws {GatewayError} `missing-capability` */
export function mustDeclareTasks({ capabilities }: Caller, method: string): void {
  if (declaresTasks(capabilities)) return;
  throw new GatewayError('missing-capability', {
    message: `${method} is for clients that declare ${TASKS_EXTENSION}`,
    data: { requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } },
  });
}

/** A state of a task with what is inside of it as the client reads it: the result of its call, and the questions. */
function detailed(
  policy: QuestionPolicy,
  client: Client,
  upstream: string,
  viewed: ViewUpstream,
  state: RawObject,
): RawObject {
  const result = state.raw('result');
  const requests = state.object('inputRequests');
  let told = state;
  if (result !== undefined) told = told.with('result', urisToClient('tools/call', viewed, result));
  if (requests === undefined) return told;
  const read = readRequests(requests);
  if (read === undefined) return told.with('inputRequests', undefined);
  policy.assertAllowed(upstream, read);
  const questions = read.map((one) => ({
    ...one,
    params: policy.toClient(client, upstream, one),
  }));
  return told.with('inputRequests', inputRequestsText(questions));
}

/** The answer with the id the client knows in the place of the upstream's, which it may also name in what went wrong. */
function named(answer: Answer, task: string, id: string): Answer {
  if (answer.kind === 'error') {
    const { error } = answer;
    const message = task === '' ? error.message : error.message.replaceAll(task, id);
    return { kind: 'error', error: { ...error, message } };
  }
  const result = RawObject.parse(answer.result);
  if (result.raw('taskId') === undefined && result.raw('status') === undefined) return answer;
  return { kind: 'result', result: result.with('taskId', JSON.stringify(id)).toString() };
}
