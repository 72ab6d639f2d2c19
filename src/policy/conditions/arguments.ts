import { checkJson, CLIENT_BOUNDS, isObjectText, type RawObject } from '../../json/json.ts';
import { unlessMalformed } from '../../json/malformed.ts';
import { LIMITS } from '../../limits.ts';
import { normalized } from '../../mark-runs.ts';
import type { ArgumentSize } from './when.ts';
import { getOrMake } from '../../map-entries.ts';

/** The arguments of a call as conditions read them. */
export interface ReadArguments {
  readonly args: Readonly<Record<string, unknown>>;
  readonly size: ArgumentSize;
}

/** Returns a name such that names that a lenient JSON reader takes for one member are equal. Undefined: the name takes long to compare. */
function folded(name: string): string | undefined {
  if (name.length > LIMITS.memberNameChars) return undefined;
  return normalized(name, 'NFKC')?.toUpperCase().toLowerCase();
}

/**
 * Reads arguments that conditions judge. Returns the reason if another reader may see other values. It is a member that an object has twice,
 * or two members whose names differ in case. It is also a name that differs in case from one that a condition reads, or a number that is
 * rounded here. A name that takes long to compare is refused too.
 *
 * @param text undefined for a call without arguments.
 * @param members the names that conditions read.
 */
export function readArguments(text: string | undefined, members: ReadonlySet<string>): ReadArguments | string {
  if (text === undefined) return { args: {}, size: { values: 0, chars: 0 } };
  if (!isObjectText(text)) return 'arguments must be an object';
  const spellings = new Map([...members].map((name) => [folded(name) ?? name, name]));
  const counted = { values: 0 };
  return unlessMalformed(() => {
    // Refuses a name that an object has twice, of which JSON.parse() would keep the last.
    checkJson(text, CLIENT_BOUNDS);
    const args: unknown = JSON.parse(text);
    const odd = oddMember(args, spellings, counted);
    if (odd !== undefined) return odd;
    return typeof args === 'object' && args !== null
      ? { args: { ...args }, size: { values: counted.values, chars: text.length } }
      : 'arguments must be an object';
  }, 'arguments cannot be read');
}

/** The arguments of a call that several sets of rights decide about: read once for all that read the same names. */
export class ArgumentReader {
  readonly #text: string | undefined;
  /** By the names that conditions read. */
  readonly #known = new Map<string, ReadArguments | string>();

  constructor(text: string | undefined) {
    this.#text = text;
  }

  /** See {@link readArguments}. */
  read(members: ReadonlySet<string>): ReadArguments | string {
    const key = JSON.stringify([...members].toSorted());
    return getOrMake(this.#known, key, () => readArguments(this.#text, members));
  }
}

/** Returns the reason why a parsed value can be read in two ways; undefined if it cannot. */
function oddMember(
  value: unknown,
  spellings: ReadonlyMap<string, string>,
  counted: { values: number },
): string | undefined {
  counted.values++;
  // The upstream gets the digits, and a condition would read the nearest double.
  if (typeof value === 'number')
    return Math.abs(value) > Number.MAX_SAFE_INTEGER ? 'a number has more digits than a condition reads' : undefined;
  if (typeof value !== 'object' || value === null) return undefined;
  const isArray = Array.isArray(value);
  const seen = new Set<string>();
  for (const [name, member] of Object.entries(value)) {
    if (!isArray) {
      const fold = folded(name);
      if (fold === undefined) return 'the name of a member is too long, or has too many combining marks';
      const read = spellings.get(fold);
      if (seen.has(fold) || (read !== undefined && read !== name)) return 'a member can be read in two ways';
      seen.add(fold);
    }
    const odd = oddMember(member, spellings, counted);
    if (odd !== undefined) return odd;
  }
  return undefined;
}

/** The members of params that say what a request is about. */
const JUDGED: readonly string[] = ['name', 'arguments', 'uri', 'ref', 'argument', 'context', 'type'];
/** Longer names fold to none of them. Two UTF-16 code units, such as those of a letter of mathematics, fold to one letter or more. */
const MAX_JUDGED_CHARS = 2 * Math.max(...JUDGED.map(({ length }) => length));

/**
 * Returns whether params, or the `ref` in them, have a member whose name differs only in case from a known one. Known ones say what the
 * request is about. A lenient upstream may read it instead.
 */
export function hasOddSpelling(params: RawObject): boolean {
  const ref = params.object('ref');
  return [params, ...(ref === undefined ? [] : [ref])].some((object) =>
    object.keys().some((name) => !JUDGED.includes(name) && foldsToJudged(name)),
  );
}

function foldsToJudged(name: string): boolean {
  return name.length <= MAX_JUDGED_CHARS && JUDGED.includes(folded(name) ?? name);
}
