import { z } from 'zod';
import { parsedBy, text } from './scalars.ts';

/**
 * Schema of the URL of a receiver of OTLP over HTTP.
 *
 * @param path of its signal, such as `v1/logs`, which is added to a URL without a path.
 * @param credentials the place for credentials, in words.
 */
export function otlpEndpoint(path: string, credentials: string) {
  const parse = (value: string): string | undefined => {
    const url = URL.parse(value);
    if (url === null || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '') return undefined;
    return url.pathname === '/' ? new URL(path, url).href : url.href;
  };
  const expected = `expected an http:// or https:// URL without a user name; put credentials into ${credentials}`;
  return text('expected an http:// or https:// URL').transform(parsedBy(parse, expected));
}

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
export const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Schema of a map by the names of headers. In YAML, `{X-Key:value}` is a name without a value. */
export function byHeader<T extends z.ZodType>(value: T, expected: string) {
  return z.record(z.string().regex(HEADER_NAME), value, {
    error: ({ code }) => (code === 'invalid_key' ? 'cannot name a header; write NAME: value' : expected),
  });
}

/** Headers that the exporter sets itself. */
const OWN_HEADERS: ReadonlySet<string> = new Set(['content-type', 'content-length', 'transfer-encoding', 'host']);

export function otlpHeaders() {
  const value = text().regex(HEADER_VALUE, { error: 'expected text that a header can carry' });
  return byHeader(value, 'expected a map of headers').superRefine((headers, context) => {
    for (const name of Object.keys(headers)) {
      if (!OWN_HEADERS.has(name.toLowerCase())) continue;
      context.addIssue({ code: 'custom', path: [name], message: 'the gateway sets this header itself; remove it' });
    }
  });
}
