import { createSecretKey, hkdfSync, type KeyObject } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { getOrMake, setLatest } from '../../map-entries.ts';
import { GatewayError } from '../../errors.ts';
import { LIMITS } from '../../limits.ts';
import type { KeyRecord, KeyStore } from '../../store/key-store.ts';
import { decryptJwe, encryptJwe, parseJwe } from './compact-jwe.ts';

/** The purpose of a handle. A handle cannot be unsealed for another purpose. */
export type Purpose = 'session' | 'cursor' | 'state' | 'task' | 'attachment';

/** A handle with an unknown key id makes the sealer read the keys again, at most once in this time. It waits for that if other processes add keys. */
const REREAD_MS = 500;
/** Key ids that a read has not found are remembered for that time, and at most so many. */
const MAX_MISSING = 100;

const PSEUDONYM_BYTES = 12;

interface SealingKey {
  readonly kid: string;
  readonly key: KeyObject;
  readonly untilMs: number;
}

function importKey({ kid, key, until }: KeyRecord): SealingKey {
  return { kid, key: createSecretKey(key, 'base64url'), untilMs: until ?? Infinity };
}

/** Parses a plaintext. Its shape needs no check, since only holders of the key can make one. */
function parsePlaintext(plaintext: Buffer): { readonly until: number; readonly payload: Record<string, unknown> } {
  return JSON.parse(plaintext.toString());
}

/**
 * Seals values into texts that clients return. Only processes with the same keys can read or make such texts.
 *
 * The text is a compact JWE (`dir`, `A256GCM`), whose characters are allowed in a header.
 *
 * @see https://www.rfc-editor.org/rfc/rfc7516
 */
export class Sealer {
  readonly #store: KeyStore;
  #keys: ReadonlyMap<string, SealingKey>;
  #newest: SealingKey;
  /** The time of the last read of the keys; monotonic ms. */
  #readMs = performance.now();
  #reading: Promise<void> | undefined;
  #rotating: Promise<void> = Promise.resolve();
  /** Ids of keys that a read has not found which began after they were asked for, with the time of that read; monotonic ms. */
  readonly #missing = new Map<string, number>();
  /** By text; see {@link pseudonymsOf}. */
  readonly #pseudonyms = new Map<string, readonly [string, ...string[]]>();
  /** The failure of the last read; undefined if it succeeded. */
  #failure: { readonly thrown: unknown } | undefined;

  private constructor(store: KeyStore, keys: readonly SealingKey[], newest: SealingKey) {
    this.#store = store;
    this.#keys = new Map(keys.map((key) => [key.kid, key]));
    this.#newest = newest;
  }

  /**
   * Creates a sealer with the keys of the store. @throws {Error} with a message for the operator if they cannot be
   * used.
   */
  static async open(store: KeyStore): Promise<Sealer> {
    const keys = (await store.read()).map(importKey);
    const newest = keys.at(-1);
    if (newest === undefined) throw new Error('a key store has at least one key');
    return new Sealer(store, keys, newest);
  }

  /**
   * Adds a key, which seals all later handles. Handles of the earlier keys stay valid for `graceMs`. Other processes
   * with the same store read the key when they receive a handle of it. Only one process may rotate at a time; rotations of this one follow each other.
   */
  async rotate(graceMs: number): Promise<void> {
    const add = async (): Promise<void> => {
      await this.#store.add(Date.now(), graceMs);
      await this.refresh();
    };
    const rotating = this.#rotating.then(add, add);
    this.#rotating = rotating.catch(() => undefined);
    await rotating;
  }

  /**
   * Seals a payload, which must be JSON. A text of more than `LIMITS.handleChars` cannot be unsealed.
   *
   * @param expiresAtMs ms since the epoch; the handle is invalid from then on.
   */
  async seal(purpose: Purpose, payload: object, expiresAtMs: number): Promise<string> {
    const { kid, key } = this.#newest;
    return encryptJwe(key, { kid, typ: purpose }, Buffer.from(JSON.stringify({ until: expiresAtMs, payload })));
  }

  /**
   * Returns the payload of a handle. Returns undefined if the text was not sealed for this purpose, or has expired.
   *
   * @throws {GatewayError} `store-unavailable` if its key is not known, and the keys cannot be read.
   */
  async unseal(purpose: Purpose, text: string, nowMs: number): Promise<Record<string, unknown> | undefined> {
    const jwe = text.length > LIMITS.handleChars ? undefined : parseJwe(text);
    if (jwe === undefined || jwe.header.typ !== purpose) return undefined;
    const key = await this.#keyFor(jwe.header.kid, nowMs);
    const plaintext = key === undefined ? undefined : decryptJwe(key, jwe);
    if (plaintext === undefined) return undefined;
    const { until, payload } = parsePlaintext(plaintext);
    return nowMs < until ? payload : undefined;
  }

  /** Returns the key of this id; undefined if there is none, or it has expired. @throws {GatewayError} `store-unavailable` */
  async #keyFor(kid: string, nowMs: number): Promise<KeyObject | undefined> {
    if (!this.#keys.has(kid) && !this.#isMissing(kid)) await this.#find(kid);
    const key = this.#keys.get(kid);
    // Another process may have added the key. A client would discard a valid session.
    if (key === undefined && this.#failure !== undefined) throw unavailable(this.#failure.thrown);
    return key === undefined || nowMs >= key.untilMs ? undefined : key.key;
  }

  /** Returns whether the keys were read for this id just now. A request opens its handle twice if its key is unknown. */
  #isMissing(kid: string): boolean {
    return performance.now() - (this.#missing.get(kid) ?? -Infinity) < REREAD_MS;
  }

  async #find(kid: string): Promise<void> {
    const askedMs = performance.now();
    // The keys may be encrypted with a key that only other processes have.
    await this.#reread().catch(() => undefined);
    const isMissing = this.#failure === undefined && this.#readMs >= askedMs && !this.#keys.has(kid);
    if (isMissing) setLatest(this.#missing, kid, this.#readMs, MAX_MISSING);
  }

  /**
   * Returns the pseudonyms of a text: that of the newest key first, which to give to others, then those of the other keys. Who does not have
   * the keys cannot tell the text. The texts are those of a config: they are few.
   */
  pseudonymsOf(text: string): readonly [string, ...string[]] {
    return getOrMake(this.#pseudonyms, text, () => {
      const by = ({ key }: SealingKey) =>
        Buffer.from(hkdfSync('sha256', key, '', `pseudonym ${text}`, PSEUDONYM_BYTES)).toString('base64url');
      return [by(this.#newest), ...[...this.#keys.values()].map(by)];
    });
  }

  /** Returns whether the key of a handle that was opened before is still valid. @param nowMs ms since the epoch. */
  mayOpen(handle: string, nowMs: number): boolean {
    const key = this.#keys.get(parseJwe(handle)?.header.kid ?? '');
    return key !== undefined && nowMs < key.untilMs;
  }

  /** Returns the time at which the next key expires, in ms since the epoch; undefined if none does. */
  nextExpiryMs(nowMs: number): number | undefined {
    const times = [...this.#keys.values()].map(({ untilMs }) => untilMs).filter((untilMs) => untilMs > nowMs);
    const next = Math.min(...times);
    return Number.isFinite(next) ? next : undefined;
  }

  #reread(): Promise<void> {
    const waitMs = this.#readMs + REREAD_MS - performance.now();
    if (waitMs <= 0 || this.#store.isShared === true) {
      this.#reading ??= this.#readIn(waitMs).finally(() => {
        this.#reading = undefined;
      });
    }
    return this.#reading ?? Promise.resolve();
  }

  async #readIn(waitMs: number): Promise<void> {
    if (waitMs > 0) await sleep(waitMs);
    await this.refresh();
  }

  /** Reads the keys again. Handles of keys that the store does not have any more are invalid from then on. */
  async refresh(): Promise<void> {
    this.#readMs = performance.now();
    let keys: readonly SealingKey[];
    try {
      keys = (await this.#store.read()).map(importKey);
      this.#failure = undefined;
    } catch (thrown) {
      this.#failure = { thrown };
      throw thrown;
    }
    this.#keys = new Map(keys.map((key) => [key.kid, key]));
    this.#newest = keys.at(-1) ?? this.#newest;
    this.#pseudonyms.clear();
  }
}

function unavailable(thrown: unknown): GatewayError {
  return thrown instanceof GatewayError ? thrown : new GatewayError('store-unavailable', {}, thrown);
}
