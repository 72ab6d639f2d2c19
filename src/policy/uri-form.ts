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
 * Returns undefined for a text that has no such form, because servers read its steps in different ways.
 */
export function canonicalUri(uri: string): string | undefined {
  const slashed = slashedForm(uri);
  if (slashed === undefined) return undefined;
  const plain = withoutIgnored(slashed);
  return CLIMBING_QUERY.test(plain) || hasUnclearSteps(slashed, plain) ? undefined : canonicalForm(plain, true);
}

/**
 * Returns whether `..` leads to different places: for a parser of paths, which ignores empty segments and takes the host for a segment,
 * and for a parser of URLs (https://url.spec.whatwg.org/#shorten-a-urls-path), which does neither.
 */
function hasUnclearSteps(slashed: string, plain: string): boolean {
  // A parser of URLs drops tabs and line breaks first.
  const [kept, ignored] = [restOf(slashed.replaceAll(/[\t\n\r]/g, '')), restOf(plain)];
  const ofUrls = stepsOf(kept, true);
  const host = /^\/\/([^/]+)/.exec(ignored)?.[1];
  if (host !== undefined && ofUrls.climbs) return true;
  const segments = ofUrls.segments.map(withoutIgnored).filter((segment) => segment !== '');
  return segments.join('/') !== stepsOf(ignored, false).segments.join('/');
}

function restOf(text: string): string {
  const scheme = SCHEME.exec(text)?.[1];
  return scheme === undefined ? text : text.slice(scheme.length + 1);
}

/** Segments of `//` and the host, which no step of a URL leaves. */
const AUTHORITY_SEGMENTS = 3;

/** Resolves `.` and `..`. `climbs` is true if a step leaves the host. */
function stepsOf(
  rest: string,
  keepsEmpty: boolean,
): { readonly segments: readonly string[]; readonly climbs: boolean } {
  const segments: string[] = [];
  let climbs = false;
  for (const segment of rest.split('/')) {
    if (segment === '..') {
      climbs ||= segments.length <= AUTHORITY_SEGMENTS;
      segments.pop();
    } else if (segment !== '.' && (segment !== '' || keepsEmpty)) segments.push(segment);
  }
  return { segments, climbs };
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

/** Returns a URI decoded, without the characters that parsers ignore, and with slashes only. */
function plainForm(uri: string): string | undefined {
  const slashed = slashedForm(uri);
  return slashed === undefined ? undefined : withoutIgnored(slashed);
}

function slashedForm(uri: string): string | undefined {
  return uri.length > MAX_CHARS ? undefined : decode(uri)?.replaceAll('\\', '/').normalize('NFC');
}

function withoutIgnored(text: string): string {
  return text.replaceAll(/[\s\p{Cc}]/gu, '');
}

function canonicalForm(plain: string, isUri: boolean): string {
  const scheme = SCHEME.exec(plain)?.[1];
  const [host, ...path] = stepsOf(restOf(plain), false).segments;
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
