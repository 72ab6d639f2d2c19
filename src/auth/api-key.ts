import { timingSafeEqual } from 'node:crypto';
import type { ApiKeyConfig } from '../config/config.ts';
import type { Principal } from '../policy/principal.ts';

/** The principals of the configured API keys, by the SHA-256 of the key. */
export class ApiKeys {
  readonly #keys: readonly { readonly digest: Buffer; readonly principal: Principal }[];

  /** @throws {TypeError} if a configured digest is not 64 hex digits. */
  constructor(keys: readonly ApiKeyConfig[]) {
    this.#keys = keys.map(({ name, sha256 }) => {
      if (!/^[\da-f]{64}$/i.test(sha256)) throw new TypeError(`API key "${name}": sha256 is not 64 hex digits`);
      // The principal depends on the name alone: two keys of one name are one principal, so a key can be replaced while
      // sessions continue.
      const principal: Principal = { key: `key:${name}`, label: name, scopes: [] };
      return { digest: Buffer.from(sha256, 'hex'), principal };
    });
  }

  /** Returns the principal of a key, or undefined. Compares with every key in constant time. */
  find(sha256: string): Principal | undefined {
    const digest = Buffer.from(sha256, 'hex');
    let found: Principal | undefined;
    for (const key of this.#keys) {
      if (timingSafeEqual(key.digest, digest)) found = key.principal;
    }
    return found;
  }
}
