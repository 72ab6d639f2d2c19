/** Returns the part of a URL that operators may see: its origin. Paths, queries and user names may hold secrets. */
export function shownUrl(url: URL): string {
  const { origin, protocol, host, pathname, search } = url;
  const shown = origin === 'null' ? `${protocol}//${host}` : origin;
  return pathname === '/' && search === '' ? shown : `${shown}/…`;
}
