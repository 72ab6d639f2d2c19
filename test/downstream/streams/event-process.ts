import { randomUUID } from 'node:crypto';
import type { RedisConfig } from '../../../src/config/values/config.ts';
import { ByteBudget } from '../../../src/downstream/memory/byte-budget.ts';
import type { EventLog, OpenEventLog } from '../../../src/downstream/streams/event-log.ts';
import { type EventLimits, memoryEventLogs } from '../../../src/downstream/streams/memory-event-log.ts';
import { storedEventLogs, type StoredEventLogsParts } from '../../../src/downstream/streams/stored-event-log.ts';
import type { EventChange, EventStore } from '../../../src/store/event-store.ts';
import { RedisEventStore, type RedisEventStoreParts } from '../../../src/store/redis/event-store.ts';
import type { SessionRef } from '../../../src/store/session-store.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { openRedis } from '../../support/redis.ts';
import type { eventSession } from './event-log.contract.ts';

const PLENTY = { totalBytes: 1_000_000_000, principalBytes: 1_000_000_000 };
const MEMORY: EventLimits = { events: 1_000, bytes: 100_000_000 };

/** One process with an event log in Redis. */
export class EventProcess {
  readonly limits: string[] = [];
  readonly refused: SessionRef[] = [];
  readonly errors: unknown[] = [];
  readonly writes: (readonly EventChange[])[] = [];
  /** Runs before each write, and may make it fail. */
  beforeWrite: () => Promise<void> = async () => undefined;
  readonly logs: OpenEventLog;
  readonly #logs: (waitMs: number) => OpenEventLog;
  readonly store: RedisEventStore;
  readonly connection;
  readonly keys;
  readonly name = randomUUID();
  /** Its placement of all sessions. */
  fence = `${this.name}/1`;
  /** The other processes that this one knows. */
  readonly alive = new Set<string>();

  private constructor(
    { connection, keys, box }: Awaited<ReturnType<typeof openRedis>>,
    limits: Partial<RedisEventStoreParts['limits']>,
    memory: EventLimits,
  ) {
    this.connection = connection;
    this.keys = keys;
    const onLimit = (limit: string) => this.limits.push(limit);
    this.store = new RedisEventStore({
      connection,
      keys,
      box,
      fenceOf: () => this.fence,
      process: this.name,
      isAlive: async (name) => this.alive.has(name),
      limits: { events: 100, bytes: 8_000_000, ...limits },
      onLimit,
      onError: (thrown) => {
        throw thrown;
      },
    });
    const store: EventStore = {
      write: async (session, changes) => {
        this.writes.push(changes);
        await this.beforeWrite();
        return await this.store.write(session, changes);
      },
      writerOf: (session) => this.store.writerOf(session),
      read: (session, stream) => this.store.read(session, stream),
      take: (session, stream, writer) => this.store.take(session, stream, writer),
    };
    const parts: StoredEventLogsParts = {
      openInMemory: memoryEventLogs(memory, new ByteBudget(PLENTY, () => undefined)),
      store,
      onLimit,
      onRefused: (session) => this.refused.push(session),
      onError: (thrown) => this.errors.push(thrown),
    };
    this.#logs = (waitMs) => storedEventLogs({ ...parts, waitMs });
    this.logs = this.#logs(PATIENCE_MS);
  }

  static async start(
    config: RedisConfig,
    limits: Partial<RedisEventStoreParts['limits']> = {},
    memory = MEMORY,
  ): Promise<EventProcess> {
    return new EventProcess(await openRedis(config), limits, memory);
  }

  /** Opens the log of a session, which belongs to this process from then on. @param waitMs the longest wait of a client that resumes a stream. */
  async open(session: ReturnType<typeof eventSession>, waitMs?: number): Promise<EventLog> {
    await this.claim(session.ref);
    const logs = waitMs === undefined ? this.logs : this.#logs(waitMs);
    return logs(session, () => undefined);
  }

  async claim(session: SessionRef): Promise<void> {
    await this.connection.command('SET', this.keys.session(session).placement, this.fence);
  }
}
