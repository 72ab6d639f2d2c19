import type { Source } from '../catalog/callable.ts';
import { GatewayError } from '../errors.ts';
import { RawObject } from '../protocol/json.ts';
import type { Answer } from '../protocol/jsonrpc.ts';
import { withoutCoreTaskMeta } from '../protocol/meta.ts';
import { MODERN, quirksOf } from '../protocol/revisions.ts';
import { mustBeTask, runsTasks } from '../protocol/tasks.ts';
import type { Call } from '../upstream/call.ts';
import type { Link } from '../upstream/link.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { Answers } from './answers.ts';
import type { Exchange } from './exchange.ts';
import type { OpenExchange } from './open-exchange.ts';
import type { Party } from './party.ts';
import type { Sender } from './sender.ts';
import type { TaskDriver } from './task-driver.ts';
import type { TaskIds } from './task-ids.ts';

export interface TaskCallsParts {
  readonly sender: Sender;
  readonly answers: Answers;
  readonly ids: TaskIds;
  readonly driver: TaskDriver;
}

/**
 * What becomes of a call at an upstream of the legacy era.
 *
 * - `plain`: no task.
 * - `client`: the client asked for a task, and gets it.
 * - `driven`: the tool runs as a task only, and the client gets what comes of it.
 */
type Plan = 'plain' | 'client' | 'driven';

/** `isDone`: the answer is in the client's words already. */
interface Called {
  readonly answer: Answer;
  readonly isDone: boolean;
}

/** The calls that become tasks. */
export class TaskCalls {
  readonly #parts: TaskCallsParts;

  constructor(parts: TaskCallsParts) {
    this.#parts = parts;
  }

  /** Makes a call at an upstream of the legacy era, where it is the client who decides. @throws {GatewayError} */
  async call(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, Party>,
    link: Link<Exchange, Party>,
    params: RawObject,
    source: Source | undefined,
  ): Promise<Called> {
    const { sender, driver, ids } = this.#parts;
    const plan = planOf(exchange, upstream, link, params, source);
    if (plan === 'plain') {
      const sent = exchange.request.method === 'tools/call' ? params.with('task', undefined) : params;
      return { answer: await sender.send(exchange, upstream, link, { params: sent }), isDone: false };
    }
    const sent =
      plan === 'client' ? params : params.with('task', JSON.stringify({ ttl: upstream.config.timeouts.maxMs }));
    const cancelled = (call: Call<Exchange>) =>
      unlessTask(call, (task) => driver.cancel(exchange, { upstream, link, task }));
    const answer = await sender.send(exchange, upstream, link, { params: sent, cancelled });
    const result = answer.kind === 'result' ? RawObject.parse(answer.result) : undefined;
    const state = result?.object('task');
    // It may have run the call at once all the same.
    if (result === undefined || state === undefined) return { answer, isDone: false };
    const task = idIn(upstream.id, state);
    if (plan === 'client') {
      const id = await ids.name(exchange.client.caller, exchange.party.key, { upstream: upstream.id, task });
      const named = result.with('task', state.with('taskId', JSON.stringify(id)).toString());
      return { answer: { kind: 'result', result: named.toString() }, isDone: true };
    }
    const ended = await driver.finish(exchange, { upstream, link, task }, state);
    return { answer: ended.kind === 'error' ? ended : withoutMarks(ended.result), isDone: false };
  }

  /**
   * A modern upstream answered with a task: its clients know what that is, or else wait for its end.
   *
   * @throws {GatewayError}
   */
  async created(
    exchange: OpenExchange,
    upstream: Upstream<Exchange, Party>,
    link: Link<Exchange, Party>,
    state: RawObject,
    source: Source | undefined,
  ): Promise<Answer> {
    const { driver, ids, answers } = this.#parts;
    const { client, party } = exchange;
    const task = idIn(upstream.id, state);
    const given = { upstream: upstream.id, isModern: true, source };
    if (client.caller.revision !== MODERN) {
      return answers.toClient(exchange, given, await driver.finish(exchange, { upstream, link, task }, state));
    }
    const id = await ids.name(client.caller, party.key, { upstream: upstream.id, task });
    const named = state.with('taskId', JSON.stringify(id));
    return answers.toClient(exchange, given, { kind: 'result', result: named.toString() });
  }
}

function planOf(
  { request, client }: OpenExchange,
  { config }: Upstream<Exchange, Party>,
  link: Link<Exchange, Party>,
  params: RawObject,
  source: Source | undefined,
): Plan {
  if (request.method !== 'tools/call' || !runsTasks(link.hello.capabilities)) return 'plain';
  const isAsked = params.raw('task') !== undefined && quirksOf(client.caller.revision).coreTasks;
  // A connection for one call is gone before anybody can ask about a task on it.
  if (isAsked && config.isolation !== 'call') return 'client';
  return source !== undefined && !source.isModern && mustBeTask(source.item) ? 'driven' : 'plain';
}

/** @throws {GatewayError} `upstream-protocol` */
function idIn(upstream: string, state: RawObject): string {
  const task = state.string('taskId');
  if (task !== undefined) return task;
  const say = `upstream "${upstream}" made a task without an id`;
  throw new GatewayError('upstream-protocol', { upstream, say });
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
    owner: call.owner,
    answer: Promise.race([call.answer, cancelled]),
    cancel: () => {
      reject(new GatewayError('cancelled'));
      call.answer.then(cancelCreated).catch(() => undefined);
    },
  };
}
