import type { AuthConfig } from '../config/values/config.ts';
import { askable } from '../policy/scopes-on-demand.ts';
import { advertisedScopes } from './challenge.ts';

interface ProtectedResourceMetadata {
  readonly resource: string;
  readonly authorization_servers: readonly string[];
  readonly scopes_supported?: readonly string[];
  readonly bearer_methods_supported: readonly ['header'];
}

const WELL_KNOWN = '/.well-known/oauth-protected-resource';

/** Returns the path of the metadata of an endpoint: `/mcp/x` → `/.well-known/oauth-protected-resource/mcp/x`. */
export function metadataPath(path: string): string {
  return path === '/' ? WELL_KNOWN : WELL_KNOWN + path;
}

/** Returns the URL of the metadata of an endpoint, given the endpoint's URI. */
export function metadataUrl(endpoint: string): string {
  const { origin, pathname } = new URL(endpoint);
  return origin + metadataPath(pathname);
}

/**
 * Returns the protected resource metadata of an endpoint, which says where to get a token. Returns undefined without
 * token issuers: API keys have no metadata.
 *
 * @param endpoint the endpoint's external URI; clients compare it with the URI that they called.
 * @see https://www.rfc-editor.org/rfc/rfc9728
 */
export function protectedResourceMetadata(
  endpoint: string,
  { jwt, introspection = [] }: AuthConfig,
): ProtectedResourceMetadata | undefined {
  const issuers = [...jwt, ...introspection];
  if (issuers.length === 0) return undefined;
  const scopes = askable([...new Set(issuers.flatMap(advertisedScopes))]);
  return {
    resource: endpoint,
    authorization_servers: issuers.map(({ issuer }) => issuer),
    ...(scopes.length === 0 ? {} : { scopes_supported: scopes }),
    bearer_methods_supported: ['header'],
  };
}

/** The path where clients of 2025-03-26 look for the authorization server: at the origin of the endpoint. */
export const AUTHORIZATION_SERVER_PATH = '/.well-known/oauth-authorization-server';

/**
 * Returns the URL of the metadata of the first issuer; undefined without issuers. The form of OpenID Connect, since nearly all issuers have it.
 *
 * @see https://modelcontextprotocol.io/specification/2025-03-26/basic/authorization#2-3-2-authorization-base-url
 * @see https://openid.net/specs/openid-connect-discovery-1_0.html#ProviderConfig
 */
export function issuerMetadataUrl({ jwt, introspection = [] }: AuthConfig): string | undefined {
  const [first] = [...jwt, ...introspection];
  return first === undefined ? undefined : `${first.issuer.replace(/\/$/, '')}/.well-known/openid-configuration`;
}
