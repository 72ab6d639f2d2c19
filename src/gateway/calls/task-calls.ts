import type { Source } from '../../catalog/names/named-items.ts';
import { answerOf, failureOfBegunCall, GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import { detach } from '../../json/kept-text.ts';
import { unlessMalformed } from '../../json/malformed.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { withoutCoreTaskMeta } from '../../protocol/meta.ts';
import { featuresOf } from '../../protocol/revisions.ts';
import { createdState, requiresTask, supportsToolTasks } from '../../protocol/tasks.ts';
import type { Call } from '../../upstream/rpc/call.ts';
import type { ResultTranslator } from '../forward/result-translator.ts';
import type { Exchange } from '../exchange/exchange.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { Link, Upstream } from '../exchange/connection-holder.ts';
import type { UpgradedSite, UpgradedTasks } from '../tasks/upgraded-tasks.ts';
import type { Sender } from '../forward/sender.ts';
import type { TaskDriver, TaskSite } from '../tasks/task-driver.ts';
import { hold, release, taskExchange } from '../tasks/task-holds.ts';
import type { TaskIds } from '../handles/task-ids.ts';

export interface TaskCallsParts {
  readonly sender: Sender;
  readonly translator: ResultTranslator;
  readonly ids: TaskIds;
  readonly driver: TaskDriver;
  readonly upgradedTasks: UpgradedTasks;
  /** Runs when a bound on the tasks of an upstream is reached. */
  readonly onLimit: (limit: LimitName) => void;
}

/**
 * The way in which a call is made at a legacy upstream.
 *
 * - `plain`: without a task.
 * - `client`: as a task, which the client asked for and gets.
 * - `upgraded`: as a task, which the tool requires. The client gets it as a task of the extension.
 * - `driven`: as a task, which the tool requires. The client gets the outcome.
 */
export type TaskPlan = 'plain' | 'client' | 'upgraded' | 'driven';

interface CalledAsTask {
  readonly answer: Answer;
  /** True if the answer is already translated for the client. */
  readonly isTranslated: boolean;
}

/** The result of a call that has created a task, with the state and the id of the task. */
interface CreatedTask {
  readonly result: RawObject;
  readonly state: RawObject;
  readonly task: string;
}

/** The `ttl` of an upgraded task, in milliseconds: how long the upstream keeps it. */
const UPGRADED_TTL_MS = 3_600_000;

/** Makes the calls that become tasks. */
export class TaskCalls {
  readonly #parts: TaskCallsParts;

  constructor(parts: TaskCallsParts) {
    this.#parts = parts;
  }

  /** Makes a call as a task at a legacy upstream. @throws {GatewayError} if the upstream has not answered. */
  async call(
    plan: Exclude<TaskPlan, 'plain'>,
    exchange: OpenExchange,
    upstream: Upstream,
    link: Link,
    params: RawObject,
  ): Promise<CalledAsTask> {
    const { sender, driver, upgradedTasks, onLimit } = this.#parts;
    const { holder } = exchange;
    const ttl = plan === 'upgraded' ? UPGRADED_TTL_MS : upstream.config.timeouts.maxMs;
    const sent = plan === 'client' ? params : params.with('task', JSON.stringify({ ttl }));
    exchange.isTaskCall = true;
    let isCreated = false;
    const asCancellable = (call: Call<Exchange>) =>
      cancelledAsTask(call, async (late) => {
        // A connection for one call would close with it.
        upstream.beginCall(link);
        const task = await late;
        if (!isCreated) link.connection.forgetProgress(exchange);
        if (!isCreated && task !== undefined) driver.cancel(exchange, { upstream, link, task });
        upstream.endCall(link);
      });
    const answer = await sender.send(exchange, upstream, link, { params: sent, asCancellable }).answer;
    let made: CreatedTask | undefined;
    try {
      made = createdTask(upstream.id, answer, (task) => this.#refuse(exchange, { upstream, link, task }));
    } finally {
      if (made === undefined) link.connection.forgetProgress(exchange);
    }
    if (made === undefined) return { answer, isTranslated: false };
    const { result, state, task } = made;
    const site = { upstream, link, task, holder };
    isCreated = true;
    if (exchange.failure !== undefined) {
      // The client gets the failure, and not the task.
      driver.cancel(exchange, site);
      link.connection.forgetProgress(exchange);
      throw exchange.failure;
    }
    const { dialect, caller } = exchange.client;
    // The retry of a parked call may declare less than the call.
    const isUpgraded = plan === 'upgraded' && dialect.taskRole(caller.capabilities) === 'polls';
    if (!isUpgraded && plan !== 'client') {
      // Shows whose task the questions are about.
      hold(site, state, exchange, onLimit);
      const outcome = await driver.finish(exchange, site, state).finally(() => release(site));
      return { answer: outcome.kind === 'error' ? outcome : withoutTaskMeta(outcome.result), isTranslated: false };
    }
    const created = isUpgraded ? upgradedTasks.begin(exchange, site, result, state) : undefined;
    if (created === undefined) hold(site, state, exchange, onLimit);
    const id = JSON.stringify(await this.#seal(exchange, site));
    const named = created?.with('taskId', id) ?? result.with('task', state.with('taskId', id).toString());
    return { answer: { kind: 'result', result: named.toString() }, isTranslated: true };
  }

  /**
   * Handles a task that a modern upstream has created: returns it to a client that polls tasks, else waits for its end. A connection for one
   * call is closed before the client can poll.
   *
   * @throws {GatewayError} if the task does not end with an answer.
   */
  async onCreated(
    exchange: OpenExchange,
    upstream: Upstream,
    link: Link,
    state: RawObject,
    source: Source | undefined,
  ): Promise<Answer> {
    const { driver, translator, onLimit } = this.#parts;
    const { client, holder } = exchange;
    const task = taskIdOf(upstream.id, state, (long) => this.#refuse(exchange, { upstream, link, task: long }));
    const from = { upstream: upstream.id, era: link.era, source };
    const site = { upstream, link, task, holder };
    if (link.place.purpose === 'call' || client.dialect.taskRole(client.caller.capabilities) === 'waits') {
      const outcome = await driver.finish(exchange, site, state);
      return answerOf(() => translator.toClient(exchange, from, outcome));
    }
    // Any connection to a remote upstream reaches its tasks.
    if (upstream.isProcess) hold(site, state, taskExchange(client.caller, holder, exchange.view), onLimit);
    const named = createdState(state).with('taskId', JSON.stringify(await this.#seal(exchange, site)));
    return translator.toClient(exchange, from, { kind: 'result', result: named.toString() });
  }

  /** Cancels a new task whose id is too long: nobody could ask about it. */
  #refuse(exchange: OpenExchange, site: TaskSite): void {
    this.#parts.onLimit('upstreamTaskIdChars');
    this.#parts.driver.cancel(exchange, site);
  }

  /** Returns the id of a new task for the client. Cancels the task if the client does not get the id. */
  async #seal(exchange: OpenExchange, site: UpgradedSite): Promise<string> {
    const { driver, ids, upgradedTasks } = this.#parts;
    const { upstream, task, holder, link } = site;
    const address = { upstream: upstream.id, task, holder: holder.key, run: link.run };
    try {
      return await exchange.unlessCancelled(ids.seal(exchange.client.caller, address, exchange.upstreamTool ?? ''));
    } catch (thrown) {
      driver.cancel(exchange, site);
      upgradedTasks.end(site);
      release(site);
      throw thrown instanceof GatewayError ? failureOfBegunCall(thrown) : thrown;
    }
  }

  /** Decides how a call is made at a legacy upstream, where the client decides on tasks. */
  planOf(
    { request, client }: OpenExchange,
    { config }: Upstream,
    link: Link,
    params: RawObject,
    source: Source | undefined,
  ): TaskPlan {
    if (request.method !== 'tools/call' || !supportsToolTasks(link.hello.capabilities)) return 'plain';
    const { revision, capabilities, principal } = client.caller;
    // A connection for one call is closed before the client can poll a task on it.
    const canKeep = config.isolation !== 'call';
    if (canKeep && params.raw('task') !== undefined && featuresOf(revision).coreTasks) return 'client';
    if (source === undefined || source.isModern || !requiresTask(source.item)) return 'plain';
    const polls = canKeep && client.dialect.taskRole(capabilities) === 'polls';
    return polls && this.#parts.upgradedTasks.hasRoom(principal.key) ? 'upgraded' : 'driven';
  }
}

/**
 * Returns the task that an answer has created; undefined if the upstream has run the call without one.
 *
 * @param onLong as for {@link taskIdOf}.
 * @throws {GatewayError} `upstream-protocol`
 */
function createdTask(upstream: string, answer: Answer, onLong: (task: string) => void): CreatedTask | undefined {
  const result = answer.kind === 'result' ? RawObject.parse(answer.result) : undefined;
  const state = result?.object('task');
  if (result === undefined || state === undefined) return undefined;
  return { result, state, task: taskIdOf(upstream, state, onLong) };
}

/**
 * Returns the id in the state of a task.
 *
 * @param onLong called with an id that is too long.
 * @throws {GatewayError} `upstream-protocol`
 */
function taskIdOf(upstream: string, state: RawObject, onLong: (task: string) => void): string {
  const task = state.string('taskId');
  const isLong = task !== undefined && task.length > LIMITS.upstreamTaskIdChars;
  // Kept as long as the task, which is longer than its first state.
  if (task !== undefined && !isLong) return detach(task);
  if (isLong) onLong(task);
  const fault = isLong ? `with an id of more than ${LIMITS.upstreamTaskIdChars} characters` : 'without an id';
  const message = `upstream "${upstream}" made a task ${fault}`;
  throw new GatewayError('upstream-protocol', { upstream, message });
}

function withoutTaskMeta(result: string): Answer {
  return { kind: 'result', result: withoutCoreTaskMeta(RawObject.parse(result)).toString() };
}

/**
 * Returns the call with another `cancel`, which sends no `notifications/cancelled`: a task is cancelled by its id.
 *
 * @param onCancel runs with the task that the upstream answers a cancelled call with; undefined if there is none.
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation
 */
function cancelledAsTask(
  call: Call<Exchange>,
  onCancel: (late: Promise<string | undefined>) => Promise<void>,
): Call<Exchange> {
  const { promise: cancelled, reject } = Promise.withResolvers<never>();
  const taskIn = ({ result }: Answer & { readonly kind: 'result' }) =>
    unlessMalformed(() => RawObject.parse(result).object('task')?.string('taskId'), undefined);
  const taskOf = (answer: Answer) => (answer.kind === 'result' ? taskIn(answer) : undefined);
  return {
    id: call.id,
    context: call.context,
    startedMs: call.startedMs,
    answer: Promise.race([call.answer, cancelled]),
    abandon: () => call.abandon(),
    cancel: () => {
      call.abandon();
      reject(new GatewayError('cancelled'));
      void onCancel(call.answer.then(taskOf).catch(() => undefined));
    },
  };
}
