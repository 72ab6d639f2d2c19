/** Calls to a table that are made at the same time. */
const AT_ONCE = 64;

/** Runs `each` for every item, for a bounded number of them at once. */
export async function inGroups<Item>(items: readonly Item[], each: (item: Item) => Promise<void>): Promise<void> {
  for (let from = 0; from < items.length; from += AT_ONCE) {
    await Promise.all(items.slice(from, from + AT_ONCE).map(each));
  }
}
