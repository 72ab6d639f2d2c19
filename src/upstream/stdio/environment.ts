/** What a server may need of our environment to run and to find its files. */
const NAMES = new Set([
  'PATH',
  'HOME',
  'USER',
  'LOGNAME',
  'SHELL',
  'TERM',
  'TMPDIR',
  'TZ',
  'LANG',
  'LANGUAGE',
  'NODE_EXTRA_CA_CERTS',
  'SSL_CERT_FILE',
  'SSL_CERT_DIR',
  'REQUESTS_CA_BUNDLE',
  'UV_CACHE_DIR',
  'UV_PYTHON_INSTALL_DIR',
  'UV_TOOL_DIR',
  'UV_OFFLINE',
]);

const PREFIXES = ['LC_', 'XDG_'];

/** Where packages are downloaded from and through, in either case of letters. Their values may hold a password. */
const ADDRESSES = new Set([
  'http_proxy',
  'https_proxy',
  'all_proxy',
  'no_proxy',
  'npm_config_registry',
  'npm_config_cache',
  'uv_index_url',
  'uv_default_index',
]);

function isPassedOn(name: string, value: string): boolean {
  // A shell function exported by bash is code that a shell in the child would run.
  if (value.startsWith('()')) return false;
  if (NAMES.has(name) || PREFIXES.some((prefix) => name.startsWith(prefix))) return true;
  return ADDRESSES.has(name.toLowerCase()) && !value.includes('@');
}

/**
 * The environment of a server's process: the allow-listed part of ours, and what the config sets.
 *
 * An allow-list because ours holds secrets. The `npm_*` variables of an `npm run` around us stay out for another reason:
 * they would tell an `npx` below us that it works on our package.
 */
export function childEnvironment(
  ours: Readonly<Record<string, string | undefined>>,
  configured: Readonly<Record<string, string>>,
): Record<string, string> {
  const env: Record<string, string> = {};
  for (const [name, value] of Object.entries(ours)) {
    if (value !== undefined && isPassedOn(name, value)) env[name] = value;
  }
  return { ...env, ...configured };
}
