/**
 * Work that outlives the request it began with: tasks of 2025-11-25, and the extension that took their place in 2026-07-28. In
 * the first the client says that it wants one, in the second the server decides.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
 * @see https://github.com/modelcontextprotocol/ext-tasks
 */

import { isObjectText, RawObject } from '../json/json.ts';
import type { RpcError } from './jsonrpc.ts';
import { META } from './meta.ts';

/** Name of the extension. */
export const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks';

/** Methods of either era that are about tasks. */
export const TASK_METHODS: ReadonlySet<string> = new Set([
  'tasks/get',
  'tasks/result',
  'tasks/list',
  'tasks/update',
  'tasks/cancel',
]);

const ENDS = new Set(['completed', 'failed', 'cancelled']);

/** Whether a task of this status stays as it is. */
export function isEnd(status: string | undefined): boolean {
  return status !== undefined && ENDS.has(status);
}

/** Whether whoever has these capabilities knows the extension. */
export function declaresTasks(capabilities: RawObject): boolean {
  return isObjectText(capabilities.object('extensions')?.raw(TASKS_EXTENSION));
}

/** These capabilities and the extension. */
export function withTasks(capabilities: RawObject): RawObject {
  const extensions = capabilities.object('extensions') ?? RawObject.EMPTY;
  return capabilities.with('extensions', extensions.with(TASKS_EXTENSION, '{}').toString());
}

/** Whether a server of 2025-11-25 runs tools as tasks. */
export function runsTasks(capabilities: RawObject): boolean {
  return isObjectText(capabilities.object('tasks')?.object('requests')?.object('tools')?.raw('call'));
}

/** Whether a client of 2025-11-25 may answer this question by a task. */
export function hostsTask(capabilities: RawObject, method: string): boolean {
  const [group = '', name = ''] = method.split('/');
  return isObjectText(capabilities.object('tasks')?.object('requests')?.object(group)?.raw(name));
}

/** Whether a tool of 2025-11-25 runs as a task only. */
export function mustBeTask(tool: RawObject): boolean {
  return tool.object('execution')?.string('taskSupport') === 'required';
}

/** A state of a task of 2025-11-25, in the extension's words. What only its status says is for the caller to add. */
export function raiseTask(task: RawObject): RawObject {
  return task
    .with('ttl', undefined)
    .with('pollInterval', undefined)
    .with('ttlMs', task.raw('ttl') ?? 'null')
    .with('pollIntervalMs', task.raw('pollInterval'));
}

/** How long to wait before the state is asked for again, in milliseconds; undefined where the server does not say. */
export function pollIntervalMs(task: RawObject): number | undefined {
  const ms = Number(task.raw('pollIntervalMs') ?? task.raw('pollInterval'));
  return Number.isFinite(ms) && ms >= 0 ? ms : undefined;
}

/** The task that a message of 2025-11-25 says it belongs to. */
export function relatedTask(message: RawObject): string | undefined {
  return message.object('_meta')?.object(META.relatedTask)?.string('taskId');
}

/** The message as one that belongs to this task. */
export function withRelatedTask(message: RawObject, taskId: string): RawObject {
  const meta = message.object('_meta') ?? RawObject.EMPTY;
  return message.with('_meta', meta.with(META.relatedTask, JSON.stringify({ taskId })).toString());
}

/** The error that a failed task of the extension came to. */
export function errorOf(task: RawObject): RpcError {
  const error = task.object('error');
  const code = Number(error?.raw('code'));
  const message = error?.string('message') ?? task.string('statusMessage') ?? 'the task failed';
  const data = error?.value('data');
  return { code: Number.isInteger(code) ? code : -32603, message, ...(data === undefined ? {} : { data }) };
}
