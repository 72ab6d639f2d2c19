import type { Change } from './change.ts';
import { type Definition, definitionsOf, idOf, type Listed } from './definition.ts';
import { definitionChanges, suspicions } from './definition-changes.ts';
import type { PinnedLists } from './lock-file.ts';

/** One definition that is not as it is pinned. */
export interface Difference extends Pick<Definition, 'kind' | 'key'> {
  /** `added`: not in the lock. `removed`: only in the lock. */
  readonly status: 'added' | 'removed' | 'changed';
  /** The changes in words. Of an added definition, the suspicious parts. Empty beyond the number that is explained. */
  readonly changes: readonly Change[];
}

/**
 * Compares what an upstream offers with what is pinned.
 *
 * @param pinned undefined for an upstream that is not in the lock: all that it offers is added then.
 * @param mostExplained definitions whose changes are described; upstreams choose how many differ.
 */
export function compareLists(
  pinned: PinnedLists | undefined,
  listed: Listed,
  mostExplained = Infinity,
): readonly Difference[] {
  const differences: Difference[] = [];
  const offered = definitionsOf(listed);
  const explained = (describe: () => readonly Change[]) => (differences.length < mostExplained ? describe() : []);
  for (const [id, definitions] of offered) {
    const before = pinned?.definitions.get(id);
    // Of several items with one name a client may read any.
    const after = definitions.find(({ text }) => text === '' || text !== before?.text);
    if (after === undefined) continue;
    const { kind, key } = after;
    if (before === undefined)
      differences.push({ kind, key, status: 'added', changes: explained(() => suspicions(after)) });
    else differences.push({ kind, key, status: 'changed', changes: explained(() => definitionChanges(before, after)) });
  }
  for (const { kind, key } of pinned?.definitions.values() ?? []) {
    if (!offered.has(idOf({ kind, key }))) differences.push({ kind, key, status: 'removed', changes: [] });
  }
  return differences;
}
