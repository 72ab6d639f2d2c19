import type { Change } from './change.ts';
import { type Definition, definitionsOf, idOf, type Listed } from './definition.ts';
import { definitionChanges, suspicions } from './definition-changes.ts';
import type { PinnedLists } from './lock-file.ts';

/** One definition that is not as it is pinned. */
export interface Difference extends Pick<Definition, 'kind' | 'key'> {
  /** `added`: not in the lock. `removed`: only in the lock. */
  readonly status: 'added' | 'removed' | 'changed';
  /** The changes in words. Of an added definition, the suspicious parts. Empty beyond the bounds. */
  readonly changes: readonly Change[];
}

/** Bounds on the definitions whose changes are described. Upstreams choose how many differ, and how long they are. */
export interface ExplanationBounds {
  readonly definitions: number;
  /** The characters of them, before and after, in all. */
  readonly chars: number;
}

/**
 * Compares what an upstream offers with what is pinned.
 *
 * @param pinned undefined for an upstream that is not in the lock: all that it offers is added then.
 */
export function compareLists(
  pinned: PinnedLists | undefined,
  listed: Listed,
  bounds: ExplanationBounds = { definitions: Infinity, chars: Infinity },
): readonly Difference[] {
  const differences: Difference[] = [];
  const offered = definitionsOf(listed);
  let charsLeft = bounds.chars;
  const explain = (before: Definition | undefined, after: Definition): readonly Change[] => {
    const chars = after.key.length + after.text.length + (before?.text.length ?? 0);
    if (differences.length >= bounds.definitions || chars > charsLeft) return [];
    charsLeft -= chars;
    return before === undefined ? suspicions(after) : definitionChanges(before, after);
  };
  for (const [id, definitions] of offered) {
    const before = pinned?.definitions.get(id);
    // Of several items with one name a client may read any.
    const after = definitions.find(({ text }) => text === '' || text !== before?.text);
    if (after === undefined) continue;
    const { kind, key } = after;
    const status = before === undefined ? 'added' : 'changed';
    differences.push({ kind, key, status, changes: explain(before, after) });
  }
  for (const { kind, key } of pinned?.definitions.values() ?? []) {
    if (!offered.has(idOf({ kind, key }))) differences.push({ kind, key, status: 'removed', changes: [] });
  }
  return differences;
}
