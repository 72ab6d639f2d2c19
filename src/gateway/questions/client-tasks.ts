import { getOrMake, setLatest } from '../../map-entries.ts';
import { randomUUID } from 'node:crypto';
import { isShown } from '../../catalog/catalog.ts';
import { arrayText, RawObject } from '../../json/json.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import { detach, type KeptText } from '../../json/kept-text.ts';
import { type Answer, errorAnswer } from '../../protocol/jsonrpc.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { supportsClientTask, relatedTask, withRelatedTask } from '../../protocol/tasks.ts';
import type { ServerRequest } from '../../upstream/rpc/connection.ts';
import type { Client, Exchange } from '../exchange/exchange.ts';
import type { ConnectionHolder, Link } from '../exchange/connection-holder.ts';

/** A task that a client runs for an upstream, as the answer to a question. */
interface HostedTask {
  readonly client: Client;
  /** The client's id of the task. */
  readonly task: KeptText;
}

const METHODS = new Set(['tasks/get', 'tasks/result', 'tasks/list', 'tasks/cancel']);

/**
 * Tasks of 2025-11-25 that clients run for upstreams. The upstream gets an id that is valid only on its connection. So it can reach no
 * client but the one that it asked.
 */
export class ClientTasks {
  /** Tasks by connection, then by the upstream's id. */
  readonly #hosted = new WeakMap<Link, Map<string, HostedTask>>();
  readonly #onLimit: (limit: LimitName) => void;

  /** @param onLimit runs when the oldest task of a connection is removed. */
  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /** Returns whether this client may answer the question with a task. */
  mayCreateTask(client: Client, method: string, params: RawObject): boolean {
    return params.raw('task') !== undefined && supportsClientTask(client.clientCapabilities, method);
  }

  /** Returns the client's answer for the upstream. If the client created a task, registers it and replaces its id. */
  onCreated(link: Link, client: Client, answer: Answer): Answer {
    const result = answer.kind === 'result' ? RawObject.parse(answer.result) : undefined;
    const state = result?.object('task');
    const task = state?.string('taskId');
    if (result === undefined || state === undefined || task === undefined) return answer;
    const id = randomUUID();
    const hosted = this.#tasksOf(link);
    const kept = { client: client.lasting, task: detach(task) };
    if (setLatest(hosted, id, kept, LIMITS.clientTasksPerConnection)) this.#onLimit('clientTasksPerConnection');
    const named = result.with('task', state.with('taskId', JSON.stringify(id)).toString());
    return { kind: 'result', result: named.toString() };
  }

  isTaskRequest({ method }: ServerRequest<Exchange>): boolean {
    return METHODS.has(method);
  }

  /** Sends a server request about a task to the client that runs it. Always answers the upstream. */
  relay(link: Link, request: ServerRequest<Exchange>): void {
    if (request.method === 'tasks/list') {
      void this.#list(link, request);
      return;
    }
    const id = request.params.string('taskId') ?? '';
    const hosted = this.#tasksOf(link).get(id);
    // The access policy may have hidden the upstream since the client was asked.
    if (hosted === undefined || !isShown(hosted.client.catalog, link.upstream)) {
      request.answer(errorAnswer(RPC.invalidParams, `No client runs a task ${JSON.stringify(id)} for this connection`));
      return;
    }
    askClient(link, hosted, request, (answer) => request.answer(toUpstream(answer, hosted.task, id)));
  }

  async #list(link: Link, request: ServerRequest<Exchange>): Promise<void> {
    const shown = [...this.#tasksOf(link)].filter(([, { client }]) => isShown(client.catalog, link.upstream));
    const withdrawals: ((cancelled?: RawObject) => void)[] = [];
    request.onWithdrawn((cancelled) => {
      for (const withdraw of withdrawals) withdraw(cancelled);
    });
    const onWithdrawn: ServerRequest<Exchange>['onWithdrawn'] = (run) => void withdrawals.push(run);
    const states = shown.map(async ([id, hosted]) => {
      const { promise, resolve } = Promise.withResolvers<Answer>();
      askClient(link, hosted, { method: 'tasks/get', params: RawObject.EMPTY, onWithdrawn }, resolve);
      const answer = toUpstream(await promise, hosted.task, id);
      return answer.kind === 'result' ? [answer.result] : [];
    });
    const tasks = (await Promise.all(states)).flat();
    request.answer({ kind: 'result', result: `{"tasks":${arrayText(tasks)}}` });
  }

  /** Sends a status notification of a client's task to the upstream of the task. */
  onStatus(client: Client & ConnectionHolder, params: RawObject): void {
    const task = params.string('taskId');
    for (const link of client.links.values()) {
      for (const [id, hosted] of this.#hosted.get(link) ?? []) {
        if (hosted.client !== client || hosted.task !== task) continue;
        link.connection.notify('notifications/tasks/status', params.with('taskId', JSON.stringify(id)));
      }
    }
  }

  #tasksOf(link: Link): Map<string, HostedTask> {
    return getOrMake(this.#hosted, link, () => new Map());
  }
}

function askClient(
  link: Link,
  { client, task }: HostedTask,
  { method, params, onWithdrawn }: Pick<ServerRequest<Exchange>, 'method' | 'params' | 'onWithdrawn'>,
  answer: (answer: Answer) => void,
): void {
  const paramsToClient = params.with('taskId', JSON.stringify(task));
  client.ask(
    { upstream: link.upstream, method, params: paramsToClient, answer, onProgress: undefined, onWithdrawn },
    undefined,
  );
}

/** Returns the client's answer with the upstream's id of the task. */
function toUpstream(answer: Answer, task: string, id: string): Answer {
  if (answer.kind === 'error') return answer;
  let result = RawObject.parse(answer.result);
  if (result.string('taskId') === task) result = result.with('taskId', JSON.stringify(id));
  if (relatedTask(result) !== undefined) result = withRelatedTask(result, id);
  return { kind: 'result', result: result.toString() };
}
