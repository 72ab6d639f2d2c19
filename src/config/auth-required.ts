import type { AuthConfig } from './values/config.ts';

/** Returns whether clients need credentials. A file or store of keys counts also while it has none: then every client is refused. */
export function isAuthRequired({ jwt, apiKeys, introspection = [], keyFile, keysInRedis }: AuthConfig): boolean {
  return (
    jwt.length > 0 || introspection.length > 0 || apiKeys.length > 0 || keyFile !== undefined || keysInRedis === true
  );
}
