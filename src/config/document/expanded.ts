import { isRecord } from '../../json/record.ts';
import type { Data } from './document.ts';
import { expand, type ExpansionSyntax, type Lookup } from './interpolate.ts';
import type { Path } from './problem.ts';

/** A text that could not be expanded, with the reason. */
export interface Unexpanded {
  readonly path: Path;
  readonly reason: string;
}

/** Part of a file with `${…}` expanded. */
export interface Expanded {
  readonly data: Data;
  /** Paths (as JSON) of texts that differ from the file after expansion. */
  readonly replaced: ReadonlySet<string>;
  /** Texts that could not be expanded; `data` has them unchanged. */
  readonly unexpanded: readonly Unexpanded[];
}

/** Expands `${…}` in every text at and below `path`, but not in keys. */
export function expandData(path: Path, data: Data, lookup: Lookup, syntax: ExpansionSyntax): Expanded {
  const replaced = new Set<string>();
  const unexpanded: Unexpanded[] = [];

  const expanded = mapScalars(data, path, (value, at) => {
    if (typeof value !== 'string') return value;
    const expansion = expand(value, lookup, syntax);
    if ('problem' in expansion) {
      unexpanded.push({ path: at, reason: expansion.problem });
      return value;
    }
    if (expansion.text !== value) replaced.add(JSON.stringify(at));
    return expansion.text;
  });
  return { data: expanded, replaced, unexpanded };
}

/** Returns data with another value for each of its values that is no list and no map. @param path of the data. */
export function mapScalars(data: Data, path: Path, replace: (value: Data, path: Path) => Data): Data {
  if (isList(data)) return data.map((item, index) => mapScalars(item, [...path, index], replace));
  if (!isRecord(data)) return replace(data, path);
  return Object.fromEntries(
    Object.entries(data).map(([key, member]) => [key, mapScalars(member, [...path, key], replace)]),
  );
}

export function isList(value: Data | undefined): value is readonly Data[] {
  return Array.isArray(value);
}

export function valueAt(data: Data, path: Path): Data | undefined {
  let value: Data | undefined = data;
  for (const step of path) {
    if (isList(value) && typeof step === 'number') value = value[step];
    else if (isRecord(value) && typeof step === 'string' && Object.hasOwn(value, step)) value = value[step];
    else return undefined;
  }
  return value;
}

/** Returns the data with one value replaced, or removed from its map if undefined. */
export function withValue(data: Data, path: Path, value: Data | undefined): Data {
  const [step, ...rest] = path;
  if (step === undefined) return value ?? null;
  if (isList(data)) {
    return data.map((item, index) => (index === step ? withValue(item, rest, value) : item));
  }
  if (!isRecord(data)) return data;
  const entries = Object.entries(data).flatMap(([key, member]): [string, Data][] => {
    if (key !== step) return [[key, member]];
    return rest.length === 0 && value === undefined ? [] : [[key, withValue(member, rest, value)]];
  });
  return Object.fromEntries(entries);
}
