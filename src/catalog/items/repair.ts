import { arrayText, isArrayText, isObjectText, quoted, RawObject, rawItems } from '../../json/json.ts';
import { unlessMalformed } from '../../json/malformed.ts';
import type { ObjectShape, Shape } from './shapes.ts';

/** The number of paths that are recorded for one item: the first ones. */
const MAX_PATHS = 20;

/** Collects the paths of the members that a repair leaves out. */
export class LeftOut {
  readonly paths: string[] = [];

  add(path: string): void {
    if (this.paths.length < MAX_PATHS) this.paths.push(path);
  }
}

/**
 * Leaves out the members of an object that do not match the shape, at any depth. Everything else keeps its text.
 *
 * @returns undefined if a required member is absent or wrong, so that the object cannot be repaired.
 */
export function repairObject(
  shape: ObjectShape,
  before: RawObject,
  path: string,
  leftOut: LeftOut,
): RawObject | undefined {
  let after = mapMembers(before, (name, raw) => {
    const member = shape.members.get(name);
    if (member === undefined) return raw;
    const at = path === '' ? name : `${path}.${name}`;
    const repaired = repairMember(member, raw, at, leftOut);
    if (repaired === undefined && !shape.defaults.has(name)) leftOut.add(at);
    return repaired;
  });
  for (const [name, raw] of shape.defaults) {
    // A default does not replace a required member that is present and wrong.
    if (before.raw(name) === undefined) after = after.with(name, raw);
  }
  return shape.required.some((name) => after.raw(name) === undefined) ? undefined : after;
}

/** Replaces each member by `change` of it, or leaves it out. Returns the same object if nothing changes. */
function mapMembers(before: RawObject, change: (name: string, raw: string) => string | undefined): RawObject {
  const kept: (readonly [name: string, raw: string])[] = [];
  const mapped = before.map((raw, name) => {
    const changed = change(name, raw);
    if (changed !== undefined) kept.push([name, changed]);
    return changed ?? raw;
  });
  if (kept.length === before.size) return mapped;
  // Built at once, since leaving out members one by one takes quadratic time.
  return RawObject.parse(`{${kept.map(([name, raw]) => `${quoted(name)}:${raw}`).join(',')}}`);
}

/** Like {@link repair}, and also leaves out a member whose object names a member twice. */
function repairMember(shape: Shape, raw: string, path: string, leftOut: LeftOut): string | undefined {
  return unlessMalformed(() => repair(shape, raw, path, leftOut), undefined);
}

/** Returns the repaired text of a member; undefined if the member must be left out. */
function repair(shape: Shape, raw: string, path: string, leftOut: LeftOut): string | undefined {
  switch (shape.kind) {
    case 'object':
      return isObjectText(raw) ? repairObject(shape, RawObject.parse(raw), path, leftOut)?.toString() : undefined;
    case 'map':
      return isObjectText(raw) ? repairMap(shape.of, raw, path, leftOut) : undefined;
    case 'list':
      return isArrayText(raw) ? repairList(shape.of, raw, path, leftOut) : undefined;
    case 'schema':
      return isObjectText(raw) || raw === 'true' || raw === 'false' ? raw : undefined;
    case 'objectType':
      return objectType(raw);
    case 'scalar':
      return shape.accepts(JSON.parse(raw)) ? raw : undefined;
  }
}

function repairMap(of: Shape, raw: string, path: string, leftOut: LeftOut): string {
  const repaired = mapMembers(RawObject.parse(raw), (name, value) => {
    const at = `${path}.${name.slice(0, 60)}`;
    const kept = repair(of, value, at, leftOut);
    if (kept === undefined) leftOut.add(at);
    return kept;
  });
  return repaired.toString();
}

function repairList(of: Shape, raw: string, path: string, leftOut: LeftOut): string {
  const before = rawItems(raw);
  const after = before.flatMap((item, i) => {
    const kept = repair(of, item, `${path}[${i}]`, leftOut);
    if (kept === undefined) leftOut.add(`${path}[${i}]`);
    return kept === undefined ? [] : [kept];
  });
  const isSame = after.length === before.length && after.every((item, i) => item === before[i]);
  return isSame ? raw : arrayText(after);
}

/** Returns the `type` of an object schema, in place of `null` and of arrays with `"object"`; undefined for other types. */
function objectType(raw: string): string | undefined {
  const type: unknown = JSON.parse(raw);
  if (type === 'object') return raw;
  return type === null || (Array.isArray(type) && type.includes('object')) ? '"object"' : undefined;
}
