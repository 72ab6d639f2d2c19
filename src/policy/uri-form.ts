/** The longest URI that is decoded. */
const MAX_CHARS = 8_192;
/** A URI that is encoded more often is odd. */
const MAX_DECODINGS = 4;

/**
 * `..` in a query or fragment. Servers that parse the URI do not read it as a step, servers that take it for a path do, so it has no one form.
 */
const CLIMBING_QUERY = /[?#](?:.*\/)?\.\.(?:\/|$)/s;

const SCHEME = /^([A-Za-z*?][A-Za-z0-9+.*?-]*):/;

/**
 * Returns the canonical form of a URI: `scheme:/host/path`. Spellings that a server may treat as one URI have one
 * form: the cases of scheme and host, percent-encoding, `.` and `..`, empty segments, backslashes, user, port, and a slash at the end.
 * Returns undefined for a text that has no such form.
 */
export function canonicalUri(uri: string): string | undefined {
  const plain = plainForm(uri);
  return plain === undefined || CLIMBING_QUERY.test(plain) ? undefined : canonicalForm(plain, true);
}

/** Returns the canonical form of a glob over URIs. A first segment with a wildcard may stand for a path, so its case is kept. */
export function canonicalGlob(glob: string): string {
  const plain = plainForm(glob);
  return plain === undefined ? glob : canonicalForm(plain, false);
}

/**
 * Returns the canonical form that a `file:` URI with a host has at servers that ignore the host; undefined for other URIs.
 */
export function withoutFileHost(uri: string, canonical: string): string | undefined {
  return /^file:\/\/[^/]/i.test(plainForm(uri) ?? '') ? canonical.replace(/^file:\/[^/]*/, 'file:') : undefined;
}

/** Returns a URI decoded, without the characters that URL parsers ignore, and with slashes only. */
function plainForm(uri: string): string | undefined {
  if (uri.length > MAX_CHARS) return undefined;
  return decode(uri)
    ?.replaceAll(/[\s\p{Cc}]/gu, '')
    .replaceAll('\\', '/')
    .normalize('NFC');
}

function canonicalForm(plain: string, isUri: boolean): string {
  const scheme = SCHEME.exec(plain)?.[1];
  const rest = scheme === undefined ? plain : plain.slice(scheme.length + 1);
  const segments: string[] = [];
  for (const segment of rest.split('/')) {
    if (segment === '..') segments.pop();
    else if (segment !== '' && segment !== '.') segments.push(segment);
  }
  const [host, ...path] = segments;
  const named = host
    ?.replace(/^[^@]*@/, '')
    .replace(/:\d*$/, '')
    .replace(/\.$/, '');
  const authority = isUri || !/[*?]/.test(named ?? '') ? named?.toLowerCase() : named;
  const joined = authority === undefined ? '' : [authority, ...path].join('/');
  return scheme === undefined ? joined : `${scheme.toLowerCase()}:/${joined}`;
}

/** Decodes percent-encoding until there is none. */
function decode(uri: string): string | undefined {
  let text = uri;
  for (let i = 0; i < MAX_DECODINGS; i++) {
    if (!text.includes('%')) return text;
    let next: string;
    try {
      next = decodeURIComponent(text);
    } catch {
      return undefined;
    }
    if (next === text) return text;
    text = next;
  }
  return text.includes('%') ? undefined : text;
}

/** Returns a canonical form without its query and fragment. */
export function withoutQuery(canonical: string): string {
  return canonical.replace(/[?#].*$/s, '');
}
