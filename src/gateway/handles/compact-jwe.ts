import { isRecord, jsonOf } from '../../json/record.ts';
import { createCipheriv, createDecipheriv, type KeyObject, randomBytes } from 'node:crypto';

/**
 * Compact JWEs with a shared key (`dir`) and `A256GCM`. `node:crypto` encrypts a short text at once; Web Crypto hands each to
 * another thread, which costs ten times as much.
 *
 * @see https://www.rfc-editor.org/rfc/rfc7516
 */

const CIPHER = 'aes-256-gcm';
const ALGORITHMS = { alg: 'dir', enc: 'A256GCM' } as const;
const IV_BYTES = 12;
const TAG_BYTES = 16;

/** Five parts, of which the second is empty: with `dir` there is no encrypted key. */
const FORM = /^[A-Za-z0-9_-]+\.\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;

/** The members of a protected header that we write. */
export interface JweHeader {
  readonly kid: string;
  readonly typ: string;
}

/** A JWE that is not decrypted yet, so that its header may be forged. */
export interface CompactJwe {
  readonly header: JweHeader;
  /** The header as the text has it, which the tag protects. */
  readonly protectedHeader: Buffer;
  readonly iv: Buffer;
  readonly ciphertext: Buffer;
  readonly tag: Buffer;
}

/** Returns the text of a plaintext encrypted with a key of 32 bytes. */
export function encryptJwe(key: KeyObject, { kid, typ }: JweHeader, plaintext: Buffer): string {
  const header = Buffer.from(JSON.stringify({ ...ALGORITHMS, kid, typ })).toString('base64url');
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv(CIPHER, key, iv, { authTagLength: TAG_BYTES });
  cipher.setAAD(Buffer.from(header, 'latin1'));
  const ciphertext = Buffer.concat([cipher.update(plaintext), cipher.final()]);
  return `${header}..${[iv, ciphertext, cipher.getAuthTag()].map((part) => part.toString('base64url')).join('.')}`;
}

/** Reads the parts of a text. Returns undefined for any text that {@link encryptJwe} cannot have made. */
export function parseJwe(text: string): CompactJwe | undefined {
  if (!FORM.test(text)) return undefined;
  const parts = text.split('.');
  const bytes = parts.map((part) => Buffer.from(part, 'base64url'));
  // Decoders ignore the spare bits at the end of a part, so that several texts would otherwise be the same JWE.
  if (bytes.some((part, at) => part.toString('base64url') !== parts[at])) return undefined;
  const [headerJson, , iv, ciphertext, tag] = bytes;
  if (headerJson === undefined || iv === undefined || ciphertext === undefined || tag === undefined) return undefined;
  const header = parseHeader(headerJson.toString());
  if (header === undefined || iv.length !== IV_BYTES || tag.length !== TAG_BYTES) return undefined;
  return { header, protectedHeader: Buffer.from(parts[0] ?? '', 'latin1'), iv, ciphertext, tag };
}

function parseHeader(text: string): JweHeader | undefined {
  const header = jsonOf(text);
  if (!isRecord(header)) return undefined;
  const { alg, enc, kid, typ } = header;
  if (alg !== ALGORITHMS.alg || enc !== ALGORITHMS.enc || typeof kid !== 'string' || typeof typ !== 'string')
    return undefined;
  return { kid, typ };
}

/** Returns the plaintext; undefined if it was not encrypted with this key, or was changed. */
export function decryptJwe(key: KeyObject, { protectedHeader, iv, ciphertext, tag }: CompactJwe): Buffer | undefined {
  const decipher = createDecipheriv(CIPHER, key, iv, { authTagLength: TAG_BYTES });
  decipher.setAAD(protectedHeader);
  decipher.setAuthTag(tag);
  const plaintext = decipher.update(ciphertext);
  try {
    return Buffer.concat([plaintext, decipher.final()]);
  } catch {
    // Node has no code for this error.
    return undefined;
  }
}
