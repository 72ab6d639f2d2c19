/**
 * Returns the HTTP statuses in the tables of docs/errors.md: in the third column of a row of the error table, and in the first one of answers without
 * a JSON-RPC error.
 */
export function documentedStatuses(page: string): ReadonlySet<number> {
  const cells = page.split('\n').flatMap((line) => {
    const [, first = '', , third = ''] = line.split('|').map((cell) => cell.trim());
    return first.startsWith('`') ? [third] : [first];
  });
  return new Set(cells.filter((cell) => /^\d{3}$/.test(cell)).map(Number));
}
