import { detach, KeptMap } from '../../json/kept-text.ts';
import { LIMITS } from '../../limits.ts';
import type { KnownTask, OnTaskLimit, TaskAddress, TaskStore } from '../task-store.ts';

/** Memory of a task besides its texts, as an estimate. */
const TASK_BYTES = 512;
/** A character of a text takes up to two bytes. */
const CHAR_BYTES = 2;

export class MemoryTaskStore implements TaskStore {
  /** By client, then by address. */
  readonly #tasks = new Map<string, KeptMap<KnownTask>>();
  readonly #onLimit: OnTaskLimit;
  #bytes = 0;

  /** @param onLimit called when a bound removes a task. */
  constructor(onLimit: OnTaskLimit) {
    this.#onLimit = onLimit;
  }

  find(client: string, address: TaskAddress): KnownTask | undefined {
    return this.#tasks.get(client)?.get(keyOf(address));
  }

  async list(client: string): Promise<readonly KnownTask[]> {
    return [...(this.#tasks.get(client)?.values() ?? [])];
  }

  async add(client: string, { upstream, task, holder, run, id }: KnownTask): Promise<void> {
    const known = { upstream, task: detach(task), holder: detach(holder), run: detach(run), id: detach(id) };
    const tasks = this.#tasks.get(client) ?? new KeptMap<KnownTask>();
    // Moved to the end, so that the client that added nothing for longest is removed first.
    this.#tasks.delete(client);
    this.#tasks.set(client, tasks);
    const key = detach(keyOf(known));
    const before = tasks.get(key);
    if (before !== undefined) this.#bytes -= bytesOf(before);
    tasks.set(key, known);
    this.#bytes += bytesOf(known);
    if (tasks.size > LIMITS.knownTasksPerClient) this.#removeOldest(client, 'knownTasksPerClient');
    while (this.#bytes > LIMITS.knownTasksBytes && this.#tasks.size > 0) {
      this.#removeOldest(undefined, 'knownTasksBytes');
    }
  }

  /** @param client undefined for the client that added nothing for longest. */
  #removeOldest(client: string | undefined, limit: Parameters<OnTaskLimit>[0]): void {
    const [owner = ''] = client === undefined ? this.#tasks.keys() : [client];
    const [oldest] = this.#tasks.get(owner)?.values() ?? [];
    if (oldest === undefined) return;
    this.#onLimit(limit);
    this.#remove(owner, oldest);
  }

  #remove(client: string, address: TaskAddress): void {
    const tasks = this.#tasks.get(client);
    const known = tasks?.get(keyOf(address));
    if (tasks === undefined || known === undefined) return;
    tasks.delete(keyOf(address));
    this.#bytes -= bytesOf(known);
    if (tasks.size === 0) this.#tasks.delete(client);
  }

  async remove(client: string, address: TaskAddress): Promise<void> {
    this.#remove(client, address);
  }
}

function keyOf({ upstream, task, holder, run }: TaskAddress): string {
  return JSON.stringify([upstream, holder, run, task]);
}

function bytesOf(known: KnownTask): number {
  const { task, holder, run, id } = known;
  return TASK_BYTES + CHAR_BYTES * (keyOf(known).length + task.length + holder.length + run.length + id.length);
}
