/**
 * Text in an HTTP header: plain where that is safe, else `=?base64?…?=` around the base64 of its UTF-8.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#value-encoding
 */

const PREFIX = '=?base64?';
const SUFFIX = '?=';

/** Visible ASCII, with spaces inside. Also the empty text. */
const PLAIN = /^(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?$/;

/** What may arrive; tabs are control characters, which we do not send and must not refuse. */
const ALLOWED = /^[\t\x20-\x7e]*$/;

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * A header value that stands for the text and holds no control character, whatever the text is.
 *
 * Half a surrogate pair has no UTF-8 and becomes U+FFFD, as it does in every other encoder.
 */
export function encodeHeaderValue(text: string): string {
  const isLiteral = PLAIN.test(text) && !(text.startsWith(PREFIX) && text.endsWith(SUFFIX));
  return isLiteral ? text : `${PREFIX}${Buffer.from(text).toString('base64')}${SUFFIX}`;
}

function isBlank(char: string | undefined): boolean {
  return char === ' ' || char === '\t';
}

/** A header value without the white space around it. By hand: `trim()` takes more than HTTP does, a pattern quadratic time. */
export function withoutBlanks(value: string): string {
  let [start, end] = [0, value.length];
  while (isBlank(value[start])) start++;
  while (end > start && isBlank(value[end - 1])) end--;
  return value.slice(start, end);
}

/**
 * The text a received header value stands for; undefined when it has characters no header may have, or is marked as base64
 * and is none. White space around it is the transport's. A marker that is not exactly right marks nothing.
 */
export function decodeHeaderValue(value: string): string | undefined {
  if (!value.startsWith('=') && PLAIN.test(value)) return value;
  const trimmed = withoutBlanks(value);
  if (!ALLOWED.test(trimmed)) return undefined;
  const isMarked =
    trimmed.length >= PREFIX.length + SUFFIX.length && trimmed.startsWith(PREFIX) && trimmed.endsWith(SUFFIX);
  if (!isMarked) return trimmed;
  const base64 = trimmed.slice(PREFIX.length, -SUFFIX.length);
  const bytes = Buffer.from(base64, 'base64');
  // Node skips what is not base64, so what it read is written again and compared.
  if (bytes.toString('base64') !== base64) return undefined;
  try {
    return utf8.decode(bytes);
  } catch {
    return undefined;
  }
}
