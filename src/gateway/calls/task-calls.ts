import type { Source } from '../../catalog/names/named-items.ts';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { withoutCoreTaskMeta } from '../../protocol/meta.ts';
import { MODERN, featuresOf } from '../../protocol/revisions.ts';
import { declaresTasks, requiresTask, supportsToolTasks } from '../../protocol/tasks.ts';
import type { Call } from '../../upstream/rpc/call.ts';
import { ClientGroup } from '../clients/client-group.ts';
import type { ResultTranslator } from '../forward/result-translator.ts';
import type { Exchange } from '../exchange/exchange.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { Link, Upstream } from '../exchange/connection-holder.ts';
import type { UpgradedTasks } from '../tasks/upgraded-tasks.ts';
import type { Sender } from '../forward/sender.ts';
import type { TaskDriver } from '../tasks/task-driver.ts';
import { hold } from '../tasks/task-holds.ts';
import type { TaskIds } from '../handles/task-ids.ts';

export interface TaskCallsParts {
  readonly sender: Sender;
  readonly translator: ResultTranslator;
  readonly ids: TaskIds;
  readonly driver: TaskDriver;
  readonly upgradedTasks: UpgradedTasks;
}

/**
 * What becomes of a call at an upstream of the legacy era.
 *
 * - `plain`: no task.
 * - `client`: the client asked for a task, and gets it.
 * - `raised`: the tool runs as a task only, and the client knows tasks by another name.
 * - `driven`: the tool runs as a task only, and the client gets what comes of it.
 */
export type TaskPlan = 'plain' | 'client' | 'raised' | 'driven';

/** `isDone`: the answer is in the client's words already. */
interface Called {
  readonly answer: Answer;
  readonly isDone: boolean;
}

/** What an upstream is asked to keep a task for, whose client nobody waits for. Milliseconds. */
const RAISED_MS = 3_600_000;

/** The calls that become tasks. */
export class TaskCalls {
  readonly #parts: TaskCallsParts;

  constructor(parts: TaskCallsParts) {
    this.#parts = parts;
  }

  /** Makes a call that may become a task, at an upstream of the legacy era. @throws {GatewayError} */
  async call(
    plan: Exclude<TaskPlan, 'plain'>,
    exchange: OpenExchange,
    upstream: Upstream,
    link: Link,
    params: RawObject,
  ): Promise<Called> {
    const { sender, driver, ids, upgradedTasks } = this.#parts;
    const { client, holder } = exchange;
    const ttl = plan === 'raised' ? RAISED_MS : upstream.config.timeouts.maxMs;
    const sent = plan === 'client' ? params : params.with('task', JSON.stringify({ ttl }));
    const cancelled = (call: Call<Exchange>) =>
      unlessTask(call, (task) => driver.cancel(exchange, { upstream, link, task }));
    const answer = await sender.send(exchange, upstream, link, { params: sent, cancelled }).answer;
    const result = answer.kind === 'result' ? RawObject.parse(answer.result) : undefined;
    const state = result?.object('task');
    // It may have run the call at once all the same.
    if (result === undefined || state === undefined) return { answer, isDone: false };
    const task = idIn(upstream.id, state);
    const site = { upstream, link, task };
    if (plan === 'driven') {
      const ended = await driver.finish(exchange, site, state);
      return { answer: ended.kind === 'error' ? ended : withoutMarks(ended.result), isDone: false };
    }
    hold(site, state, exchange);
    const created =
      holder instanceof ClientGroup ? upgradedTasks.begin(exchange, { ...site, holder }, state) : undefined;
    const id = JSON.stringify(await ids.seal(client.caller, { upstream: upstream.id, task, holder: holder.key }));
    const named = created?.with('taskId', id) ?? result.with('task', state.with('taskId', id).toString());
    return { answer: { kind: 'result', result: named.toString() }, isDone: true };
  }

  /**
   * A modern upstream answered with a task: its clients know what that is, or else wait for its end.
   *
   * @throws {GatewayError}
   */
  async onCreated(
    exchange: OpenExchange,
    upstream: Upstream,
    link: Link,
    state: RawObject,
    source: Source | undefined,
  ): Promise<Answer> {
    const { driver, ids, translator } = this.#parts;
    const { client, holder } = exchange;
    const task = idIn(upstream.id, state);
    const given = { upstream: upstream.id, isModern: true, source };
    if (client.caller.revision !== MODERN) {
      return translator.toClient(exchange, given, await driver.finish(exchange, { upstream, link, task }, state));
    }
    const id = await ids.seal(client.caller, { upstream: upstream.id, task, holder: holder.key });
    const named = state.with('taskId', JSON.stringify(id));
    return translator.toClient(exchange, given, { kind: 'result', result: named.toString() });
  }

  /** How a call at an upstream of the legacy era goes, where it is the client who decides. */
  planOf(
    { request, client }: OpenExchange,
    { config }: Upstream,
    link: Link,
    params: RawObject,
    source: Source | undefined,
  ): TaskPlan {
    if (request.method !== 'tools/call' || !supportsToolTasks(link.hello.capabilities)) return 'plain';
    const { revision, capabilities, principal } = client.caller;
    // A connection for one call is gone before anybody can ask about a task on it.
    const canKeep = config.isolation !== 'call';
    if (canKeep && params.raw('task') !== undefined && featuresOf(revision).coreTasks) return 'client';
    if (source === undefined || source.isModern || !requiresTask(source.item)) return 'plain';
    const isRaised = canKeep && revision === MODERN && declaresTasks(capabilities);
    return isRaised && this.#parts.upgradedTasks.hasRoom(principal.key) ? 'raised' : 'driven';
  }
}

/** @throws {GatewayError} `upstream-protocol` */
function idIn(upstream: string, state: RawObject): string {
  const task = state.string('taskId');
  if (task !== undefined) return task;
  const message = `upstream "${upstream}" made a task without an id`;
  throw new GatewayError('upstream-protocol', { upstream, message });
}

function withoutMarks(result: string): Answer {
  return { kind: 'result', result: withoutCoreTaskMeta(RawObject.parse(result)).toString() };
}

/**
 * The call as one that a cancel does not reach, since what becomes a task is cancelled as a task: as soon as it is known which.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation
 */
function unlessTask(call: Call<Exchange>, cancelTask: (task: string) => void): Call<Exchange> {
  const { promise: cancelled, reject } = Promise.withResolvers<never>();
  const cancelCreated = (answer: Answer) => {
    const task = answer.kind === 'result' ? RawObject.parse(answer.result).object('task')?.string('taskId') : undefined;
    if (task !== undefined) cancelTask(task);
  };
  return {
    id: call.id,
    context: call.context,
    startedMs: call.startedMs,
    answer: Promise.race([call.answer, cancelled]),
    cancel: () => {
      reject(new GatewayError('cancelled'));
      call.answer.then(cancelCreated).catch(() => undefined);
    },
  };
}
