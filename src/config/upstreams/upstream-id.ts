/**
 * Replaces each run of characters that are not letters or digits with a separator, and makes the first character a
 * letter.
 */
function slug(key: string, separator: (run: string) => string): string {
  const id = key
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, separator)
    .replace(/^[-_]|[-_]$/g, '');
  return /^[a-z]/.test(id) ? id : `s${id}`;
}

/**
 * Returns the id of an upstream, from its key in the file: lower case, other characters as `-`, a letter first.
 * `GitHub Issues` → `github-issues`, `1mcp` → `s1mcp`.
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
