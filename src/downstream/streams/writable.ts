/** Node keeps a written string beside its bytes until the client has read them. From this size on, the bytes alone are written. */
const LARGE_CHARS = 65_536;

/** Returns what is written for a text: the text, or its bytes if it is large. */
export function writable(text: string, encoding: 'latin1' | 'utf8' = 'utf8'): string | Buffer {
  return text.length < LARGE_CHARS ? text : Buffer.from(text, encoding);
}
