import type { AuthConfig } from '../config/config.ts';
import { askable } from './challenge.ts';

interface ProtectedResourceMetadata {
  readonly resource: string;
  readonly authorization_servers: readonly string[];
  readonly scopes_supported?: readonly string[];
  readonly bearer_methods_supported: readonly ['header'];
}

const WELL_KNOWN = '/.well-known/oauth-protected-resource';

/** `/mcp/x` → `/.well-known/oauth-protected-resource/mcp/x`. */
export function metadataPath(path: string): string {
  return path === '/' ? WELL_KNOWN : WELL_KNOWN + path;
}

/** Where the metadata of an endpoint is, given the endpoint's URI. */
export function metadataUrl(endpoint: string): string {
  const { origin, pathname } = new URL(endpoint);
  return origin + metadataPath(pathname);
}

/**
 * How a client gets a token for an endpoint, or undefined where there is nothing to get: API keys are handed out by people.
 *
 * @param endpoint the endpoint's external URI, which clients compare with the one they called.
 * @see https://www.rfc-editor.org/rfc/rfc9728
 */
export function protectedResourceMetadata(
  endpoint: string,
  { jwt }: AuthConfig,
): ProtectedResourceMetadata | undefined {
  if (jwt.length === 0) return undefined;
  const scopes = askable([...new Set(jwt.flatMap(({ requiredScopes }) => requiredScopes))]);
  return {
    resource: endpoint,
    authorization_servers: jwt.map(({ issuer }) => issuer),
    ...(scopes.length === 0 ? {} : { scopes_supported: scopes }),
    bearer_methods_supported: ['header'],
  };
}
