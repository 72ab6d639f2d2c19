import { basename } from 'node:path';

import type { Data, Document } from './document.ts';
import { isRecord, valueAt } from './expanded.ts';
import type { Dialect } from './interpolate.ts';
import type { Path, Problem } from './problem.ts';
import { MAP_KEYS, WEAK_MAP_KEYS } from './schema.ts';
import { didYouMean, suggest } from './suggest.ts';

/** Where a file keeps its upstreams, and what that tells about who wrote it. */
export interface UpstreamMap {
  readonly path: Path;
  /** In the order of the file. */
  readonly keys: readonly string[];
  readonly dialect: Dialect;
  /** What the number `timeout` of an entry counts, and which wait it bounds. */
  readonly timeout: { readonly unit: 'guess' | 'ms' | 's'; readonly bounds: 'call' | 'start' };
}

/** Our settings that belong under `gateway` and that no client's file has at the top. */
const OURS = ['listen', 'operator', 'publicUrl', 'allowedHosts', 'allowedOrigins', 'stateDir', 'legacySse'];

const PLAIN = { dialect: 'plain', timeout: { unit: 'guess', bounds: 'call' } } as const;

/** Finds the map of upstreams in our file or a client's. */
export function findUpstreams(document: Document): UpstreamMap | { readonly problems: readonly Problem[] } {
  const { data } = document;
  if (!isRecord(data)) return { problems: [document.problem([], `expected a map with "mcpServers"`)] };
  const keys = Object.keys(data);

  const misplaced = keys
    .filter((key) => OURS.includes(key) || (key !== 'gateway' && suggest(key, ['gateway']) !== undefined))
    .map((key) => {
      const message = OURS.includes(key) ? 'belongs under "gateway"' : `unknown key${didYouMean('gateway')}`;
      return document.problem([key], message, 'key');
    });
  if (misplaced.length > 0) return { problems: misplaced };

  const strong = MAP_KEYS.filter((key) => Object.hasOwn(data, key));
  const [first, second] = strong;
  if (first !== undefined && second !== undefined) {
    return { problems: [document.problem([second], `upstreams are under "${first}" already; keep one map`, 'key')] };
  }
  const key = first ?? WEAK_MAP_KEYS.find((key) => isRecord(data[key]));
  if (key === undefined) {
    const near = keys.map((key) => ({ key, meant: suggest(key, MAP_KEYS) })).find(({ meant }) => meant !== undefined);
    const message = `expected the upstreams in a map under "mcpServers"`;
    return {
      problems: [document.problem(near === undefined ? [] : [near.key], `${message}${didYouMean(near?.meant)}`, 'key')],
    };
  }

  const found = describe(document, data, key);
  const map = valueAt(data, found.path) ?? null;
  if (map === null) return { ...found, keys: [] };
  if (!isRecord(map)) return { problems: [document.problem(found.path, 'expected a map from names to upstreams')] };
  // A JavaScript object moves keys such as "1" to the front.
  const inOrder = Object.keys(map).toSorted((a, b) => {
    return document.offset([...found.path, a], 'key') - document.offset([...found.path, b], 'key');
  });
  return { ...found, keys: inOrder };
}

function describe(document: Document, data: { readonly [key: string]: Data }, key: string): Omit<UpstreamMap, 'keys'> {
  if (key === 'extensions') return { path: [key], dialect: 'plain', timeout: { unit: 's', bounds: 'call' } };
  if (key === 'mcp') {
    // The settings of VS Code kept its servers one level deeper.
    const servers = valueAt(data, ['mcp', 'servers']);
    const nested =
      isRecord(servers) && !['command', 'url', 'type', 'enabled'].some((name) => Object.hasOwn(servers, name));
    if (nested) return { path: ['mcp', 'servers'], ...PLAIN };
    return { path: [key], dialect: 'opencode', timeout: { unit: 'ms', bounds: 'start' } };
  }
  if (key === 'mcpServers' && basename(document.file) === 'settings.json') {
    return { path: [key], dialect: 'gemini', timeout: { unit: 'ms', bounds: 'call' } };
  }
  return { path: [key], ...PLAIN };
}
