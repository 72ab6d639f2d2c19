import { MemoryTaskStore } from '../memory/task-store.ts';
import { type KnownTask, type TaskAddress, type TaskStore, unlessUnavailable } from '../task-store.ts';
import { STORES } from './methods.ts';
import type { PipeCalls } from './pipe-calls.ts';
import { remoteStore } from './remote-store.ts';

/** The task store of the parent, so that a client lists its tasks at every worker. A task that could not be stored there is listed by this process only. */
export class PipedTaskStore implements TaskStore {
  readonly #parent: Omit<TaskStore, 'find'>;
  /** The tasks that this process has added. The parent counts the bounds. */
  readonly #own = new MemoryTaskStore(() => undefined);

  constructor(calls: PipeCalls) {
    this.#parent = remoteStore(calls, STORES.tasks);
  }

  find(client: string, address: TaskAddress): KnownTask | undefined {
    return this.#own.find(client, address);
  }

  async list(client: string): Promise<readonly KnownTask[]> {
    return (await unlessUnavailable(this.#parent.list(client))) ?? (await this.#own.list(client));
  }

  async add(client: string, task: KnownTask): Promise<void> {
    await this.#own.add(client, task);
    await unlessUnavailable(this.#parent.add(client, task));
  }

  async remove(client: string, address: TaskAddress): Promise<void> {
    await this.#own.remove(client, address);
    await unlessUnavailable(this.#parent.remove(client, address));
  }
}
