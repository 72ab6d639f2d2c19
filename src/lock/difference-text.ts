import { shown } from './change.ts';
import type { Difference } from './comparison.ts';

const STATUS = { added: 'is new', removed: 'is gone', changed: 'has changed' } as const;

/** Returns a difference without its changes, such as `tool "read_file" has changed`. */
export function statusText({ kind, key, status }: Difference): string {
  return `${kind === 'instructions' ? kind : `${kind} "${shown(key)}"`} ${STATUS[status]}`;
}

/** Returns a difference as one line, such as `tool "read_file" has changed: description: "…" → "…"`. */
export function differenceLine(difference: Difference): string {
  const words = difference.changes.map(({ text }) => text).join('; ');
  return `${statusText(difference)}${words === '' ? '' : `: ${words}`}`;
}
