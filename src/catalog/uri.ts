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
 * scheme stay unchanged, and are routed to the upstream that lists them.
 */
function publishUri(id: string, uri: string): string {
  if (uri.startsWith(UI)) return `${UI}${id}+${uri.slice(UI.length)}`;
  if (WEB.test(uri) || !SCHEME.test(uri)) return uri;
  return `${id}+${uri}`;
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
