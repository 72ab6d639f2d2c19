import type { Node } from 'jsonc-parser';

import {
  type Data,
  type Document,
  documentOf,
  linesOf,
  MAX_DEPTH,
  problemAtOf,
  scalarOf,
  type Spot,
} from './document.ts';
import { jsonTree } from './json-problem.ts';
import { ConfigError, type Path } from './problem.ts';

/** Returns whether the gateway reads this member. `~/.claude.json` also keeps the history of every project. */
function isRead(path: Path, isOurs: (key: string) => boolean): boolean {
  const [top, , inProject] = path;
  if (top === 'projects') return path.length < 3 || inProject === 'mcpServers';
  return typeof top === 'string' && isOurs(top);
}

/**
 * Parses a large JSON file of a client, such as `~/.claude.json`: reads the members with upstreams and our settings,
 * and skips the rest.
 *
 * @param isOurs whether the gateway reads this top-level key.
 * @throws {ConfigError}
 */
export function parseLargeJson(file: string, text: string, isOurs: (key: string) => boolean): Document {
  const problemAt = problemAtOf(file, linesOf(text));
  const { root, fault } = jsonTree(text);
  if (fault !== undefined) throw new ConfigError([problemAt(fault.offset, [], fault.message)]);

  const spots = new Map<string, Spot>();
  const read = (node: Node, path: Path, key: number): Data => {
    if (path.length > MAX_DEPTH) {
      throw new ConfigError([problemAt(node.offset, path, `nested deeper than ${MAX_DEPTH} levels`)]);
    }
    const source = node.type === 'number' ? text.slice(node.offset, node.offset + node.length) : undefined;
    spots.set(JSON.stringify(path), { key, value: node.offset, source });
    if (node.type === 'array') return (node.children ?? []).map((child, i) => read(child, [...path, i], child.offset));
    if (node.type !== 'object') return scalarOf(node.value);
    const data: Record<string, Data> = {};
    for (const { children: [name, value] = [] } of node.children ?? []) {
      if (name === undefined || value === undefined) continue;
      const step = String(name.value);
      const inside = [...path, step];
      if (step === '__proto__' || !isRead(inside, isOurs)) continue;
      if (Object.hasOwn(data, step)) {
        throw new ConfigError([problemAt(name.offset, inside, 'this key is here twice; keep one')]);
      }
      data[step] = read(value, inside, name.offset);
    }
    return data;
  };
  return documentOf(file, root === undefined ? null : read(root, [], root.offset), spots, problemAt);
}
