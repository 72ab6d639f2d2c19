import { z } from 'zod';
import { GatewayError } from '../../errors.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import {
  ATTACHMENTS_FRACTION,
  type Fencing,
  type SessionChange,
  type SessionRecord,
  type SessionRef,
  type SessionStore,
} from '../session-store.ts';
import { fencedChange } from '../sessions/fenced-change.ts';
import { KEPT_FRACTION, MAX_VALIDITY_MS } from '../sessions/session-table.ts';
import { HASH_REPLY, type RedisAccess } from './access.ts';
import type { Script } from './connection.ts';
import { hashOf, type PlacementKey, sessionKey } from '../placement-table.ts';
import { CHANGE, END, IS_ENDED, LOAD, NEXT_SERIAL } from './scripts/session-scripts.ts';

/** The interval at which ends that could not be written are written again. */
const RETRY_MS = 1_000;
/** Memory of one text in Redis besides its characters. */
const TEXT_BYTES = 128;

const ATTACHMENT = z.object({ upstream: z.string(), text: z.string() });
const CHANGE_REPLY = z.enum([
  '',
  'made-room',
  'again',
  'fenced',
  'subscriptionsPerSession',
  'sessionRecordBytesPerPrincipal',
]);

export interface RedisSessionStoreParts extends RedisAccess, Fencing {
  /** Returns the message to the owner of a placement that is revoked. */
  readonly revokedText: (key: PlacementKey) => string;
  /** Called when a bound refuses or removes something. */
  readonly onLimit: (limit: LimitName) => void;
}

/**
 * Stores session state in Redis. A change carries the placement of the session, and is refused if another process has claimed it since. A change that
 * cannot be written fails; an end is written again until it is.
 */
export class RedisSessionStore implements SessionStore {
  readonly #parts: RedisSessionStoreParts;
  /** Ends that could not be written, by the entry of the session. */
  readonly #unwritten = new Map<string, SessionRef>();
  #retry: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;

  constructor(parts: RedisSessionStoreParts) {
    this.#parts = parts;
  }

  get failure(): string | undefined {
    return this.#parts.connection.failure;
  }

  async nextSerial(principal: string): Promise<number> {
    const { connection, keys } = this.#parts;
    return z.coerce
      .number()
      .int()
      .parse(await connection.run(NEXT_SERIAL, keys.serial(principal), []));
  }

  async load(session: SessionRef): Promise<SessionRecord | undefined> {
    const texts: { readonly order: number; readonly kind: string; readonly text: string }[] = [];
    let logLevel: string | undefined;
    for (const [field, value] of HASH_REPLY.parse(await this.#run(LOAD, session, []))) {
      if (field === 'level') logLevel = value;
      const [, order, sealed] = /^(\d+):\d+:(.*)$/.exec(value) ?? [];
      if (order === undefined || sealed === undefined) continue;
      const text = this.#parts.box.open(this.#entryOf(session, field), sealed);
      if (text !== undefined) texts.push({ order: Number(order), kind: field.slice(0, 1), text });
    }
    const sorted = texts.toSorted((a, b) => a.order - b.order);
    const textsOf = (wanted: string) => sorted.filter(({ kind }) => kind === wanted).map(({ text }) => text);
    const [subscriptions, upstreams] = [textsOf('u'), textsOf('x')];
    const attachments = textsOf('a').map((text) => ATTACHMENT.parse(JSON.parse(text)));
    if (logLevel === undefined && texts.length === 0) return undefined;
    return {
      subscriptions,
      ...(logLevel === undefined ? {} : { logLevel }),
      ...(upstreams.length === 0 ? {} : { upstreams }),
      ...(attachments.length === 0 ? {} : { attachments }),
    };
  }

  async change(session: SessionRef, change: SessionChange): Promise<LimitName | 'fenced' | undefined> {
    const { box, onLimit } = this.#parts;
    const { field, text } = partsOf(change);
    if (change.kind === 'subscribe' && Buffer.byteLength(text) > LIMITS.subscriptionUriBytes) {
      onLimit('subscriptionUriBytes');
      return 'subscriptionUriBytes';
    }
    if (change.kind === 'attach' && Buffer.byteLength(change.text) > LIMITS.attachmentBytes) {
      onLimit('attachmentBytes');
      return 'attachmentBytes';
    }
    const isSealed = change.kind !== 'level' && change.kind !== 'unsubscribe';
    const sealed = isSealed ? box.seal(this.#entryOf(session, field), text) : '';
    const args = [change.kind, field, sealed, TEXT_BYTES + sealed.length];
    const { subscriptionsPerSession, sessionRecordBytesPerPrincipal: most } = LIMITS;
    const bounds = [subscriptionsPerSession, most, most * ATTACHMENTS_FRACTION];
    return await fencedChange(this.#parts, session, async (fence = '') => {
      const run = async () => CHANGE_REPLY.parse(await this.#run(CHANGE, session, [fence, ...args, ...bounds]));
      let reply = await run();
      while (reply === 'again') reply = await run();
      if (reply === '' || reply === 'fenced') return reply || undefined;
      onLimit(reply === 'made-room' ? 'sessionRecordBytesPerPrincipal' : reply);
      return reply === 'made-room' ? undefined : reply;
    });
  }

  async end(session: SessionRef): Promise<boolean> {
    const entry = this.#parts.keys.session(session).record;
    try {
      await this.#writeEnd(session);
      this.#unwritten.delete(entry);
      return true;
    } catch (thrown) {
      if (!(thrown instanceof GatewayError)) throw thrown;
      if (this.#unwritten.size >= LIMITS.unwrittenEnds) this.#parts.onLimit('unwrittenEnds');
      else this.#unwritten.set(entry, session);
      // The next interval tries what fails again.
      this.#retry ??= setInterval(() => void this.#writeAgain().catch(() => undefined), RETRY_MS).unref();
      return false;
    }
  }

  async #writeEnd(session: SessionRef): Promise<void> {
    const { keys, revokedText, onLimit } = this.#parts;
    const told = revokedText(sessionKey(session));
    const most = LIMITS.endedRangesPerPrincipal;
    const args = [keys.revokedChannels, told, most, Math.floor(most * KEPT_FRACTION), MAX_VALIDITY_MS];
    const { sizes, ends } = keys.events(session);
    if ((await this.#run(END, session, args, [sizes, ends])) === 1) onLimit('endedRangesPerPrincipal');
  }

  #writeAgain(): Promise<void> {
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
    });
    return this.#writing;
  }

  async #writeAll(): Promise<void> {
    for (const session of this.#unwritten.values()) {
      if (!(await this.end(session))) return;
    }
    clearInterval(this.#retry);
    this.#retry = undefined;
  }

  async isEnded(session: SessionRef): Promise<boolean> {
    if (this.#unwritten.has(this.#parts.keys.session(session).record)) return true;
    return (await this.#run(IS_ENDED, session, [])) === 1;
  }

  #run(
    script: Script,
    session: SessionRef,
    args: readonly (string | number)[],
    others: readonly string[] = [],
  ): Promise<unknown> {
    const { record, sizes, until, ended, placement, plain, attached } = this.#parts.keys.session(session);
    const entries = [record, sizes, until, ended, placement, plain, attached, ...others];
    return this.#parts.connection.run(script, entries, [session.serial, session.expiresMs, ...args]);
  }

  #entryOf(session: SessionRef, field: string): string {
    return `${this.#parts.keys.session(session).record} ${field}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#retry);
    await this.#writeAgain().catch(() => undefined);
    clearInterval(this.#retry);
  }
}

/** Returns the field of a record that a change sets or removes, and the text to seal. A level is stored as it is: it is its own field. */
function partsOf(change: SessionChange): { readonly field: string; readonly text: string } {
  switch (change.kind) {
    case 'level':
      return { field: change.level, text: '' };
    case 'use':
      return { field: `x${hashOf([change.upstream])}`, text: change.upstream };
    case 'attach': {
      const { upstream, text } = change;
      return { field: `a${hashOf([upstream])}`, text: JSON.stringify({ upstream, text }) };
    }
    case 'subscribe':
    case 'unsubscribe':
      return { field: `u${hashOf([change.uri])}`, text: change.uri };
  }
}
