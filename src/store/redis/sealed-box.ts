import { setLatest } from '../../map-entries.ts';
import { createCipheriv, createDecipheriv, hash, hkdfSync, randomBytes } from 'node:crypto';

const CIPHER = 'aes-256-gcm';
/** A multiple of 3, so that sealed texts begin with the id as text. */
const ID_BYTES = 6;
const SALT_BYTES = 16;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const HEAD_BYTES = ID_BYTES + SALT_BYTES + IV_BYTES + TAG_BYTES;
/** Derived keys that are kept; one for each process that has written, and key of the config. */
const MAX_DERIVED = 256;

/** The advice about a text that no wrapping key opens. */
export const KEYS_ADVICE =
  'Put a removed wrapping key back at the end of the list, and add a new one at the end everywhere first (docs/replicas.md)';

/**
 * Encrypts all that Redis gets, with the wrapping keys of the config. Each process derives a key of its own, so that no key is used for so many
 * texts that two get one initialisation vector.
 */
export class SealedBox {
  /** By id. */
  readonly #secrets: ReadonlyMap<string, Buffer>;
  readonly #derived = new Map<string, Buffer>();
  readonly #head: Buffer;
  readonly #key: Buffer;
  /** Sealed texts of the first key begin with it. */
  readonly #firstId: string;

  /** @param wrappingKeys 32 bytes each, in base64url. The first one encrypts. */
  constructor(wrappingKeys: readonly string[]) {
    const secrets = wrappingKeys.map((text) => Buffer.from(text, 'base64url'));
    const [first] = secrets;
    if (first === undefined) throw new Error('a sealed box needs a key');
    this.#secrets = new Map(secrets.map((secret) => [idOf(secret).toString('base64url'), secret]));
    const salt = randomBytes(SALT_BYTES);
    this.#head = Buffer.concat([idOf(first), salt]);
    this.#firstId = idOf(first).toString('base64url');
    this.#key = derive(first, salt);
  }

  /** Encrypts a text. @param entry the name of the Redis entry; the text can be read from no other one. */
  seal(entry: string, text: string): string {
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, iv);
    cipher.setAAD(Buffer.concat([this.#head, Buffer.from(entry)]));
    // UTF-8 would lose lone surrogates, which JSON escapes can produce.
    const encoded = text.isWellFormed() ? Buffer.from(`u${text}`) : Buffer.from(`j${JSON.stringify(text)}`);
    const sealed = Buffer.concat([cipher.update(encoded), cipher.final()]);
    return Buffer.concat([this.#head, iv, cipher.getAuthTag(), sealed]).toString('base64url');
  }

  /** Returns whether the first key has sealed a text, so that it stays readable without the others. */
  isOfFirst(sealed: string): boolean {
    return sealed.startsWith(this.#firstId);
  }

  /** Returns whether a wrapping key of the config has sealed a text. */
  knowsKeyOf(sealed: string): boolean {
    return this.#secrets.has(sealed.slice(0, this.#firstId.length));
  }

  /** Decrypts a text. Returns undefined if it was sealed for another entry or by an unknown key, or was changed. */
  open(entry: string, sealed: string): string | undefined {
    const bytes = Buffer.from(sealed, 'base64url');
    if (bytes.length < HEAD_BYTES) return undefined;
    const [head, iv, tag] = [
      bytes.subarray(0, ID_BYTES + SALT_BYTES),
      bytes.subarray(ID_BYTES + SALT_BYTES, HEAD_BYTES - TAG_BYTES),
      bytes.subarray(HEAD_BYTES - TAG_BYTES, HEAD_BYTES),
    ];
    const key = this.#keyOf(head);
    if (key === undefined) return undefined;
    const decipher = createDecipheriv(CIPHER, key, iv, { authTagLength: TAG_BYTES });
    decipher.setAAD(Buffer.concat([head, Buffer.from(entry)]));
    decipher.setAuthTag(tag);
    try {
      const encoded = Buffer.concat([decipher.update(bytes.subarray(HEAD_BYTES)), decipher.final()]).toString();
      return encoded.startsWith('j') ? parseText(encoded.slice(1)) : encoded.slice(1);
    } catch {
      return undefined;
    }
  }

  #keyOf(head: Buffer): Buffer | undefined {
    const name = head.toString('base64url');
    const known = this.#derived.get(name);
    if (known !== undefined) return known;
    const secret = this.#secrets.get(head.subarray(0, ID_BYTES).toString('base64url'));
    if (secret === undefined) return undefined;
    const key = derive(secret, head.subarray(ID_BYTES));
    setLatest(this.#derived, name, key, MAX_DERIVED);
    return key;
  }
}

/** Returns the text of a JSON string. @throws if it is none. */
function parseText(json: string): string {
  const value: unknown = JSON.parse(json);
  if (typeof value !== 'string') throw new Error('not a text');
  return value;
}

function idOf(secret: Buffer): Buffer {
  return Buffer.from(
    hash('sha256', Buffer.concat([Buffer.from('linkspan wrapping key id'), secret]), 'hex'),
    'hex',
  ).subarray(0, ID_BYTES);
}

function derive(secret: Buffer, salt: Buffer): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, salt, 'linkspan redis v1', 32));
}
