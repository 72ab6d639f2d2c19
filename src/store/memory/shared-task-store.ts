import { GatewayError } from '../../errors.ts';
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
    return (await unlessUnavailable(this.#common.list(client))) ?? (await this.#own.list(client));
  }

  async add(client: string, task: KnownTask): Promise<void> {
    await this.#own.add(client, task);
    await unlessUnavailable(this.#common.add(client, task));
  }

  async remove(client: string, address: TaskAddress): Promise<void> {
    await this.#own.remove(client, address);
    await unlessUnavailable(this.#common.remove(client, address));
  }
}

/** Resolves with undefined if the store cannot be used. */
async function unlessUnavailable<T>(reply: Promise<T>): Promise<T | undefined> {
  try {
    return await reply;
  } catch (thrown) {
    if (thrown instanceof GatewayError) return undefined;
    throw thrown;
  }
}
