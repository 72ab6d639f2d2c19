import { detach, KeptMap } from '../../json/kept-text.ts';
import type { KnownTask, TaskAddress, TaskStore } from '../task-store.ts';

/** Tasks kept for one client. The oldest one beyond this is not announced any more, but can still be queried. */
const MAX_TASKS = 256;
/** Clients whose tasks are kept. */
const MAX_CLIENTS = 4_096;

/** Stores tasks in memory. */
export class MemoryTaskStore implements TaskStore {
  /** By client, then by address. */
  readonly #tasks = new Map<string, KeptMap<KnownTask>>();

  find(client: string, address: TaskAddress): KnownTask | undefined {
    return this.#tasks.get(client)?.get(keyOf(address));
  }

  async list(client: string): Promise<readonly KnownTask[]> {
    return [...(this.#tasks.get(client)?.values() ?? [])];
  }

  async add(client: string, { upstream, task, holder, id }: KnownTask): Promise<void> {
    const known = { upstream, task: detach(task), holder: detach(holder), id: detach(id) };
    const tasks = this.#tasks.get(client) ?? new KeptMap<KnownTask>();
    // Moved to the end, so that the client that added nothing for longest is removed first.
    this.#tasks.delete(client);
    this.#tasks.set(client, tasks);
    tasks.set(detach(keyOf(known)), known);
    removeOldest(tasks, MAX_TASKS);
    removeOldest(this.#tasks, MAX_CLIENTS);
  }

  async remove(client: string, address: TaskAddress): Promise<void> {
    const tasks = this.#tasks.get(client);
    tasks?.delete(keyOf(address));
    if (tasks?.size === 0) this.#tasks.delete(client);
  }
}

function keyOf({ upstream, task, holder }: TaskAddress): string {
  return JSON.stringify([upstream, holder, task]);
}

function removeOldest<Value>(map: Map<string, Value> | KeptMap<Value>, limit: number): void {
  const [oldest] = map.keys();
  if (map.size > limit && oldest !== undefined) map.delete(oldest);
}
