import { GatewayError } from '../../errors.ts';
import { expected } from '../../thrown.ts';
import { MemoryTaskStore } from './task-store.ts';
import type { KnownTask, OnTaskLimit, TaskAddress, TaskStore } from '../task-store.ts';

/** The part of a task store that all processes have in common. */
export type CommonTasks = Omit<TaskStore, 'find'>;

/**
 * Stores tasks so that a client lists them at every process. Never fails for lack of the common part: a task that could not be stored there
 * is listed by this process only.
 */
export class SharedTaskStore implements TaskStore {
  readonly #common: CommonTasks;
  /** The tasks that this process has added. */
  readonly #own: MemoryTaskStore;

  /** @param onLimit called when a bound removes a task of this process. The bound for each client holds in the common part, which reports it. */
  constructor(common: CommonTasks, onLimit: OnTaskLimit) {
    this.#common = common;
    this.#own = new MemoryTaskStore((limit) => {
      if (limit !== 'knownTasksPerClient') onLimit(limit);
    });
  }

  find(client: string, address: TaskAddress): KnownTask | undefined {
    return this.#own.find(client, address);
  }

  async list(client: string): Promise<readonly KnownTask[]> {
    const tasks = await this.#common.list(client).catch(expected(GatewayError));
    return tasks instanceof GatewayError ? await this.#own.list(client) : tasks;
  }

  async add(client: string, task: KnownTask): Promise<void> {
    await this.#own.add(client, task);
    await this.#common.add(client, task).catch(expected(GatewayError));
  }

  async remove(client: string, address: TaskAddress): Promise<void> {
    await this.#own.remove(client, address);
    await this.#common.remove(client, address).catch(expected(GatewayError));
  }
}
