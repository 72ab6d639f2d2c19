import { z } from 'zod';
import { GatewayError } from '../../errors.ts';
import { LIMITS } from '../../limits.ts';
import type { EventChange, EventStore, OnEventLimit, StoredStream } from '../event-store.ts';
import type { Fencing, SessionRef } from '../session-store.ts';
import type { RedisAccess } from './access.ts';
import { ACCOUNT_EVENTS, READ_EVENTS, SHED_EVENTS, TAKE_EVENTS, WRITE_EVENTS } from './scripts/event-scripts.ts';
import { hashOf } from '../placement-table.ts';

/** The interval at which the bytes of a principal are reported to the sum of all. The sum can be exceeded by what is written meanwhile. */
const ACCOUNT_MS = 1_000;
/** Principals that one report makes room at. */
const MAX_VICTIMS = 16;

const WRITTEN = z.tuple([z.array(z.string()), z.int(), z.int(), z.int()]);
const READ = z.union([z.tuple([]), z.tuple([z.string(), z.array(z.string())])]);
const DESCRIPTION = /^(?<endless>\d):\d+:\d+:\d+:(?<added>\d+):(?<last>\d*):(?<writer>.*)$/;
const EVENT = /^(\d+):(.*)$/;
const SHED = z.tuple([z.int(), z.int()]);
const OVER = z.union([z.tuple([]), z.tuple([z.string(), z.int()])]);

export interface RedisEventStoreParts extends RedisAccess, Pick<Fencing, 'fenceOf'> {
  /** The name of this process; see `Owners.name`. */
  readonly process: string;
  /** Returns whether another process of this name has a lease. Asks for one that is not known, since it may have joined just now. */
  readonly isAlive: (process: string) => Promise<boolean>;
  /**
   * Greatest number and size of the events of one session. Of a principal and of all, they are the limits of the gateway unless a test sets
   * others.
   */
  readonly limits: {
    readonly events: number;
    readonly bytes: number;
    readonly principalBytes?: number;
    readonly totalBytes?: number;
  };
  readonly onLimit: OnEventLimit;
  /** Called if Redis refuses what keeps the events of all within their bytes. */
  readonly onError: (thrown: unknown) => void;
}

/** The events of a principal. */
interface Share {
  readonly bytes: number;
  /** Ms of the clock of Redis. */
  readonly untilMs: number;
}

/** Keeps events in Redis, encrypted. All events of a principal are in the slot of its placements. */
export class RedisEventStore implements EventStore, AsyncDisposable {
  readonly #parts: RedisEventStoreParts;
  /** Principals whose bytes have changed since the last report. */
  readonly #unreported = new Map<string, Share>();
  #timer: NodeJS.Timeout | undefined;
  #reporting: Promise<void> | undefined;

  constructor(parts: RedisEventStoreParts) {
    this.#parts = parts;
  }

  writerOf(session: SessionRef): string | undefined {
    return this.#parts.fenceOf(session) === undefined ? undefined : this.#parts.process;
  }

  async write(session: SessionRef, changes: readonly EventChange[]): Promise<ReadonlySet<string>> {
    const { connection, keys, fenceOf, limits, onLimit } = this.#parts;
    const { index, sizes, ends } = keys.events(session);
    const { placement } = keys.session(session);
    const { principalBytes: most = LIMITS.storedEventBytesPerPrincipal } = limits;
    const bounds = [limits.events, Math.min(limits.bytes, most), most];
    const args = changes.flatMap((change) => this.#argsOf(index, change));
    const head = [fenceOf(session) ?? '', session.serial, session.expiresMs, ...bounds];
    const reply = await connection.run(WRITE_EVENTS, [placement, index, sizes, ends], [...head, ...args]);
    const [refused, dropped, bytes, untilMs] = WRITTEN.parse(reply);
    if (dropped > 0) onLimit('storedEventBytesPerPrincipal');
    this.#report(hashOf([session.principal]), { bytes, untilMs });
    return new Set(refused);
  }

  #argsOf(index: string, change: EventChange): (string | number)[] {
    const { kind, stream, writer } = change;
    switch (change.kind) {
      case 'open':
        return [kind, stream, writer, change.isEndless ? 1 : 0];
      case 'add':
        return [
          kind,
          stream,
          writer,
          change.seq,
          this.#parts.box.seal(entryOf(index, stream, change.seq), change.text),
          change.reopen === undefined ? '' : change.reopen === 'endless' ? 1 : 0,
        ];
      case 'finish':
        return [kind, stream, writer, change.last];
      case 'remove':
        return [kind, stream, writer];
    }
  }

  async read(session: SessionRef, stream: string): Promise<StoredStream | undefined> {
    const { connection, keys } = this.#parts;
    const { index } = keys.events(session);
    return await this.#parse(index, stream, await connection.run(READ_EVENTS, [index, `${index}:${stream}`], [stream]));
  }

  async take(session: SessionRef, stream: string, writer: string): Promise<StoredStream | undefined> {
    const { connection, keys, fenceOf } = this.#parts;
    const { index } = keys.events(session);
    const fence = fenceOf(session) ?? '';
    const entries = [index, `${index}:${stream}`, keys.session(session).placement];
    return await this.#parse(index, stream, await connection.run(TAKE_EVENTS, entries, [stream, fence, writer]));
  }

  async #parse(index: string, stream: string, reply: unknown): Promise<StoredStream | undefined> {
    const { process, box, isAlive } = this.#parts;
    const [known, texts] = READ.parse(reply);
    const { endless, added, last, writer = '' } = DESCRIPTION.exec(known ?? '')?.groups ?? {};
    if (texts === undefined || added === undefined) return undefined;
    const events = texts.flatMap((each) => {
      const [, seq = '', sealed = ''] = EVENT.exec(each) ?? [];
      const text = box.open(entryOf(index, stream, Number(seq)), sealed);
      return text === undefined ? [] : [{ seq: Number(seq), text }];
    });
    return {
      isEndless: endless === '1',
      isWritten: writer !== process && (await isAlive(writer)),
      lastAdded: Number(added),
      last: last === undefined || last === '' ? undefined : Number(last),
      events,
    };
  }

  #report(principal: string, share: Share): void {
    this.#unreported.set(principal, share);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#reporting = this.#reportAll();
    }, ACCOUNT_MS).unref();
  }

  /** Reports the bytes of all principals that have written. Never rejects: the next write of a principal reports it again. */
  async #reportAll(): Promise<void> {
    const shares = [...this.#unreported];
    this.#unreported.clear();
    try {
      for (const [principal, share] of shares) await this.#account(principal, share);
    } catch (thrown) {
      if (!(thrown instanceof GatewayError)) this.#parts.onError(thrown);
    }
  }

  /** Reports the bytes of a principal. If all have too many, removes events of the principal that has most. */
  async #account(principal: string, share: Share): Promise<void> {
    const { connection, keys, limits, onLimit } = this.#parts;
    const { totalBytes = LIMITS.storedEventsBytes } = limits;
    let reported: readonly [string, Share] = [principal, share];
    for (let n = 0; n < MAX_VICTIMS; n++) {
      const [name, { bytes, untilMs }] = reported;
      const args = [name, bytes, untilMs, totalBytes];
      const [victim, over] = OVER.parse(await connection.run(ACCOUNT_EVENTS, keys.allEvents, args));
      if (victim === undefined || over === undefined || victim === '') return;
      onLimit('storedEventsBytes');
      const { sizes, ends } = keys.eventsOf(victim);
      const [left, endMs] = SHED.parse(await connection.run(SHED_EVENTS, [sizes, ends], [over]));
      reported = [victim, { bytes: left, untilMs: endMs }];
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearTimeout(this.#timer);
    await this.#reporting;
  }
}

/** Returns the name under which an event is sealed. */
function entryOf(index: string, stream: string, seq: number): string {
  return `${index}:${stream} ${seq}`;
}
