/**
 * The id of an upstream, from its key in the file: lower case, other characters as `-`, a letter first.
 * `GitHub Issues` → `github-issues`, `1mcp` → `s1mcp`.
 */
export function upstreamId(key: string): string {
  const id = key
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '');
  return /^[a-z]/.test(id) ? id : `s${id}`;
}
