import { randomUUID } from 'node:crypto';
import { arrayText, RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { supportsClientTask, relatedTask, withRelatedTask } from '../../protocol/tasks.ts';
import type { ServerRequest } from '../../upstream/rpc/connection.ts';
import type { Link } from '../../upstream/link.ts';
import type { Client, Exchange } from '../exchange/exchange.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';

type HolderLink = Link<Exchange, ConnectionHolder>;

/** A task that a client runs for an upstream: an answer to a question that takes long. */
interface HostedTask {
  readonly client: Client;
  /** The client's id of it. */
  readonly task: string;
}

/** One connection has no more of them; the oldest are unknown then. */
const MAX_HOSTED = 256;

const METHODS = new Set(['tasks/get', 'tasks/result', 'tasks/list', 'tasks/cancel']);

function errorAnswer(code: number, message: string): Answer {
  return { kind: 'error', error: { code, message } };
}

/**
 * Tasks of 2025-11-25 that clients run for upstreams. An upstream knows one by an id that means something on its connection
 * alone, so that it reaches no client but the one it asked.
 */
export class ClientTasks {
  /** By the id the upstream knows. */
  readonly #hosted = new WeakMap<HolderLink, Map<string, HostedTask>>();

  /** Whether what is asked may become a task of this client. */
  mayHost(client: Client, method: string, params: RawObject): boolean {
    return params.raw('task') !== undefined && supportsClientTask(client.clientCapabilities, method);
  }

  /** What the client said to such a question: that it made a task, or at once what was asked. */
  onCreated(link: HolderLink, client: Client, answer: Answer): Answer {
    const result = answer.kind === 'result' ? RawObject.parse(answer.result) : undefined;
    const state = result?.object('task');
    const task = state?.string('taskId');
    if (result === undefined || state === undefined || task === undefined) return answer;
    const id = randomUUID();
    const hosted = this.#of(link);
    hosted.set(id, { client, task });
    const [oldest] = hosted.keys();
    if (hosted.size > MAX_HOSTED && oldest !== undefined) hosted.delete(oldest);
    const named = result.with('task', state.with('taskId', JSON.stringify(id)).toString());
    return { kind: 'result', result: named.toString() };
  }

  /** Whether this is for clients that run tasks. */
  isAbout({ method }: ServerRequest<Exchange>): boolean {
    return METHODS.has(method);
  }

  /** Takes what an upstream asks about a task to the client that runs it. Always answers the upstream. */
  relay(link: HolderLink, ask: ServerRequest<Exchange>): void {
    if (ask.method === 'tasks/list') {
      void this.#list(link, ask);
      return;
    }
    const id = ask.params.string('taskId') ?? '';
    const hosted = this.#of(link).get(id);
    if (hosted === undefined) {
      ask.answer(errorAnswer(-32602, `No client runs a task ${JSON.stringify(id)} for this connection`));
      return;
    }
    requestAbout(link, hosted, ask, (answer) => ask.answer(toUpstream(answer, hosted.task, id)));
  }

  async #list(link: HolderLink, ask: ServerRequest<Exchange>): Promise<void> {
    const states = [...this.#of(link)].map(async ([id, hosted]) => {
      const { promise, resolve } = Promise.withResolvers<Answer>();
      const params = RawObject.EMPTY;
      requestAbout(link, hosted, { ...ask, method: 'tasks/get', params }, resolve);
      const answer = toUpstream(await promise, hosted.task, id);
      return answer.kind === 'result' ? [answer.result] : [];
    });
    const tasks = (await Promise.all(states)).flat();
    ask.answer({ kind: 'result', result: `{"tasks":${arrayText(tasks)}}` });
  }

  /** A client tells how its task stands: the upstream that it is for hears of it. */
  onStatus(client: Client & ConnectionHolder, params: RawObject): void {
    const task = params.string('taskId');
    for (const link of client.links.values()) {
      for (const [id, hosted] of this.#hosted.get(link) ?? []) {
        if (hosted.client !== client || hosted.task !== task) continue;
        link.connection.notify('notifications/tasks/status', params.with('taskId', JSON.stringify(id)));
      }
    }
  }

  #of(link: HolderLink): Map<string, HostedTask> {
    const known = this.#hosted.get(link) ?? new Map<string, HostedTask>();
    this.#hosted.set(link, known);
    return known;
  }
}

function requestAbout(
  link: HolderLink,
  { client, task }: HostedTask,
  { method, params, onWithdrawn }: Pick<ServerRequest<Exchange>, 'method' | 'params' | 'onWithdrawn'>,
  answer: (answer: Answer) => void,
): void {
  const told = params.with('taskId', JSON.stringify(task));
  client.ask({ upstream: link.upstream, method, params: told, answer, onProgress: undefined, onWithdrawn }, undefined);
}

/** The client's answer with the id that the upstream knows. */
function toUpstream(answer: Answer, task: string, id: string): Answer {
  if (answer.kind === 'error') return answer;
  let result = RawObject.parse(answer.result);
  if (result.string('taskId') === task) result = result.with('taskId', JSON.stringify(id));
  if (relatedTask(result) !== undefined) result = withRelatedTask(result, id);
  return { kind: 'result', result: result.toString() };
}
