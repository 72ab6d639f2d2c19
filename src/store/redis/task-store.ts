import { z } from 'zod';
import { LIMITS } from '../../limits.ts';
import type { CommonTasks } from '../memory/shared-task-store.ts';
import type { OnTaskLimit, TaskAddress } from '../task-store.ts';
import { HASH_REPLY, type RedisAccess } from './access.ts';
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

const TASK = z.object({
  upstream: z.string(),
  task: z.string(),
  holder: z.string(),
  // Older entries have none.
  run: z.string().default(''),
  id: z.string(),
});

/** @param onLimit called when the bound for each client removes a task. */
export function redisTasks({ connection, keys, box }: RedisAccess, onLimit: OnTaskLimit): CommonTasks {
  return {
    list: async (client) => {
      const entries = keys.tasks(client);
      return HASH_REPLY.parse(await connection.run(LIST, entries, [])).flatMap(([field, sealed]) => {
        const text = box.open(`${entries[0]} ${field}`, sealed);
        return text === undefined ? [] : [TASK.parse(JSON.parse(text))];
      });
    },
    add: async (client, known) => {
      const entries = keys.tasks(client);
      const field = fieldOf(known);
      const { upstream, task, holder, run, id } = known;
      const sealed = box.seal(`${entries[0]} ${field}`, JSON.stringify({ upstream, task, holder, run, id }));
      const excess = await connection.run(ADD, entries, [field, sealed, LIMITS.knownTasksPerClient, KEPT_MS]);
      if (Number(excess) > 0) onLimit('knownTasksPerClient');
    },
    remove: async (client, address) => {
      await connection.run(REMOVE, keys.tasks(client), [fieldOf(address)]);
    },
  };
}

function fieldOf({ upstream, holder, run, task }: TaskAddress): string {
  return hashOf([upstream, holder, run, task]);
}
