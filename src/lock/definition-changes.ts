import { isRecord } from '../json/record.ts';
import { isDeepStrictEqual } from 'node:util';
import { type Change, change, shown, shownValue } from './change.ts';
import type { Definition } from './definition.ts';
import { hiddenCharacters, hiddenSequence } from './hidden-characters.ts';
import { imperatives } from './imperative-text.ts';
import { newArgument, NO_MEMBERS, schemaChanges, textChange } from './schema-changes.ts';

const SCHEMAS = new Set(['inputSchema', 'outputSchema']);
const TEXTS = new Set(['title', 'description']);

/** The hints of tools with their defaults, and the value that asks a client for more care. */
const HINTS = [
  { name: 'readOnlyHint', fallback: false, careful: false },
  { name: 'destructiveHint', fallback: true, careful: true },
  { name: 'idempotentHint', fallback: false, careful: false },
  { name: 'openWorldHint', fallback: true, careful: true },
] as const;

/**
 * Returns the changes from a pinned definition to the one that the upstream offers now; at least one if their texts differ. The
 * suspicious ones come first.
 */
export function definitionChanges(before: Definition, after: Definition): readonly Change[] {
  if (before.text !== '' && before.text === after.text) return [];
  if (after.text === '')
    return [change('member-changed', [], 'the definition cannot be read, or is nested too deeply')];
  const [from, to] = [parse(before.text), parse(after.text)];
  const changes = [...findings(to, from, []), ...memberChanges(before.kind, from, to)];
  if (changes.length === 0) return [change('member-changed', [], 'the definition is written in another way')];
  return changes;
}

/** Returns what a reviewer of a new definition should look at: hidden characters and orders to the model. */
export function suspicions(definition: Definition): readonly Change[] {
  const key = findings(definition.key, undefined, ['name']);
  if (definition.text === '') return key;
  return [...key, ...findings(parse(definition.text), undefined, [])];
}

/** Returns a definition as objects that inherit nothing: a member may be called `constructor`. */
function parse(text: string): unknown {
  if (text === '') return undefined;
  return JSON.parse(text, (_name, value: unknown) => (isRecord(value) ? { __proto__: null, ...value } : value));
}

function memberChanges(kind: Definition['kind'], before: unknown, after: unknown): readonly Change[] {
  if (!isRecord(before) || !isRecord(after)) return [textChange(before, after, [])];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.flatMap((name): readonly Change[] => {
    const [from, to] = [before[name], after[name]];
    if (isDeepStrictEqual(from, to)) return [];
    if (TEXTS.has(name)) return [textChange(from, to, [name])];
    if (SCHEMAS.has(name) && from !== undefined && to !== undefined) return schemaChanges(from, to, [name]);
    if (name === 'annotations' && kind === 'tool') return hintChanges(from, to);
    if (name === 'arguments' && kind === 'prompt') return argumentChanges(from, to);
    return [change('member-changed', [name], `${shownValue(from)} → ${shownValue(to)}`)];
  });
}

function hintChanges(before: unknown, after: unknown): readonly Change[] {
  const [from, to] = [isRecord(before) ? before : NO_MEMBERS, isRecord(after) ? after : NO_MEMBERS];
  const changes = HINTS.flatMap(({ name, fallback, careful }): readonly Change[] => {
    const [was, is] = [from[name] ?? fallback, to[name] ?? fallback];
    if (was === is) return [];
    const text = `${shownValue(was)} → ${shownValue(is)}`;
    const isWeaker = is === careful;
    return isWeaker
      ? [change('hint-weakened', ['annotations', name], `${text}; a client that trusted the hint asked no one`)]
      : [change('hint-changed', ['annotations', name], `${text}; clients that trust the hint ask less often`)];
  });
  const others = new Set([...Object.keys(from), ...Object.keys(to)]);
  for (const { name } of HINTS) others.delete(name);
  const more = [...others].flatMap((name) => {
    if (isDeepStrictEqual(from[name], to[name])) return [];
    return [change('member-changed', ['annotations', name], `${shownValue(from[name])} → ${shownValue(to[name])}`)];
  });
  if (changes.length + more.length > 0) return [...changes, ...more];
  return [change('hint-changed', ['annotations'], 'the same hints are written in another way')];
}

/** Compares the arguments of a prompt, by name. */
function argumentChanges(before: unknown, after: unknown): readonly Change[] {
  const [from, to] = [byName(before), byName(after)];
  const changes = [...new Set([...from.keys(), ...to.keys()])].flatMap((name): readonly Change[] => {
    const [was, is] = [from.get(name), to.get(name)];
    const at = ['arguments', name];
    if (is === undefined) return [change('argument-removed', at, 'the argument is gone')];
    const isNeeded = is['required'] === true;
    if (was === undefined) return [newArgument(at, isNeeded)];
    if (isDeepStrictEqual(was, is)) return [];
    const wasNeeded = was['required'] === true;
    const { required: _was, ...oldRest } = was;
    const { required: _is, ...newRest } = is;
    const need = isNeeded
      ? change('argument-required', at, 'is required now')
      : change('argument-optional', at, 'is optional now');
    const text = textChange(was['description'], is['description'], [...at, 'description']);
    return [...(wasNeeded === isNeeded ? [] : [need]), ...(isDeepStrictEqual(oldRest, newRest) ? [] : [text])];
  });
  return changes.length > 0 ? changes : [change('member-changed', ['arguments'], 'the arguments have another order')];
}

function byName(value: unknown): ReadonlyMap<string, Readonly<Record<string, unknown>>> {
  const items: readonly unknown[] = Array.isArray(value) ? value : [];
  return new Map(items.filter(isRecord).map((item) => [String(item['name']), item]));
}

/** Returns the suspicious parts of all texts in a value that the text at the same place before does not have. */
function findings(after: unknown, before: unknown, path: readonly string[]): readonly Change[] {
  if (typeof after === 'string') return textFindings(after, typeof before === 'string' ? before : '', path);
  if (Array.isArray(after)) {
    const earlier: readonly unknown[] = Array.isArray(before) ? before : [];
    return after.flatMap((item: unknown, at) => findings(item, earlier[at], [...path, String(at)]));
  }
  if (!isRecord(after)) return [];
  const earlier = isRecord(before) ? before : NO_MEMBERS;
  return Object.entries(after).flatMap(([name, value]) => {
    const at = [...path, name];
    const isNew = !Object.hasOwn(earlier, name);
    return [...(isNew ? textFindings(name, '', at) : []), ...findings(value, isNew ? undefined : earlier[name], at)];
  });
}

function textFindings(after: string, before: string, path: readonly string[]): readonly Change[] {
  if (after === before) return [];
  const hidden = hiddenCharacters(after);
  const earlier = new Set(imperatives(before));
  return [
    ...(hidden.length > 0 && hiddenSequence(after) !== hiddenSequence(before)
      ? [change('hidden-characters', path, `${hidden.join(', ')} characters in ${JSON.stringify(shown(after))}`)]
      : []),
    ...imperatives(after)
      .filter((what) => !earlier.has(what))
      .map((what) => change('imperative-text', path, `${what}: ${JSON.stringify(shown(after))}`)),
  ];
}
