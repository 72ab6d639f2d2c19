import { createECDH, hkdfSync } from 'node:crypto';
import { calculateJwkThumbprint, type CryptoKey, importJWK, type JWK } from 'jose';
import type { KeyRecord, KeyStore } from '../store/key-store.ts';

/** The keys are read again after this time, so that a rotation, here or on another replica, holds soon. */
const FRESH_MS = 10_000;
/** Known keys that cannot be read again are used meanwhile, and read after this time. */
const RETRY_MS = 2_000;
/**
 * A new key is published for this time before it signs. In it, readers may keep the published keys, replicas read them again, and clocks
 * differ.
 */
const PUBLISHED_MS = 360_000;
const PURPOSE = 'linkspan identity tokens, ES256';
/** The order of the group of P-256. @see https://doi.org/10.6028/NIST.SP.800-186 */
const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;
/** So many more bits than the order that the remainder is as good as uniform. */
const SEED_BYTES = 48;

export interface IdentityKey {
  readonly kid: string;
  readonly key: CryptoKey | Uint8Array;
  readonly publicJwk: JWK;
  /** Ms since the epoch, from which it signs. */
  readonly fromMs: number;
  /** Ms since the epoch; Infinity while no other key has replaced it. */
  readonly untilMs: number;
}

/** Returns the ES256 key that belongs to a sealing key. No one can compute either from the other without the ring. */
async function identityKeyOf({ key: ring, created, until: untilMs = Infinity }: KeyRecord): Promise<IdentityKey> {
  const seed = Buffer.from(hkdfSync('sha256', Buffer.from(ring, 'base64url'), '', PURPOSE, SEED_BYTES));
  const scalar = (BigInt(`0x${seed.toString('hex')}`) % (ORDER - 1n)) + 1n;
  const secret = Buffer.from(scalar.toString(16).padStart(64, '0'), 'hex');
  const curve = createECDH('prime256v1');
  curve.setPrivateKey(secret);
  const point = curve.getPublicKey();
  const coordinates = { x: point.subarray(1, 33).toString('base64url'), y: point.subarray(33).toString('base64url') };
  const common = { kty: 'EC', crv: 'P-256', ...coordinates };
  const kid = await calculateJwkThumbprint(common);
  const key = await importJWK({ ...common, d: secret.toString('base64url') }, 'ES256');
  const publicJwk = { ...common, kid, alg: 'ES256', use: 'sig' };
  return { kid, key, publicJwk, fromMs: created + PUBLISHED_MS, untilMs };
}

/**
 * The keys of identity tokens. They are derived from those that seal handles, so that replicas share them, a restart keeps them, and one rotation replaces
 * both.
 */
export class IdentityKeys {
  #store: KeyStore | undefined;
  #keys: readonly IdentityKey[] = [];
  #staleMs = -Infinity;
  #reading: Promise<void> | undefined;
  #isNeeded = false;
  #issuer: () => string = () => '';
  readonly #clock: () => number;

  /** @param clock monotonic ms. */
  constructor(clock: () => number = () => performance.now()) {
    this.#clock = clock;
  }

  use(store: KeyStore): void {
    this.#store = store;
    this.#staleMs = -Infinity;
  }

  /** @param issuer returns the origin by which others reach the gateway. */
  setIssuer(issuer: () => string): void {
    this.#issuer = issuer;
  }

  /** Publishes the keys from now on. */
  begin(): void {
    this.#isNeeded = true;
  }

  /** `iss` of identity tokens. */
  get issuer(): string {
    return this.#issuer();
  }

  /**
   * Returns the key that signs a token: the newest that has been published for long enough, else the oldest. A key that ends before the token signs only if no
   * other key is left.
   *
   * @param nowMs ms since the epoch.
   * @throws {Error} if the keys cannot be read, and none is known.
   */
  async signing(nowMs: number, lifetimeMs: number): Promise<IdentityKey> {
    await this.#refresh();
    const lasting = this.#keys.filter(({ untilMs }) => nowMs + lifetimeMs <= untilMs);
    const key = lasting.findLast(({ fromMs }) => fromMs <= nowMs) ?? lasting[0] ?? this.#keys.at(-1);
    if (key === undefined) throw new Error('there are no keys for identity tokens');
    return key;
  }

  /** Returns the JWK Set with all keys that are still valid; undefined if no upstream gets identity tokens. */
  async jwks(nowMs: number): Promise<{ readonly keys: readonly JWK[] } | undefined> {
    if (!this.#isNeeded) return undefined;
    await this.#refresh();
    return { keys: this.#keys.filter(({ untilMs }) => nowMs < untilMs).map(({ publicJwk }) => publicJwk) };
  }

  async #refresh(): Promise<void> {
    if (this.#clock() < this.#staleMs) return;
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    await this.#reading;
  }

  async #read(): Promise<void> {
    try {
      const records = (await this.#store?.read()) ?? [];
      this.#keys = await Promise.all(records.map(identityKeyOf));
      this.#staleMs = this.#clock() + FRESH_MS;
    } catch (thrown) {
      if (this.#keys.length === 0) throw thrown;
      this.#staleMs = this.#clock() + RETRY_MS;
    }
  }
}
