/**
 * Encodes text as an HTTP header value: plain if that is safe, else `=?base64?…?=` around the base64 of its UTF-8.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#value-encoding
 */

const PREFIX = '=?base64?';
const SUFFIX = '?=';

/** Visible ASCII with inner spaces, or the empty text. */
const PLAIN = /^(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?$/;

/** Characters accepted in received values. Tabs are control characters: we do not send them, but must accept them. */
const ALLOWED = /^[\t\x20-\x7e]*$/;

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * Encodes any text as a header value without control characters.
 *
 * A lone surrogate has no UTF-8 form and becomes U+FFFD, as in every other encoder.
 */
export function encodeHeaderValue(text: string): string {
  const isLiteral = PLAIN.test(text) && !(text.startsWith(PREFIX) && text.endsWith(SUFFIX));
  return isLiteral ? text : `${PREFIX}${Buffer.from(text).toString('base64')}${SUFFIX}`;
}

function isBlank(char: string | undefined): boolean {
  return char === ' ' || char === '\t';
}

/**
 * Removes spaces and tabs around a header value. Written as a loop: `trim()` removes more than HTTP allows, and a
 * pattern takes quadratic time.
 */
export function trimBlanks(value: string): string {
  let [start, end] = [0, value.length];
  while (isBlank(value[start])) start++;
  while (end > start && isBlank(value[end - 1])) end--;
  return value.slice(start, end);
}

/**
 * Decodes a received header value. Returns undefined if it has invalid characters, or is marked as base64 and is not
 * base64. Surrounding white space is ignored. An inexact marker is plain text.
 */
export function decodeHeaderValue(value: string): string | undefined {
  if (!value.startsWith('=') && PLAIN.test(value)) return value;
  const trimmed = trimBlanks(value);
  if (!ALLOWED.test(trimmed)) return undefined;
  const isMarked =
    trimmed.length >= PREFIX.length + SUFFIX.length && trimmed.startsWith(PREFIX) && trimmed.endsWith(SUFFIX);
  if (!isMarked) return trimmed;
  const base64 = trimmed.slice(PREFIX.length, -SUFFIX.length);
  const bytes = Buffer.from(base64, 'base64');
  // Node skips characters that are not base64, so the decoded bytes are encoded again and compared.
  if (bytes.toString('base64') !== base64) return undefined;
  try {
    return utf8.decode(bytes);
  } catch {
    return undefined;
  }
}
