import { hash } from 'node:crypto';

/** The characters of the hash of a key, hex. */
const HASH_CHARS = 6;

/**
 * Replaces each run of characters that are not letters or digits of ASCII with a separator, and makes the first character a
 * letter. A key without any such letter or digit becomes a hash, so that two of them differ.
 */
function slug(key: string, separator: (run: string) => string): string {
  const id = key
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, separator)
    .replace(/^[-_]|[-_]$/g, '');
  if (id === '') return `s-${hash('sha256', key).slice(0, HASH_CHARS)}`;
  return /^[a-z]/.test(id) ? id : `s${id}`;
}

/**
 * Returns the id of an upstream, from its key in the file: lower case, other characters as `-`, a letter first.
 * `GitHub Issues` → `github-issues`, `1mcp` → `s1mcp`, `地图` → `s-41ab2e`.
 */
export function upstreamId(key: string): string {
  return slug(key, () => '-');
}

/**
 * Returns the prefix of an upstream whose entry has none: the id, with the underscores of the key. `My_Server` → `my_server__`.
 * No such prefix begins with another one, since two underscores stand only at the end.
 */
export function defaultPrefix(key: string): string {
  return `${slug(key, (run) => (run.includes('_') ? '_' : '-'))}__`;
}
