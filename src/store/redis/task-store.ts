import { z } from 'zod';
import { MemoryTaskStore } from '../memory/task-store.ts';
import { LIMITS } from '../../limits.ts';
import {
  type KnownTask,
  type OnTaskLimit,
  type TaskAddress,
  type TaskStore,
  unlessUnavailable,
} from '../task-store.ts';
import type { RedisAccess } from './access.ts';
import { scriptOf } from './connection.ts';
import { hashOf } from '../placement-table.ts';

const KEPT_MS = 30 * 24 * 3_600_000;

/** Adds a task at the end, or replaces it in its place. Removes the oldest ones that are too many, and returns their number if it is positive. */
const ADD = scriptOf(`
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
local time = redis.call('TIME')
redis.call('ZADD', KEYS[2], 'NX', time[1] * 1000000 + time[2], ARGV[1])
local excess = redis.call('ZCARD', KEYS[2]) - ARGV[3]
for n = 1, excess do redis.call('HDEL', KEYS[1], redis.call('ZPOPMIN', KEYS[2])[1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return excess`);

const LIST = scriptOf(`
local reply = {}
for _, field in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  reply[#reply + 1] = field
  reply[#reply + 1] = redis.call('HGET', KEYS[1], field)
end
return reply`);

const REMOVE = scriptOf(`
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])`);

const REPLY = z.array(z.string());
const TASK = z.object({ upstream: z.string(), task: z.string(), holder: z.string(), id: z.string() });

/**
 * Stores tasks in Redis, so that a client lists them at every replica. Never fails for lack of Redis: a task that could not be stored is listed by this
 * process only.
 */
export class RedisTaskStore implements TaskStore {
  readonly #redis: RedisAccess;
  readonly #onLimit: OnTaskLimit;
  /** The tasks that this process has added. */
  readonly #own: MemoryTaskStore;

  /** @param onLimit called when a bound removes a task, for all replicas or in this process. */
  constructor(redis: RedisAccess, onLimit: OnTaskLimit) {
    this.#onLimit = onLimit;
    // The bound for each client holds in Redis.
    this.#own = new MemoryTaskStore((limit) => {
      if (limit !== 'knownTasksPerClient') onLimit(limit);
    });
    this.#redis = redis;
  }

  find(client: string, address: TaskAddress): KnownTask | undefined {
    return this.#own.find(client, address);
  }

  async list(client: string): Promise<readonly KnownTask[]> {
    const entries = this.#redis.keys.tasks(client);
    const reply = await unlessUnavailable(this.#redis.connection.run(LIST, entries, []));
    if (reply === undefined) return await this.#own.list(client);
    const texts = REPLY.parse(reply);
    const tasks: KnownTask[] = [];
    for (let i = 0; i + 1 < texts.length; i += 2) {
      const [field = '', sealed = ''] = texts.slice(i, i + 2);
      const text = this.#redis.box.open(`${entries[0]} ${field}`, sealed);
      if (text !== undefined) tasks.push(TASK.parse(JSON.parse(text)));
    }
    return tasks;
  }

  async add(client: string, known: KnownTask): Promise<void> {
    await this.#own.add(client, known);
    const entries = this.#redis.keys.tasks(client);
    const field = fieldOf(known);
    const { upstream, task, holder, id } = known;
    const sealed = this.#redis.box.seal(`${entries[0]} ${field}`, JSON.stringify({ upstream, task, holder, id }));
    const adding = this.#redis.connection.run(ADD, entries, [field, sealed, LIMITS.knownTasksPerClient, KEPT_MS]);
    const excess = await unlessUnavailable(adding);
    if (typeof excess === 'number' && excess > 0) this.#onLimit('knownTasksPerClient');
  }

  async remove(client: string, address: TaskAddress): Promise<void> {
    await this.#own.remove(client, address);
    await unlessUnavailable(this.#redis.connection.run(REMOVE, this.#redis.keys.tasks(client), [fieldOf(address)]));
  }
}

function fieldOf({ upstream, holder, task }: TaskAddress): string {
  return hashOf([upstream, holder, task]);
}
