import { GatewayError } from '../../errors.ts';
import { expected } from '../../thrown.ts';
import { MemoryTaskStore } from './task-store.ts';
import type { OnTaskLimit, TaskStore } from '../task-store.ts';

/** The part of a task store that all processes have in common. */
export type CommonTasks = Omit<TaskStore, 'find'>;

/**
 * Returns a store that lets a client list its tasks at every process. Never fails for lack of the common part: a task that could not be stored
 * there is listed by this process only.
 *
 * @param onLimit called when a bound removes a task of this process. The bound for each client holds in the common part, which reports it.
 */
export function sharedTaskStore(common: CommonTasks, onLimit: OnTaskLimit): TaskStore {
  /** The tasks that this process has added. */
  const own = new MemoryTaskStore((limit) => {
    if (limit !== 'knownTasksPerClient') onLimit(limit);
  });
  return {
    find: (client, address) => own.find(client, address),
    list: async (client) => {
      const tasks = await common.list(client).catch(expected(GatewayError));
      return tasks instanceof GatewayError ? await own.list(client) : tasks;
    },
    add: async (client, task) => {
      await own.add(client, task);
      await common.add(client, task).catch(expected(GatewayError));
    },
    remove: async (client, address) => {
      await own.remove(client, address);
      await common.remove(client, address).catch(expected(GatewayError));
    },
  };
}
