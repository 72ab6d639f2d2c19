import { byHeader, HEADER_VALUE, parsedBy, text } from './scalars.ts';

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
