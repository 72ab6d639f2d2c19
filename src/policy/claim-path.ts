import { isRecord } from '../json/record.ts';

/** Returns the value at a path of names with dots between them. A member whose name has dots wins over a member of a member. */
export function claimAt(claims: unknown, path: string): unknown {
  if (!isRecord(claims)) return undefined;
  if (Object.hasOwn(claims, path)) return claims[path];
  for (let dot = path.indexOf('.'); dot > 0; dot = path.indexOf('.', dot + 1)) {
    const head = path.slice(0, dot);
    const found = Object.hasOwn(claims, head) ? claimAt(claims[head], path.slice(dot + 1)) : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}
