import { shownText } from '../peer-text.ts';

/**
 * The effect of a change. `suspicious`: it may be aimed at the model or its user. `breaking`: calls that were right may fail.
 * `wider`: calls may do or carry more than before. `other`: a person has to judge.
 */
export type Risk = 'suspicious' | 'breaking' | 'wider' | 'other';

/** The kinds of changes, each with its risk. The names are a part of `lock --check --json` and do not change. */
export const CHANGES = {
  'hidden-characters': 'suspicious',
  'imperative-text': 'suspicious',
  'hint-weakened': 'suspicious',
  'hint-changed': 'other',
  'argument-added': 'wider',
  'argument-optional': 'wider',
  'argument-required': 'breaking',
  'argument-removed': 'breaking',
  'schema-wider': 'wider',
  'schema-narrower': 'breaking',
  'schema-changed': 'other',
  'description-changed': 'other',
  'member-changed': 'other',
} as const satisfies Record<string, Risk>;
export type ChangeCode = keyof typeof CHANGES;

export interface Change {
  readonly code: ChangeCode;
  readonly risk: Risk;
  /** The place in the definition, such as `inputSchema.properties.path.description`. */
  readonly at: string;
  /** The change in words, without hidden characters. */
  readonly text: string;
}

const MAX_CHARS = 120;
/** Characters that are the same in both texts and are shown before a change. */
const CONTEXT_CHARS = 20;

export function change(code: ChangeCode, path: readonly string[], text: string): Change {
  const at = path.map(shown).join('.');
  return { code, risk: CHANGES[code], at, text: at === '' ? text : `${at}: ${text}` };
}

/** Returns a text of a peer for people: on one line, cut, with unseen characters as escapes. */
export function shown(text: string): string {
  return shownText(text.replaceAll(/[ \n\r\t]+/g, ' '), MAX_CHARS);
}

/** Returns any JSON value for people. */
export function shownValue(value: unknown): string {
  return value === undefined ? 'absent' : shown(JSON.stringify(value));
}

/** Returns the parts of two texts that differ, each with a little of the text before it. */
export function textDifference(before: string, after: string): string {
  let start = 0;
  while (start < before.length && before[start] === after[start]) start++;
  let end = 0;
  const most = Math.min(before.length, after.length) - start;
  while (end < most && before.at(-1 - end) === after.at(-1 - end)) end++;
  const from = Math.max(0, start - CONTEXT_CHARS);
  const part = (text: string) => {
    const to = text.length - end;
    return JSON.stringify(shown(`${from > 0 ? '…' : ''}${text.slice(from, to)}${end > 0 ? '…' : ''}`));
  };
  return `${part(before)} → ${part(after)}`;
}
