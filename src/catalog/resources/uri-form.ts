import { normalized } from '../../mark-runs.ts';

/** The longest URI that is decoded. */
const MAX_CHARS = 8_192;
/** The longest name of DNS. Parsers of URLs take a time that is quadratic in a name that is not ASCII. */
const MAX_DOMAIN_CHARS = 253;
/** A URI that is encoded more often is odd. */
const MAX_DECODINGS = 4;

/** `..` in a query or fragment. */
const CLIMBING = /[?#/]\.\.(?:\/|$)/;
/** A step right before a query or fragment. */
const STEP_BEFORE_QUERY = /[/:]\.\.?[?#]/;
/** A segment that may be a step: without one, all servers read the same segments. */
const MAYBE_STEP = /(?:^|[/:])\./;

/**
 * A step or an empty segment with parameters, as in `..;a` and `/;a/`. Some web servers remove the parameters before they resolve steps;
 * others know none.
 */
const STEP_WITH_PARAMETERS = /^[^?#]*\/(?:\.\.?)?;/;
/** A parameter with an encoded slash: some web servers remove it before they decode. */
const SLASH_IN_PARAMETER = /;[^/?#;]*(?:%(?:25)*(?:2f|5c)|\\)/i;

const SCHEME = /^([A-Za-z*?][A-Za-z0-9+.*?-]*):/;
/** Schemes whose URIs have a host of the Internet. @see https://url.spec.whatwg.org/#special-scheme */
const WITH_DOMAIN = /^(?:https?|wss?|ftp):/i;
/** The user, host and port of a URI with a host of the Internet, and of `file:` with a host. */
const AUTHORITY = /^\s*(?:(?:https?|wss?|ftp):[\\/]*|file:[\\/]{2})([^\\/?#]*)/i;
const DRIVE_LETTER = /^[A-Za-z][:|]$/;

/**
 * Returns the canonical form of a URI: `scheme:/host/path`. Spellings that a server may treat as one URI have one form. They differ in the
 * cases of scheme and host, percent-encoding, `.` and `..`, empty segments, backslashes, user, port, and a slash at the end. Returns
 * undefined for a text that has no such form, because servers read its steps or its host in different ways.
 */
export function canonicalUri(uri: string): string | undefined {
  const slashed = slashedForm(uri);
  if (slashed === undefined) return undefined;
  const plain = withoutIgnored(slashed);
  const { segments } = stepsOf(restOf(plain), false);
  if (hasUnclearQuery(plain) || hasUnclearHost(uri, plain, segments[0])) return undefined;
  const hasUnclearParameters = STEP_WITH_PARAMETERS.test(plain) || SLASH_IN_PARAMETER.test(uri);
  if (hasUnclearParameters && WITH_DOMAIN.test(plain)) return undefined;
  if (MAYBE_STEP.test(plain) && hasUnclearSteps(uri, slashed, plain, segments)) return undefined;
  return canonicalForm(plain, segments, true);
}

/** Returns whether a URI has a host that is longer than any name of DNS. */
export function hasLongHost(uri: string): boolean {
  const authority = AUTHORITY.exec(uri)?.[1] ?? '';
  return authority.length - authority.lastIndexOf('@') - 1 > MAX_DOMAIN_CHARS;
}

/**
 * Returns the canonical form of a URI, and its form at servers that ignore a part. The part is the query, parameters in the path, or the
 * host of `file:`. Each is there with a slash at the end of its path, too. Returns undefined if the URI has no canonical form.
 */
export function spellingsOf(uri: string): readonly string[] | undefined {
  const canonical = canonicalUri(uri);
  if (canonical === undefined) return undefined;
  const forms = [canonical, withoutFileHost(uri, canonical) ?? canonical].flatMap((form) => {
    const query = form.slice(withoutQuery(form).length);
    // A slash right before the query is at the end of the path.
    const paths = [withoutQuery(form), withoutParameters(form)].map((path) => path.replace(/(?<!:)\/$/, ''));
    return [form, ...paths.flatMap((path) => [path, `${path}/`, `${path}${query}`, `${path}/${query}`])];
  });
  return [...new Set(forms)];
}

/** Returns whether a step is in a query, or right before it. Servers that parse the URI do not read it as one, servers that take the URI for a path do. */
function hasUnclearQuery(plain: string): boolean {
  const query = plain.search(/[?#]/);
  return query >= 0 && (CLIMBING.test(plain.slice(query)) || STEP_BEFORE_QUERY.test(plain));
}

/**
 * Returns whether `..` leads to different places for two kinds of parsers. A parser of paths ignores empty segments and takes the host for
 * a segment. A parser of URLs (https://url.spec.whatwg.org/#shorten-a-urls-path) does neither. Nor does it decode slashes, and a backslash
 * is a slash for some.
 */
function hasUnclearSteps(uri: string, slashed: string, plain: string, ignored: readonly string[]): boolean {
  const host = /^\/\/([^/]+)/.exec(restOf(plain))?.[1];
  // A parser of URLs drops tabs and line breaks first, and reads %2e as a dot.
  const raw = uri.replaceAll(/[\t\n\r]/g, '').replaceAll(/%2e/gi, '.');
  const expected = ignored.join('/');
  return [slashed.replaceAll(/[\t\n\r]/g, ''), raw, raw.replaceAll('\\', '/')].some((text) => {
    const { segments, climbs, leavesDrive } = stepsOf(restOf(text), true);
    const read = plainForm(segments.join('/'));
    return (host !== undefined && climbs) || leavesDrive || read === undefined || unstepped(read) !== expected;
  });
}

/** Returns the segments of a path without empty ones and `.`. */
function unstepped(path: string): string {
  const segments = path.split('/');
  return segments.filter((segment) => segment !== '' && segment !== '.').join('/');
}

/**
 * Returns whether parsers find different hosts. Some end the host at a backslash, and some decode the URI before they look for the host.
 * Parsers of URLs read a name or address in many spellings (https://url.spec.whatwg.org/#host-parsing).
 */
function hasUnclearHost(uri: string, plain: string, first: string | undefined): boolean {
  const hasDomain = WITH_DOMAIN.test(plain);
  const host = first === undefined ? '' : hostOf(first);
  if (host === '' && (hasDomain || (first !== undefined && !/^[?#]/.test(first)))) return true;
  if (hasDomain && !isPlainDomain(host)) return true;
  // Then all parsers read the same text, and the first segment.
  if (plain === uri && !MAYBE_STEP.test(plain)) return false;
  const isFile = /^file:/i.test(plain);
  return [withoutIgnored(uri), plain].some((text) => {
    const rest = restOf(text);
    const ofUrls = hasDomain ? /^[\\/]*([^\\/?#]*)/ : /^[\\/]{2}([^\\/?#]+)/;
    return [ofUrls, /^\/\/([^/?#]+)/].some((pattern) => {
      const authority = pattern.exec(rest)?.[1];
      if (authority === undefined) return false;
      const [, user = '', after = ''] = /^(.*@)?(.*)$/s.exec(authority) ?? [];
      // A parser that decodes first ends the host in such a user.
      if (/[/?#\\]/.test(decode(user) ?? '/')) return true;
      const decoded = decode(after);
      const named = decoded === undefined ? undefined : normalized(decoded, 'NFC');
      // Servers of files read the path, and ignore the host.
      return named === undefined || hostOf(named) !== host || (isFile && named.includes('/'));
    });
  });
}

/** Returns whether a host has the spelling that parsers of URLs make of it. An IPv4 address inside of an IPv6 address is another spelling. */
function isPlainDomain(host: string): boolean {
  const isOdd = host.length > MAX_DOMAIN_CHARS || host.endsWith('.') || host.startsWith('[::ffff:');
  return !isOdd && URL.parse(`http://${host}/`)?.hostname === host;
}

/** Returns the host in a decoded authority, or in the first segment of a path. */
function hostOf(authority: string): string {
  const [named = ''] = withoutIgnored(authority).split(/[/?#]/, 1);
  return bareHost(named).toLowerCase();
}

/** Returns a host without user, port and the dot at the end. The last `@` ends the user. */
function bareHost(authority: string): string {
  return authority
    .replace(/^.*@/s, '')
    .replace(/(?<=^[A-Za-z])\|$|:\d*$/, '')
    .replace(/\.$/, '');
}

function restOf(text: string): string {
  const scheme = SCHEME.exec(text)?.[1];
  return scheme === undefined ? text : text.slice(scheme.length + 1);
}

/** Segments of `//` and the host, which no step of a URL leaves. */
const AUTHORITY_SEGMENTS = 3;

/** Resolves `.` and `..`. `climbs` is true if a step leaves the host, `leavesDrive` if one leaves a drive of Windows. */
function stepsOf(rest: string, keepsEmpty: boolean) {
  const segments: string[] = [];
  let climbs = false;
  let leavesDrive = false;
  for (const segment of rest.split('/')) {
    if (segment === '..') {
      climbs ||= segments.length <= AUTHORITY_SEGMENTS;
      leavesDrive ||= DRIVE_LETTER.test(segments.at(-1) ?? '');
      segments.pop();
    } else if (segment !== '.' && (segment !== '' || keepsEmpty)) segments.push(segment);
  }
  return { segments, climbs, leavesDrive };
}

/** Returns the canonical form of a glob over URIs. A first segment with a wildcard may stand for a path, so its case is kept. */
export function canonicalGlob(glob: string): string {
  const plain = plainForm(glob);
  return plain === undefined ? glob : canonicalForm(plain, stepsOf(restOf(plain), false).segments, false);
}

/**
 * Returns the canonical form that a `file:` URI with a host has at servers that ignore the host; undefined for other URIs.
 */
function withoutFileHost(uri: string, canonical: string): string | undefined {
  if (!/^file:\/\/[^/]/i.test(plainForm(uri) ?? '')) return undefined;
  const [, , first, ...path] = canonical.split('/');
  return ['file:', ...(first === undefined ? [] : [authorityForm('', first, true)]), ...path].join('/');
}

/** Returns a URI decoded, without the characters that parsers ignore, and with slashes only. */
function plainForm(uri: string): string | undefined {
  const slashed = slashedForm(uri);
  return slashed === undefined ? undefined : withoutIgnored(slashed);
}

function slashedForm(uri: string): string | undefined {
  const decoded = uri.length > MAX_CHARS ? undefined : decode(uri);
  return decoded === undefined ? undefined : normalized(decoded.replaceAll('\\', '/'), 'NFC');
}

function withoutIgnored(text: string): string {
  return text.replaceAll(/[\s\p{Cc}]/gu, '');
}

function canonicalForm(plain: string, [first, ...path]: readonly string[], isUri: boolean): string {
  const scheme = SCHEME.exec(plain)?.[1];
  const joined = first === undefined ? '' : [authorityForm(plain, first, isUri), ...path].join('/');
  return scheme === undefined ? joined : `${scheme.toLowerCase()}:/${joined}`;
}

/** Returns the canonical form of the first segment. In a glob, `?` is a wildcard, and begins no query. */
function authorityForm(plain: string, first: string, isUri: boolean): string {
  if (isUri) return hostOf(first) + (/[?#].*$/s.exec(first)?.[0] ?? '');
  const host = bareHost(first);
  if (/[*?]/.test(host)) return host;
  const spelled = WITH_DOMAIN.test(plain) ? URL.parse(`http://${host}/`)?.hostname : undefined;
  return spelled ?? host.toLowerCase();
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
function withoutQuery(canonical: string): string {
  return canonical.replace(/[?#].*$/s, '');
}

/** Returns the path of a canonical form of a web server without parameters, such as `;a` in `/secret;a/key`: some servers ignore them. */
function withoutParameters(canonical: string): string {
  const path = withoutQuery(canonical);
  return WITH_DOMAIN.test(canonical) && path.includes(';') ? path.replaceAll(/;[^/]*/g, '') : path;
}
