import { isArrayText, isObjectText, JsonTextError, RawObject, rawItems } from '../json/json.ts';
import { isMalformed, unlessMalformed } from '../json/malformed.ts';
import { type Era, ERAS } from '../protocol/revisions.ts';
import { objectText } from '../json/ordered.ts';
import { canonicalText, reviewableText } from './canonical.ts';
import { type Definition, definitionsOf, idOf, LIST_NAMES, type Listed, LISTED_KINDS } from './definition.ts';

/** The pinned definitions of one upstream in one or both eras. */
export interface PinnedLists {
  readonly eras: readonly Era[];
  /** Name and version of the server that had these lists. For the reviewer; not compared. */
  readonly server: string;
  /** By the id of a definition; see `idOf`. */
  readonly definitions: ReadonlyMap<string, Definition>;
}

/** The content of a lock file: the pinned lists by upstream id. Several of one upstream are for different eras. */
export type Lock = ReadonlyMap<string, readonly PinnedLists[]>;

const VERSION = '1';
const COMMENT =
  'Tool definitions that were reviewed. "linkspan lock" writes this file, and "linkspan lock --check" compares it. See docs/lock.md.';

/** A lock file that cannot be used. */
export class LockFileError extends Error {
  override readonly name = 'LockFileError';
  /** Counts from 1; 0 for the file as a whole. */
  readonly line: number;
  readonly column: number;

  constructor(message: string, line = 0, column = 0, cause?: unknown) {
    super(message, { cause });
    this.line = line;
    this.column = column;
  }
}

/** Returns the lists of a server as they are pinned. Of several items with one name, the first is the one that clients get. */
export function pinLists(listed: Listed & { readonly serverInfo: RawObject }, eras: readonly Era[]): PinnedLists {
  const definitions = new Map<string, Definition>();
  for (const [id, [first]] of definitionsOf(listed)) if (first !== undefined) definitions.set(id, first);
  return { eras, server: serverText(listed.serverInfo), definitions };
}

function serverText(info: RawObject): string {
  const text = (name: string) => unlessMalformed(() => info.string(name), undefined) ?? '';
  return `${text('name')} ${text('version')}`.trim().slice(0, 200);
}

/** Returns the lists of all eras of an upstream: once for eras whose definitions are equal. */
export function mergeEras(lists: readonly PinnedLists[]): readonly PinnedLists[] {
  const merged: PinnedLists[] = [];
  for (const one of lists) {
    const same = merged.findIndex((other) => haveSameDefinitions(one, other));
    const other = merged[same];
    if (other === undefined) merged.push(one);
    else merged[same] = { ...other, eras: ERAS.filter((era) => other.eras.includes(era) || one.eras.includes(era)) };
  }
  return merged;
}

function haveSameDefinitions(a: PinnedLists, b: PinnedLists): boolean {
  if (a.definitions.size !== b.definitions.size) return false;
  return [...a.definitions].every(([id, { text }]) => text !== '' && b.definitions.get(id)?.text === text);
}

/** Returns the pinned lists that clients of an era are served by: those of the era, else those of the other one. */
export function listsFor(lists: readonly PinnedLists[] | undefined, era: Era): PinnedLists | undefined {
  return lists?.find(({ eras }) => eras.includes(era)) ?? lists?.[0];
}

/** Returns the text of a lock file. Equal locks have equal texts, whatever the order in which upstreams list their items. */
export function lockText(lock: Lock): string {
  const upstreams = [...lock].map(([id, lists]): [string, string] => [id, `[${lists.map(listsText).join(',')}]`]);
  const members = [
    `  "//": ${JSON.stringify(COMMENT)}`,
    `  "version": ${VERSION}`,
    `  "upstreams": ${reviewableText(objectText(upstreams), '', '  ')}`,
  ];
  return `{\n${members.join(',\n')}\n}\n`;
}

function listsText({ eras, server, definitions }: PinnedLists): string {
  const kinds = LISTED_KINDS.flatMap((kind) => {
    const items = [...definitions.values()].filter((one) => one.kind === kind && one.text !== '');
    if (items.length === 0) return [];
    return [`${JSON.stringify(LIST_NAMES[kind])}:${objectText(items.map(({ key, text }) => [key, text] as const))}`];
  });
  const instructions = definitions.get(idOf({ kind: 'instructions', key: '' }))?.text;
  const members = [
    `"eras":${JSON.stringify(eras)}`,
    `"server":${JSON.stringify(server)}`,
    ...(instructions === undefined ? [] : [`"instructions":${instructions}`]),
    ...kinds,
  ];
  return `{${members.join(',')}}`;
}

/**
 * Reads the text of a lock file.
 *
 * @throws {LockFileError} with the place of the first problem.
 */
export function parseLock(text: string): Lock {
  try {
    return read(text);
  } catch (thrown) {
    if (thrown instanceof LockFileError) throw thrown;
    if (!isMalformed(thrown)) throw thrown;
    const place = placeOf(text);
    throw new LockFileError(
      `is not a lock file that can be read; restore it, or write it again with "linkspan lock"`,
      ...place,
      thrown,
    );
  }
}

/** Returns the line and column of the first syntax error; 0 if there is none that the whole text shows. */
function placeOf(text: string): readonly [number, number] {
  try {
    RawObject.parse(text);
    return [0, 0];
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
    const before = text.slice(0, thrown.offset).split('\n');
    return [before.length, (before.at(-1)?.length ?? 0) + 1];
  }
}

function read(text: string): Lock {
  const file = RawObject.parse(text);
  const version = file.raw('version');
  if (version !== VERSION) {
    throw new LockFileError(`has the version ${version ?? '(none)'}, and this linkspan reads version ${VERSION}`);
  }
  const upstreams = file.object('upstreams');
  if (upstreams === undefined) throw new LockFileError('has no "upstreams"');
  return new Map(upstreams.keys().map((id) => [id, listsOf(id, upstreams.raw(id) ?? '')]));
}

function listsOf(id: string, raw: string): readonly PinnedLists[] {
  if (!isArrayText(raw)) throw new LockFileError(`has no list for upstream ${JSON.stringify(id)}`);
  return rawItems(raw).map((text) => {
    if (!isObjectText(text)) throw new LockFileError(`has a list that is no map for upstream ${JSON.stringify(id)}`);
    const lists = RawObject.parse(text);
    const named: unknown = lists.value('eras');
    const eras = Array.isArray(named) ? ERAS.filter((era) => named.includes(era)) : [];
    if (eras.length === 0) throw new LockFileError(`names no era for the lists of upstream ${JSON.stringify(id)}`);
    return { eras, server: lists.string('server') ?? '', definitions: definitionsIn(lists) };
  });
}

function definitionsIn(lists: RawObject): ReadonlyMap<string, Definition> {
  const definitions = new Map<string, Definition>();
  const add = (definition: Definition) => definitions.set(idOf(definition), definition);
  const instructions = lists.raw('instructions');
  if (instructions !== undefined) {
    add({ kind: 'instructions', key: '', text: canonicalText(instructions, 'instructions') });
  }
  for (const kind of LISTED_KINDS) {
    const items = lists.object(LIST_NAMES[kind]);
    for (const key of items?.keys() ?? []) add({ kind, key, text: canonicalText(items?.raw(key) ?? 'null') });
  }
  return definitions;
}
