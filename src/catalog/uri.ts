import type { ViewUpstream } from './view.ts';

const SCHEME = /^[A-Za-z][A-Za-z0-9+.-]*:/;
const WEB = /^https?:/i;
const UI = 'ui://';

/**
 * Patterns of published URIs. Neither may match a URI that {@link publishUri} leaves unchanged, or an upstream could
 * list URIs of another one.
 */
const PREFIXED = /^([a-z][a-z0-9-]*)\+[A-Za-z][A-Za-z0-9+.-]*:/;
const PREFIXED_UI = /^ui:\/\/([a-z][a-z0-9-]*)\+/;

/** What many readers of URLs leave out: anything unseen at the start, and line breaks and tabs everywhere. */
const LEADING = /^[\s\p{C}]+/u;
const WITHIN = /[\t\n\r]+/g;

/**
 * Returns the URI that readers of URLs find in a text that seems to have no scheme. In ` b+file:///x` it is `b+file:///x`. Undefined for
 * other texts.
 *
 * @see https://url.spec.whatwg.org/#concept-basic-url-parser
 */
export function disguisedUri(text: string): string | undefined {
  if (SCHEME.test(text)) return undefined;
  const plain = text.replace(LEADING, '').replaceAll(WITHIN, '');
  return plain !== text && SCHEME.test(plain) && !WEB.test(plain) ? plain : undefined;
}

/** Returns whether a URI or template begins with a literal scheme. */
export function hasScheme(uri: string): boolean {
  return SCHEME.test(uri);
}

/** Returns whether a URI is http or https. Clients may fetch these themselves, so they are never renamed. */
export function isWeb(uri: string): boolean {
  return WEB.test(uri);
}

/**
 * Adds an upstream's id to a URI: `file:///a` → `<id>+file:///a`, `ui://card` → `ui://<id>+card`, since hosts recognise
 * a user interface by this scheme. Templates with a literal scheme change in the same way. Web URIs and texts without a
 * scheme stay unchanged, and are routed to the upstream that lists them. Of a disguised URI, the URI that readers find is published.
 */
function publishUri(id: string, uri: string): string {
  if (uri.startsWith(UI)) return `${UI}${id}+${uri.slice(UI.length)}`;
  if (WEB.test(uri)) return uri;
  if (SCHEME.test(uri)) return `${id}+${uri}`;
  const plain = disguisedUri(uri);
  return plain === undefined ? uri : publishUri(id, plain);
}

/**
 * Splits a published URI into the id of its upstream, which may not exist, and the upstream's own URI. Returns
 * undefined if it contains no id.
 */
export function unpublishUri(uri: string): { readonly id: string; readonly uri: string } | undefined {
  const ui = PREFIXED_UI.exec(uri);
  if (ui?.[1] !== undefined) return { id: ui[1], uri: UI + uri.slice(ui[0].length) };
  const id = PREFIXED.exec(uri)?.[1];
  return id === undefined ? undefined : { id, uri: uri.slice(id.length + 1) };
}

/** Returns the published form of an upstream's URI. */
export function uriToClient(upstream: ViewUpstream, uri: string): string {
  return upstream.rawUris ? uri : publishUri(upstream.id, uri);
}
