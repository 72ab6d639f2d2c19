import type { ViewUpstream } from './view.ts';

const SCHEME = /^[A-Za-z][A-Za-z0-9+.-]*:/;
const WEB = /^https?:/i;
const UI = 'ui://';

/** Both must match nothing that {@link publishUri} leaves as it is, or an upstream could write another one's URIs. */
const PREFIXED = /^([a-z][a-z0-9-]*)\+[A-Za-z][A-Za-z0-9+.-]*:/;
const PREFIXED_UI = /^ui:\/\/([a-z][a-z0-9-]*)\+/;

export function hasScheme(uri: string): boolean {
  return SCHEME.test(uri);
}

/** Clients may fetch these themselves, so they are never renamed. */
export function isWeb(uri: string): boolean {
  return WEB.test(uri);
}

/**
 * `file:///a` → `<id>+file:///a`, `ui://card` → `ui://<id>+card` (hosts act on that scheme only). The same for a
 * template, as long as its scheme is literal. Web URIs and what has no scheme stay, and are routed by who lists them.
 */
function publishUri(id: string, uri: string): string {
  if (uri.startsWith(UI)) return `${UI}${id}+${uri.slice(UI.length)}`;
  if (WEB.test(uri) || !SCHEME.test(uri)) return uri;
  return `${id}+${uri}`;
}

/** The upstream a published URI names, whether or not there is one, and that upstream's own URI. */
export function unpublishUri(uri: string): { readonly id: string; readonly uri: string } | undefined {
  const ui = PREFIXED_UI.exec(uri);
  if (ui?.[1] !== undefined) return { id: ui[1], uri: UI + uri.slice(ui[0].length) };
  const id = PREFIXED.exec(uri)?.[1];
  return id === undefined ? undefined : { id, uri: uri.slice(id.length + 1) };
}

export function uriToClient(upstream: ViewUpstream, uri: string): string {
  return upstream.rawUris ? uri : publishUri(upstream.id, uri);
}

/** The upstream's own form of a URI that is known to be meant for it. */
export function uriToUpstream(upstream: ViewUpstream, uri: string): string {
  if (upstream.rawUris) return uri;
  const named = unpublishUri(uri);
  return named?.id === upstream.id ? named.uri : uri;
}
