import type { RawObject } from '../../src/json/json.ts';
import type { Request } from '../../src/protocol/jsonrpc.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result } from './memory-upstream.ts';

/** A task of a scripted upstream. The test changes its status. */
export interface ScriptedTask {
  readonly id: string;
  status: string;
  /** The result of `tools/call`: as `tasks/result` returns it, or `tasks/get` of the extension. */
  result: object | undefined;
  error: object | undefined;
  inputRequests: object | undefined;
  /** Answers the waiting `tasks/result` requests, if there are any. */
  flush(): void;
}

export interface TaskUpstream {
  readonly memory: MemoryUpstream;
  readonly tasks: ScriptedTask[];
}

const TIMES = { createdAt: '2026-01-01T00:00:00Z', lastUpdatedAt: '2026-01-01T00:00:00Z' };
const SCHEMA = { type: 'object' };

/** Beginning of the task ids that a client must never see. */
export const SECRET = 'inner-task';

function error(request: Request, value: object): string {
  return `{"jsonrpc":"2.0","id":${request.id},"error":${JSON.stringify(value)}}`;
}

function newTask(tasks: ScriptedTask[], flush: () => void, id = `${SECRET}-${tasks.length + 1}`): ScriptedTask {
  const task: ScriptedTask = {
    id,
    status: 'working',
    result: undefined,
    error: undefined,
    inputRequests: undefined,
    flush,
  };
  tasks.push(task);
  return task;
}

function find(tasks: readonly ScriptedTask[], params: RawObject | undefined): ScriptedTask | undefined {
  return tasks.find(({ id }) => id === params?.string('taskId'));
}

function unknown(peer: Peer, request: Request): void {
  peer.send(error(request, { code: -32602, message: `no task ${request.params?.string('taskId')}` }));
}

/**
 * A server of 2025-11-25 with the tools `job` (always a task) and `either` (a task if the client asks for one).
 *
 * @param fail returns the error of a `tasks/…` request; undefined if it succeeds.
 * @param id of its only task.
 */
export function coreTaskUpstream(
  onTask: (task: ScriptedTask, peer: Peer) => void = () => undefined,
  fail: (peer: Peer, request: Request) => object | undefined = () => undefined,
  id?: string,
): TaskUpstream {
  const tasks: ScriptedTask[] = [];
  const show = ({ id, status }: ScriptedTask) => ({ taskId: id, status, ...TIMES, ttl: 60_000, pollInterval: 10 });
  const memory = memoryUpstream({
    capabilities: { tools: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } },
    lists: {
      tools: [
        { name: 'job', inputSchema: SCHEMA, execution: { taskSupport: 'required' } },
        { name: 'either', inputSchema: SCHEMA, execution: { taskSupport: 'optional' } },
      ],
    },
    request: (peer, request) => {
      const { method, params } = request;
      if (method === 'tools/call') {
        if (params?.raw('task') === undefined) {
          if (params?.string('name') === 'either') return peer.send(result(request, { content: [], plain: true }));
          return peer.send(error(request, { code: -32601, message: 'a task only' }));
        }
        let waiting: Request[] = [];
        const task = newTask(
          tasks,
          () => {
            for (const one of waiting) ended(peer, one, task);
            waiting = [];
          },
          id,
        );
        waits.set(task, (one) => waiting.push(one));
        peer.send(result(request, { task: show(task) }));
        return onTask(task, peer);
      }
      if (!method.startsWith('tasks/')) return peer.send(result(request, {}));
      const failure = fail(peer, request);
      if (failure !== undefined) return peer.send(error(request, failure));
      const task = find(tasks, params);
      if (task === undefined) return unknown(peer, request);
      if (method === 'tasks/cancel') task.status = 'cancelled';
      if (method !== 'tasks/result') return peer.send(result(request, show(task)));
      if (task.result !== undefined || task.error !== undefined) return ended(peer, request, task);
      waits.get(task)?.(request);
    },
  });
  const waits = new Map<ScriptedTask, (request: Request) => void>();
  const ended = (peer: Peer, request: Request, task: ScriptedTask) => {
    if (task.error !== undefined) peer.send(error(request, task.error));
    else {
      const _meta = { 'io.modelcontextprotocol/related-task': { taskId: task.id } };
      peer.send(result(request, { ...task.result, _meta }));
    }
  };
  return { memory, tasks };
}

/**
 * A server of 2026-07-28 with the tasks extension. Its tool `job` creates a task for clients that declare the
 * extension, and fails for others.
 *
 * @param onGet runs with a function that answers `tasks/get` by the state of then.
 */
export function extensionUpstream(
  onTask: (task: ScriptedTask) => void = () => undefined,
  onGet: (answer: () => void) => void = (answer) => answer(),
): TaskUpstream {
  const tasks: ScriptedTask[] = [];
  const show = (task: ScriptedTask) => ({
    taskId: task.id,
    status: task.status,
    ...TIMES,
    ttlMs: 60_000,
    pollIntervalMs: 10,
    result: task.status === 'completed' ? task.result : undefined,
    error: task.status === 'failed' ? task.error : undefined,
    inputRequests: task.status === 'input_required' ? task.inputRequests : undefined,
  });
  const memory = memoryUpstream({
    isRaw: true,
    lists: { tools: [{ name: 'job', inputSchema: SCHEMA }] },
    request: (peer, request) => {
      const { method, params } = request;
      const send = (value: object) => peer.send(result(request, { resultType: 'complete', ...value }));
      if (method === 'server/discover') {
        const capabilities = { tools: {}, extensions: { 'io.modelcontextprotocol/tasks': {} } };
        return send({ supportedVersions: ['2026-07-28'], capabilities, ttlMs: 0, cacheScope: 'private' });
      }
      if (method === 'subscriptions/listen') {
        const notifications = params?.value('notifications');
        const acknowledgement = {
          _meta: { 'io.modelcontextprotocol/subscriptionId': Number(request.id) },
          notifications,
        };
        const acknowledged = 'notifications/subscriptions/acknowledged';
        peer.send(`{"jsonrpc":"2.0","method":"${acknowledged}","params":${JSON.stringify(acknowledgement)}}`);
        return;
      }
      const declared = params?.object('_meta')?.object('io.modelcontextprotocol/clientCapabilities');
      if (declared?.object('extensions')?.raw('io.modelcontextprotocol/tasks') === undefined) {
        const data = { requiredCapabilities: { extensions: { 'io.modelcontextprotocol/tasks': {} } } };
        return peer.send(error(request, { code: -32021, message: 'declare tasks', data }));
      }
      if (method === 'tools/call') {
        const task = newTask(tasks, () => undefined);
        send({ ...show(task), resultType: 'task' });
        return onTask(task);
      }
      const task = find(tasks, params);
      if (task === undefined) return unknown(peer, request);
      if (method === 'tasks/get') {
        const state = show(task);
        return onGet(() => send(state));
      }
      if (method === 'tasks/cancel') task.status = 'cancelled';
      else task.status = 'working';
      return send({});
    },
  });
  return { memory, tasks };
}
