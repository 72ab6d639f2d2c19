import { shown } from './change.ts';
import type { Difference } from './comparison.ts';

const STATUS = { added: 'is new', removed: 'is gone', changed: 'has changed' } as const;

/** Returns a definition for people, such as `tool "read_file"`. */
export function definitionName({ kind, key }: Pick<Difference, 'kind' | 'key'>): string {
  return kind === 'instructions' ? 'instructions' : `${kind} "${shown(key)}"`;
}

/** Returns a difference as one line, such as `tool "read_file" has changed: description: "…" → "…"`. */
export function differenceLine(difference: Difference): string {
  const { status, changes } = difference;
  const words = changes.map(({ text }) => text).join('; ');
  return `${definitionName(difference)} ${STATUS[status]}${words === '' ? '' : `: ${words}`}`;
}
