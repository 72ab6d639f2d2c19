import { timingSafeEqual } from 'node:crypto';
import type { ApiKeyConfig } from '../config/config.ts';
import type { Principal } from '../policy/principal.ts';

/** The principals of the configured keys, looked up by the SHA-256 of what came. */
export class ApiKeys {
  readonly #keys: readonly { readonly digest: Buffer; readonly principal: Principal }[];

  /** @throws {TypeError} when a configured digest is none. */
  constructor(keys: readonly ApiKeyConfig[]) {
    this.#keys = keys.map(({ name, sha256 }) => {
      if (!/^[\da-f]{64}$/i.test(sha256)) throw new TypeError(`API key "${name}": sha256 is not 64 hex digits`);
      // By name, so that two keys of one name are one principal and a key can be replaced without losing what it began.
      const principal: Principal = { key: `key:${name}`, label: name, scopes: [] };
      return { digest: Buffer.from(sha256, 'hex'), principal };
    });
  }

  /** Takes the same time whichever key it is, and also if it is none. */
  find(sha256: string): Principal | undefined {
    const digest = Buffer.from(sha256, 'hex');
    let found: Principal | undefined;
    for (const key of this.#keys) {
      if (timingSafeEqual(key.digest, digest)) found = key.principal;
    }
    return found;
  }
}
