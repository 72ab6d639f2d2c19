import { Cleanups } from '../cleanups.ts';
import type { Config, RedisConfig } from '../../config/values/config.ts';
import { addressText } from '../../config/schema/address.ts';
import type { LimitName } from '../../limits.ts';
import { makeStateDir } from '../../store/disk/state-file.ts';
import type { State } from '../../store/open-state.ts';
import type { PlacementKey } from '../../store/placement-table.ts';
import type { RedisAccess } from '../../store/redis/access.ts';
import { RedisApiKeyStore } from '../../store/redis/api-key-store.ts';
import { RedisConnection } from '../../store/redis/connection.ts';
import { redisCounterTable } from '../../store/redis/counter-table.ts';
import { RedisEventStore } from '../../store/redis/event-store.ts';
import { redisKeyedCallStore } from '../../store/redis/keyed-call-store.ts';
import { redisKeyStore } from '../../store/redis/key-store.ts';
import { redisKeys } from '../../store/redis/keys.ts';
import { redisOfferStore } from '../../store/redis/offer-store.ts';
import { redisOutcomeStore } from '../../store/redis/outcome-store.ts';
import { redisPlacementTable } from '../../store/redis/placement-table.ts';
import { KEYS_ADVICE, SealedBox } from '../../store/redis/sealed-box.ts';
import { RedisRateTable } from '../../store/redis/rate-table.ts';
import { RedisSessionStore } from '../../store/redis/session-store.ts';
import { checkRedis } from '../../store/redis/start-checks.ts';
import { redisTasks } from '../../store/redis/task-store.ts';
import { sharedTaskStore } from '../../store/memory/shared-task-store.ts';
import type { SessionRef } from '../../store/session-store.ts';
import { logRedisTrouble } from './redis-trouble.ts';
import { joinReplicas, type Replicas, type ReplicaSurroundings, type SharedPlace } from './replicas.ts';

/** A replica that does not renew its lease for this long has lost its sessions. */
const LEASE_MS = 5_000;
/** The units that a dead replica has counted are free after this time. */
const COUNTER_LEASE_MS = 30_000;

/**
 * Connects to Redis, opens the stores in it, and joins the other replicas.
 *
 * @throws {StartError} if Redis or the internal address cannot be used.
 */
export async function openRedisReplicas(
  { redis, stateDir, sessions: limits }: Pick<Config, 'stateDir' | 'sessions'> & { readonly redis: RedisConfig },
  surroundings: ReplicaSurroundings,
): Promise<Replicas> {
  const { metrics, log } = surroundings;
  // For the command line. A replica works without it.
  await makeStateDir(stateDir).catch((thrown: unknown) => log.warn({ err: thrown, stateDir }, 'no state directory'));
  await using cleanups = new Cleanups();
  const connection = cleanups.use(
    await RedisConnection.open(redis, { onCommandFailed: (reason) => metrics.countRedisFailure(reason) }),
  );
  cleanups.use(logRedisTrouble(() => connection.failure, log));
  const keys = redisKeys(redis.prefix);
  connection.bePatient();
  await checkRedis(connection, keys, () => Date.now());
  const access: RedisAccess = { connection, keys, box: new SealedBox(redis.wrappingKeys) };
  const ring = redisKeyStore(access);
  await ring.reseal();
  const apiKeys = new RedisApiKeyStore(access);
  // They can be read all the same, or their reading says why not.
  await apiKeys.reseal().catch((thrown: unknown) => log.warn({ err: thrown }, 'API keys were not encrypted again'));

  const onLimit = (limit: LimitName) => metrics.countLimit(limit);
  const host = connection.localHost ?? '127.0.0.1';
  const placements = redisPlacementTable(access, LEASE_MS);
  const place: SharedPlace = {
    kind: 'replica',
    listen: redis.internal ?? { host, port: 0 },
    addressOf: (port) => addressText(redis.advertise ?? { host, port }),
    keys: ring,
    placements,
    counters: redisCounterTable(access, COUNTER_LEASE_MS),
    rates: new RedisRateTable(access),
    apiKeys,
    storesOf: (owners) => {
      metrics.onScrape('redisDown', () => (connection.failure === undefined ? 0 : 1));
      metrics.onScrape('replicas', () => owners.others.length + 1);
      const parts = { ...access, fenceOf: (session: SessionRef) => owners.fenceOf(session), onLimit };
      const recheck = (session: SessionRef) => owners.recheck(session);
      const revokedText = (key: PlacementKey) => placements.revokedText(key);
      const sessions = new RedisSessionStore({ ...parts, onFenced: recheck, revokedText });
      const { eventLimit, eventLimitBytes } = limits;
      const events = new RedisEventStore({
        ...parts,
        process: owners.name,
        isAlive: (name) => owners.isAlive(name),
        limits: { events: eventLimit, bytes: eventLimitBytes },
        onError: (thrown) => log.error({ err: thrown }, 'stored events of all sessions cannot be counted'),
      });
      const state: State = {
        keys: ring,
        sessions,
        offers: redisOfferStore(access, onLimit),
        tasks: sharedTaskStore(redisTasks(access, onLimit), onLimit),
        keyedCalls: redisKeyedCallStore(access, onLimit),
        outcomes: redisOutcomeStore(access, onLimit),
        notice: undefined,
        servesWithout: true,
        [Symbol.asyncDispose]: async () => {
          await events[Symbol.asyncDispose]();
          await sessions[Symbol.asyncDispose]();
        },
      };
      return {
        state,
        events: redis.events ? { store: events, onRefused: (session) => void recheck(session) } : undefined,
      };
    },
    onUnreadable: (other) =>
      log.error(
        { process: other, advice: KEYS_ADVICE },
        'another replica encrypts with a wrapping key that this one lacks; requests for its sessions get 503 here',
      ),
    onSharedAddress: (address) =>
      log.error(
        { address },
        'several replicas have this address, so requests and questions for one reach another; give each its own redis.advertise',
      ),
    onServing: () => connection.endPatience(),
  };
  return await joinReplicas(place, surroundings, cleanups);
}
