import { type Node, parseTree } from 'jsonc-parser';

import type { Data, Document } from './document.ts';
import { jsonFault } from './json-problem.ts';
import { ConfigError, keyText, type Path, type Problem } from './problem.ts';

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
  const positionOf = (offset: number): { readonly line: number; readonly column: number } => {
    const before = text.slice(0, offset);
    return { line: before.split('\n').length, column: offset - before.lastIndexOf('\n') };
  };
  const problemAt = (offset: number, path: Path, message: string): Problem => {
    return { file, ...positionOf(offset), key: keyText(path), message };
  };
  const fault = jsonFault(text);
  if (fault !== undefined) throw new ConfigError([problemAt(fault.offset, [], fault.message)]);

  const offsets = new Map<string, { readonly key: number; readonly value: number }>();
  const read = (node: Node, path: Path, key: number): Data => {
    offsets.set(JSON.stringify(path), { key, value: node.offset });
    if (node.type === 'array') return (node.children ?? []).map((child, i) => read(child, [...path, i], child.offset));
    if (node.type !== 'object') return scalarOf(node);
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
  const root = parseTree(text, [], { allowTrailingComma: true, disallowComments: false });
  const data = root === undefined ? null : read(root, [], root.offset);

  const offset = (path: Path, part: 'key' | 'value'): number => {
    for (let length = path.length; length >= 0; length--) {
      const found = offsets.get(JSON.stringify(path.slice(0, length)));
      if (found !== undefined) return length < path.length || part === 'key' ? found.key : found.value;
    }
    return 0;
  };
  return {
    file,
    data,
    source: () => undefined,
    offset,
    problem: (path, message, part = 'value') => problemAt(offset(path, part), path, message),
  };
}

function scalarOf({ value }: Node): Data {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? value : null;
}
