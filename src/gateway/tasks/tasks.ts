import type { SharedParts } from '../records/shared-parts.ts';
import { type Catalog, sourceByName } from '../../catalog/catalog.ts';
import { toClient as urisToClient } from '../../catalog/rewrite.ts';
import { upstreamIn, type View, type ViewUpstream } from '../../catalog/view.ts';
import { answerOf, GatewayError } from '../../errors.ts';
import { arrayText, RawObject } from '../../json/json.ts';
import { unlessMalformed } from '../../json/malformed.ts';
import { withoutEnvelope } from '../../protocol/envelope.ts';
import { findHiddenQuestion, inputRequestsText, readRequests, readResult } from '../../protocol/input-required.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { lookalike } from '../../protocol/member-names.ts';
import type { Item } from '../../policy/decide.ts';
import type { Era } from '../../protocol/revisions.ts';
import { isTerminal, isUnknownTask, taskError, withRelatedTask } from '../../protocol/tasks.ts';
import type { KnownTask, TaskAddress } from '../../store/task-store.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { UPSTREAM_DIALECTS } from '../dialects/upstream-dialect.ts';
import type { ConnectionHolder, Link, Upstream } from '../exchange/connection-holder.ts';
import type { Client } from '../exchange/exchange.ts';
import type { Cancellable, ExternalDecisions } from '../exchange/external-decisions.ts';
import { type Asked, hintsOf } from '../exchange/gate.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { Elsewhere } from '../front/front.ts';
import { assertComplete, type ResultTranslator, type UpstreamResult } from '../forward/result-translator.ts';
import type { Sender } from '../forward/sender.ts';
import type { OpenedTask, TaskIds } from '../handles/task-ids.ts';
import type { QuestionPolicy } from '../questions/question-policy.ts';
import { originOf, taskFailure } from './task-driver.ts';
import { release } from './task-holds.ts';
import type { UpgradedSite, UpgradedTasks } from './upgraded-tasks.ts';

export interface TasksParts extends Pick<SharedParts, 'upstreams' | 'gate' | 'owners' | 'siblingsOf' | 'audit'> {
  readonly links: HolderLinks;
  readonly sender: Sender;
  readonly translator: ResultTranslator;
  readonly ids: TaskIds;
  readonly external: Pick<ExternalDecisions, 'ask'>;
  readonly upgradedTasks: UpgradedTasks;
  readonly questionPolicy: QuestionPolicy;
}

interface TaskPlace {
  readonly upstream: Upstream;
  readonly viewed: ViewUpstream;
}

interface RequestedTask extends UpgradedSite, TaskPlace {
  readonly address: OpenedTask;
  /** The id that the client uses. */
  readonly id: string;
}

type Conversation = (exchange: OpenExchange, task: RequestedTask) => Promise<Answer>;

/** Answers the `tasks/…` requests of clients: sends each to the upstream of its task, with the id that the upstream uses. */
export class Tasks {
  readonly #parts: TasksParts;
  /** By the era of the client, then by the era of the link. */
  readonly #conversations: Readonly<Record<Era, Readonly<Record<Era, Conversation>>>> = {
    legacy: {
      legacy: (exchange, task) => this.#core(exchange, task),
      // The upstream has lost its legacy tasks.
      modern: () => Promise.reject(new GatewayError('unknown-task')),
    },
    modern: {
      legacy: async (exchange, task) => {
        const answer = await this.#upgraded(exchange, task);
        if (answer.kind !== 'error') return withId(answer, task);
        return withId(this.#parts.translator.toClient(exchange, originOf(task), answer), task);
      },
      modern: (exchange, task) => this.#extension(exchange, task),
    },
  };

  constructor(parts: TasksParts) {
    this.#parts = parts;
  }

  /**
   * Answers a request, unless another process has its task.
   *
   * @param isOwn whether the gateway makes the request for itself, so that it needs no external decision and no record.
   * @throws {GatewayError} `method-not-found`, `missing-capability`, `unknown-task`, or the failure of the request to the
   *   upstream.
   */
  async request(exchange: OpenExchange, isOwn = false): Promise<Answer | Elsewhere> {
    const { request, client, holder } = exchange;
    client.dialect.assertTaskMethod(request.method, client.caller.capabilities, client.catalog.capabilities);
    const { ids, owners, links, audit } = this.#parts;
    if (request.method === 'tasks/list') {
      if (audit !== undefined) await audit.begin(request, client.caller, undefined);
      return await this.#list(exchange);
    }
    const id = request.params?.string('taskId');
    if (id === undefined) throw new GatewayError('invalid-params', { message: '"taskId" must be a string' });
    const address = await ids.open(client.caller, id);
    this.assertAllowed(client, request, address);
    if (!holder.isOneClient) {
      const ownership = await owners.ownerOf({ kind: 'task', process: address.process });
      // A task whose process is gone may be known to its upstream still. That of a session is where the session is.
      if (ownership.kind === 'elsewhere') return ownership;
    }
    const asking = isOwn ? undefined : this.askAbout(client, request, address, exchange);
    if (asking !== undefined) await asking;
    exchange.taskUpstream = address.upstream;
    if (audit !== undefined && !isOwn) await audit.begin(request, client.caller, address.upstream);
    // Not before the waits, in which a reload may replace the upstream.
    const { viewed, upstream } = this.placeOf(client, address);
    const creator = this.creatorOf(holder, address);
    const link = links.findOpen(creator, upstream) ?? (await links.openFor(exchange, creator, upstream));
    const task = { upstream, link, task: address.task, holder: creator, id, viewed, address };
    upstream.beginCall(link);
    try {
      // This process may have given the id to a task of another principal.
      if (address.run !== link.run) throw new GatewayError('unknown-task');
      // The record, the owner and the link have taken time.
      this.assertAllowed(client, request, address, true);
      return await this.#conversations[client.dialect.era][link.era](exchange, task);
    } catch (thrown) {
      throw taskFailure(thrown, task);
    } finally {
      upstream.endCall(link);
    }
  }

  /**
   * Returns the upstream that runs a task, as the client sees it, or saw it when it created the task. It may be replaced or removed.
   *
   * @throws {GatewayError} `unknown-task` if it does not run the task.
   */
  placeOf(client: Client, task: TaskAddress): TaskPlace {
    const place = this.#findPlace(client, task);
    if (place === undefined) throw new GatewayError('unknown-task');
    return place;
  }

  #findPlace(
    { caller: { principal, view }, catalog }: Client,
    { upstream: id, task }: TaskAddress,
  ): TaskPlace | undefined {
    let routed: View | undefined;
    const upstream = this.#parts.upstreams.withTask(id, task, ({ client: { caller }, view: of }) => {
      const isOwn = caller.principal.key === principal.key && caller.view === view;
      if (isOwn) routed = of;
      return isOwn;
    });
    const viewed = upstreamIn(catalog.view, id) ?? upstreamIn(routed, id);
    return viewed && upstream && { upstream, viewed };
  }

  /**
   * Returns the holder whose link has created a task. Clients may declare other capabilities when they poll than when they call, so it may be another
   * group than that of the request. Returns the group of the request if the creator is gone.
   */
  creatorOf(holder: ConnectionHolder, task: OpenedTask): ConnectionHolder {
    if (holder.key === task.holder) return holder;
    for (const sibling of this.#parts.siblingsOf(holder)) if (sibling.key === task.holder) return sibling;
    return holder;
  }

  /**
   * Asks for an external decision about a request for a task. The arguments of its call are not known any more. Returns undefined if nobody is asked.
   *
   * @throws {GatewayError} `unknown-task` if it is denied, `access-unavailable`, `cancelled`
   */
  askAbout(
    { caller, catalog }: Client,
    asked: Asked,
    { upstream, tool }: OpenedTask,
    inFlight?: Cancellable,
  ): Promise<void> | undefined {
    const { gate, external } = this.#parts;
    if (gate.isOpen) return undefined;
    const asking = external.ask(caller, asked, toolIn(catalog, upstream, tool), inFlight);
    return asking?.then((isAllowed) => {
      if (!isAllowed) throw new GatewayError('unknown-task');
    });
  }

  /**
   * @param isAgain whether the request was allowed before it waited.
   * @throws {GatewayError} `unknown-task`, `insufficient-scope` if the client may not use the tool of a task any more.
   */
  assertAllowed(client: Client, asked: Asked, task: OpenedTask, isAgain = false): void {
    const refusal = this.#refusal(client, asked, task, isAgain);
    if (refusal !== undefined) throw refusal;
  }

  #refusal(
    { caller, catalog }: Client,
    asked: Asked,
    { upstream, tool }: OpenedTask,
    isAgain = false,
  ): GatewayError | undefined {
    const { gate } = this.#parts;
    if (gate.isOpen) return undefined;
    return gate.refusalOfTask(caller, asked, toolIn(catalog, upstream, tool), isAgain);
  }

  async #upgraded(exchange: OpenExchange, requested: RequestedTask): Promise<Answer> {
    const { upgradedTasks } = this.#parts;
    const { upstream, link, task, holder } = requested;
    // A running task keeps its site for up to an hour, and must not keep the text of this request with it.
    const site = { upstream, link, task, holder };
    const ask = (method: string) => this.#send(exchange, requested, RawObject.of({ taskId: task }), method);
    switch (exchange.request.method) {
      case 'tasks/update':
        return await upgradedTasks.update(exchange, site, ask);
      case 'tasks/cancel':
        return await upgradedTasks.cancel(site, ask);
      default:
        return await upgradedTasks.get(exchange, site, ask);
    }
  }

  /** Forwards a request between two peers that support the extension. */
  async #extension(exchange: OpenExchange, task: RequestedTask): Promise<Answer> {
    const { translator, questionPolicy } = this.#parts;
    const { client, request } = exchange;
    const params = (request.params ?? RawObject.EMPTY).with('taskId', JSON.stringify(task.task));
    const from = originOf(task);
    let onNotUpdated: (() => void) | undefined;
    if (request.method === 'tasks/update') {
      const keys = params.object('inputResponses')?.keys() ?? [];
      // Before the upstream has the answers, and can ask again.
      onNotUpdated = questionPolicy.onAnswered(client, task.viewed.id, task.task, keys);
    }
    const sent = await this.#send(exchange, task, params).catch((thrown: unknown) => {
      onNotUpdated?.();
      throw thrown;
    });
    if (sent.kind === 'error') onNotUpdated?.();
    else if (request.method !== 'tasks/get') {
      assertComplete(from.upstream, request.method, readResult(RawObject.parse(sent.result)));
    }
    const answer = translator.toClient(exchange, from, sent);
    if (answer.kind === 'result' && request.method === 'tasks/cancel') release(task);
    if (request.method !== 'tasks/get') return withId(answer, task);
    if (answer.kind === 'error') {
      if (isUnknownTask(answer.error)) release(task);
      return withId(answer, task);
    }
    const state = stateToClient(questionPolicy, client, task, RawObject.parse(answer.result));
    if (isTerminal(state.string('status'))) release(task);
    const told = this.#outcomeToClient(exchange, from, state);
    return withId({ kind: 'result', result: told.with('resultType', '"complete"').toString() }, task);
  }

  /** Returns the state of a task with its result and error as the client would read them as the answer to its call. */
  #outcomeToClient({ client, request }: OpenExchange, from: UpstreamResult, state: RawObject): RawObject {
    const { translator } = this.#parts;
    const result = state.object('result');
    if (result !== undefined) {
      const reading = readResult(result);
      const outcome = answerOf(() => {
        assertComplete(from.upstream, 'a task', reading);
        return { kind: 'result', result: translator.stamp(result).toString() };
      });
      if (outcome.kind === 'result') return state.with('result', outcome.result);
      const failed = state.with('status', '"failed"').with('result', undefined);
      return failed.with('error', JSON.stringify(outcome.error));
    }
    if (state.string('status') !== 'failed') return state;
    const error = taskError(state);
    const call = { ...request, method: 'tools/call', params: undefined };
    const answer = answerOf(() => translator.toClient({ client, request: call }, from, { kind: 'error', error }));
    return answer.kind === 'error' ? state.with('error', JSON.stringify(answer.error)) : state;
  }

  /** Forwards a request between two peers that have the tasks of 2025-11-25. */
  async #core(exchange: OpenExchange, task: RequestedTask): Promise<Answer> {
    const { method, params } = exchange.request;
    const sent = withoutEnvelope((params ?? RawObject.EMPTY).with('taskId', JSON.stringify(task.task)));
    const from = originOf(task);
    const answer = this.#parts.translator.toClient(exchange, from, await this.#send(exchange, task, sent));
    if (answer.kind === 'error') {
      // After any other error the task goes on.
      if (isUnknownTask(answer.error)) release(task);
      return withId(answer, task);
    }
    const result = RawObject.parse(answer.result);
    if (method === 'tasks/result' || isTerminal(result.string('status'))) release(task);
    if (method === 'tasks/result') return { kind: 'result', result: withRelatedTask(result, task.id).toString() };
    return withId(answer, task);
  }

  async #send(
    exchange: OpenExchange,
    { upstream, link, address }: RequestedTask,
    params: RawObject,
    method = exchange.request.method,
  ): Promise<Answer> {
    const { sender } = this.#parts;
    const { client, request } = exchange;
    // The answer comes at the end of the task, so a slot would keep other calls waiting until then.
    if (method === 'tasks/result') {
      const { maxMs } = upstream.config.timeouts;
      return await sender.send(exchange, upstream, link, { params, silentMs: maxMs }).answer;
    }
    const queued = exchange.acquireSlot(upstream);
    try {
      if (queued !== undefined) {
        await queued;
        this.assertAllowed(client, request, address, true);
      }
      return await sender.send(exchange, upstream, link, { method, params }).answer;
    } finally {
      exchange.releaseSlot();
    }
  }

  /** Answers `tasks/list` with the states of the client's tasks. The list of an upstream may contain tasks of other clients. */
  async #list(exchange: OpenExchange): Promise<Answer> {
    const { ids } = this.#parts;
    const own = await this.#selectAllowed(exchange, await ids.list(exchange.client.caller));
    const states = await Promise.all(own.map((known) => this.#state(exchange, known)));
    const tasks = arrayText(states.flatMap((state) => (state === undefined ? [] : [state])));
    return { kind: 'result', result: `{"tasks":${tasks}}` };
  }

  /** Returns the tasks of tools that the client may use. */
  async #selectAllowed({ client, request }: OpenExchange, own: readonly KnownTask[]): Promise<readonly KnownTask[]> {
    const { ids, gate } = this.#parts;
    if (gate.isOpen) return own;
    // A stored id may be older than the keys that open it.
    const open = (id: string) => ids.open(client.caller, id).catch(() => undefined);
    const opened = await Promise.all(own.map(async (known) => ({ known, task: await open(known.id) })));
    return opened
      .filter(({ task }) => task !== undefined && this.#refusal(client, { method: request.method }, task) === undefined)
      .map(({ known }) => known);
  }

  /** Returns the state of a task; undefined if its upstream does not know it, is not connected, or sends a malformed one. */
  async #state({ client, holder }: OpenExchange, known: KnownTask): Promise<string | undefined> {
    const { links, ids } = this.#parts;
    const upstream = this.#findPlace(client, known)?.upstream;
    if (upstream === undefined) return undefined;
    const isOwn = ({ users, tasks }: Link) => users.has(holder) && tasks.has(known.task);
    const link = upstream.isRetired ? [...upstream.links()].find(isOwn) : links.findOpen(holder, upstream);
    if (link?.run !== known.run || !UPSTREAM_DIALECTS[link.era].hasCoreTasks) return undefined;
    const { callMs } = upstream.config.timeouts;
    const limits = { timeoutMs: callMs, maxMs: callMs, progress: false, context: undefined } as const;
    const call = link.connection.call('tasks/get', RawObject.of({ taskId: known.task }), limits);
    const answer = await call.answer.catch(() => undefined);
    if (answer?.kind === 'result') {
      const named = () => RawObject.parse(answer.result).with('taskId', JSON.stringify(known.id)).toString();
      return unlessMalformed(named, undefined);
    }
    const isGone = answer?.kind === 'error' && isUnknownTask(answer.error);
    if (isGone && known.holder === holder.key) await ids.remove(client.caller, known);
    return undefined;
  }
}

function toolIn(catalog: Catalog, upstream: string, name: string): Item {
  return { kind: 'tool', upstream, name, hints: hintsOf(sourceByName(catalog, upstream, name)) };
}

/** Returns the state of a task with its result and questions as the client reads them. */
function stateToClient(
  policy: QuestionPolicy,
  client: Client,
  { task, viewed }: RequestedTask,
  state: RawObject,
): RawObject {
  const result = state.raw('result');
  const requests = state.raw('inputRequests');
  const odd = findHiddenQuestion(state);
  if (odd !== undefined) {
    const message = `upstream "${viewed.id}" sent a task with a member ${lookalike(odd)}`;
    throw new GatewayError('upstream-protocol', { upstream: viewed.id, message });
  }
  const translated = result === undefined ? state : state.with('result', urisToClient('tools/call', viewed, result));
  if (requests === undefined || requests === 'null') return translated;
  const read = readRequests(requests);
  if (read === undefined) return notAsked(translated.with('inputRequests', undefined), 'its questions are malformed');
  policy.assertAskable(client, viewed.id, read);
  const questions = read.map((one) => ({ ...one, params: policy.toClient(client, viewed.id, one, undefined) }));
  const refusals = questions.map((one) => policy.takeTokens(client, viewed.id, [one], { task, key: one.key }));
  const asked = translated.with(
    'inputRequests',
    inputRequestsText(questions.filter((_, at) => refusals[at] === undefined)),
  );
  const reason = refusals.find((one) => one !== undefined);
  return reason === undefined ? asked : notAsked(asked, reason);
}

function notAsked(state: RawObject, why: string): RawObject {
  return state.with('statusMessage', JSON.stringify(`You are not asked: ${why}`));
}

/** Returns the answer with the client's task id instead of the upstream's, also in the message of an error. */
function withId(answer: Answer, { task, id }: RequestedTask): Answer {
  if (answer.kind === 'error') {
    const { error } = answer;
    return { kind: 'error', error: { ...error, message: renamed(error.message, task, id) } };
  }
  const result = RawObject.parse(answer.result);
  if (result.raw('taskId') === undefined && result.raw('status') === undefined) return answer;
  return { kind: 'result', result: result.with('taskId', JSON.stringify(id)).toString() };
}

/** Matches a character of a longer word or id. */
const WORD = /[\w-]/;

/** Returns a message with another id in the first place where the upstream's id is a word of its own. An id may be as short as a letter. */
function renamed(message: string, task: string, id: string): string {
  if (task === '') return message;
  for (let at = message.indexOf(task); at >= 0; at = message.indexOf(task, at + task.length)) {
    const end = at + task.length;
    if (!WORD.test(message.charAt(at - 1)) && !WORD.test(message.charAt(end)))
      return message.slice(0, at) + id + message.slice(end);
  }
  return message;
}
