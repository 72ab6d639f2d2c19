/**
 * Reads and writes tasks, which outlive the request that created them: tasks of 2025-11-25, and the extension that
 * replaced them in 2026-07-28. In 2025-11-25 the client asks for a task; in the extension the server decides.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
 * @see https://github.com/modelcontextprotocol/ext-tasks
 */

import { isObjectText, RawObject } from '../json/json.ts';
import { withoutHiddenQuestions } from './input-required.ts';
import type { RpcError } from './jsonrpc.ts';
import { META, withoutCoreTaskMeta } from './meta.ts';
import { RPC } from './rpc-codes.ts';

export const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks';

const TERMINAL = new Set(['completed', 'failed', 'cancelled']);

/** Returns whether the status is terminal: the task does not change any more. */
export function isTerminal(status: string | undefined): boolean {
  return status !== undefined && TERMINAL.has(status);
}

/** Returns whether a server that answers `tasks/get` with this error does not know the task. */
export function isUnknownTask({ code }: RpcError): boolean {
  return code === RPC.invalidParams || code === RPC.resourceNotFound;
}

export function declaresTasks(capabilities: RawObject): boolean {
  return isObjectText(capabilities.object('extensions')?.raw(TASKS_EXTENSION));
}

export function withTasks(capabilities: RawObject): RawObject {
  const extensions = capabilities.object('extensions') ?? RawObject.EMPTY;
  return capabilities.with('extensions', extensions.with(TASKS_EXTENSION, '{}').toString());
}

/** Returns whether a server of 2025-11-25 can run tool calls as tasks. */
export function supportsToolTasks(capabilities: RawObject): boolean {
  return isObjectText(capabilities.object('tasks')?.object('requests')?.object('tools')?.raw('call'));
}

/** Returns whether a client of 2025-11-25 may answer this server request with a task. */
export function supportsClientTask(capabilities: RawObject, method: string): boolean {
  const [group = '', name = ''] = method.split('/');
  return isObjectText(capabilities.object('tasks')?.object('requests')?.object(group)?.raw(name));
}

/** Returns whether a tool of 2025-11-25 can only be called as a task. */
export function requiresTask(tool: RawObject): boolean {
  return tool.object('execution')?.string('taskSupport') === 'required';
}

export function withoutTaskSupport(tool: RawObject): RawObject {
  const execution = tool.object('execution');
  if (execution?.raw('taskSupport') === undefined) return tool;
  const kept = execution.with('taskSupport', undefined);
  return tool.with('execution', kept.size === 0 ? undefined : kept.toString());
}

/** Returns the state of a task as the answer to its call has it. The members that depend on the status are for `tasks/get`. */
export function createdState(task: RawObject): RawObject {
  return task.without(['inputRequests', 'requestState', 'result', 'error']);
}

/**
 * Translates the state of a 2025-11-25 task to the extension. The caller adds the members that depend on the status
 * (result, error, input requests).
 */
export function upgradeTask(task: RawObject): RawObject {
  return withoutHiddenQuestions(createdState(task))
    .with('ttl', undefined)
    .with('pollInterval', undefined)
    .with('ttlMs', task.raw('ttl') ?? 'null')
    .with('pollIntervalMs', task.raw('pollInterval'));
}

/** Translates the result of 2025-11-25 that has the state of a new task. It keeps no members but `_meta`: others could be questions there. */
export function upgradeCreatedTask(created: RawObject, state: RawObject): RawObject {
  const meta = withoutCoreTaskMeta(created).raw('_meta') ?? state.raw('_meta');
  return upgradeTask(state).with('_meta', meta).with('resultType', '"task"');
}

/** Returns the server's poll interval in milliseconds, or undefined if it sends none. */
export function pollIntervalMs(task: RawObject): number | undefined {
  const ms = Number(task.raw('pollIntervalMs') ?? task.raw('pollInterval'));
  return Number.isFinite(ms) && ms >= 0 ? ms : undefined;
}

/** Returns the id of the task that a message of 2025-11-25 belongs to. */
export function relatedTask(message: RawObject): string | undefined {
  return message.object('_meta')?.object(META.relatedTask)?.string('taskId');
}

export function withRelatedTask(message: RawObject, taskId: string): RawObject {
  const meta = message.object('_meta') ?? RawObject.EMPTY;
  return message.with('_meta', meta.with(META.relatedTask, JSON.stringify({ taskId })).toString());
}

/** Returns the error of a failed task of the extension. */
export function taskError(task: RawObject): RpcError {
  const error = task.object('error');
  const code = Number(error?.raw('code'));
  const message = error?.string('message') ?? task.string('statusMessage') ?? 'the task failed';
  const data = error?.value('data');
  return { code: Number.isInteger(code) ? code : RPC.internalError, message, ...(data === undefined ? {} : { data }) };
}
