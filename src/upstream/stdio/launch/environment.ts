import { WITHIN } from './nesting.ts';

/** Variables of our environment that a server may need to run and to find its files. */
const NAMES = new Set(
  `PATH HOME USER LOGNAME SHELL TERM TMPDIR TZ LANG LANGUAGE
   NODE_EXTRA_CA_CERTS SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE
   UV_CACHE_DIR UV_PYTHON_INSTALL_DIR UV_TOOL_DIR UV_OFFLINE ${WITHIN}`.split(/\s+/),
);

const PREFIXES = ['LC_', 'XDG_'];

/** Variables with the addresses of package registries and proxies, in lower or upper case. Their values may contain a password. */
const ADDRESS_NAMES = new Set(
  `http_proxy https_proxy all_proxy no_proxy
   npm_config_registry npm_config_cache uv_index_url uv_default_index`.split(/\s+/),
);

function isPassedOn(name: string, value: string): boolean {
  // A shell function exported by bash is code that a shell in the child would run.
  if (value.startsWith('()')) return false;
  if (NAMES.has(name) || PREFIXES.some((prefix) => name.startsWith(prefix))) return true;
  return ADDRESS_NAMES.has(name.toLowerCase()) && !value.includes('@');
}

/**
 * Returns the environment of a server's process: an allow-listed part of ours, and the variables of the config.
 *
 * An allow-list is used because our environment contains secrets. The `npm_*` variables of an `npm run` that has started us are left out
 * for another reason. With them, an `npx` that we start would work on our package.
 */
export function childEnvironment(
  gatewayEnv: Readonly<Record<string, string | undefined>>,
  configured: Readonly<Record<string, string>>,
): Record<string, string> {
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(gatewayEnv)) {
    if (value !== undefined && isPassedOn(name, value)) env[name] = value;
  }
  return { ...env, ...configured };
}
