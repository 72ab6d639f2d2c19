import { isRecord } from '../../json/record.ts';
import { basename, resolve } from 'node:path';

import type { Data, Document } from '../document/document.ts';
import { isList, valueAt } from '../document/expanded.ts';
import type { ExpansionSyntax } from '../document/interpolate.ts';
import { type Path, type Problem, problemLine } from '../document/problem.ts';
import { MAP_KEYS, WEAK_MAP_KEYS } from '../schema/schema.ts';
import { didYouMean, suggest } from '../document/suggest.ts';
import { topLevelProblems } from './top-level-keys.ts';
import { upstreamId } from './upstream-id.ts';

/** One entry of the map (or list) of upstreams: its name and its path in the file. */
export interface EntryPath {
  readonly key: string;
  readonly path: Path;
}

/** The conventions of the client that wrote a file. */
export interface ClientStyle {
  readonly syntax: ExpansionSyntax;
  /** The unit of the number `timeout` in an entry, and the wait that it bounds. */
  readonly timeout: { readonly unit: 'guess' | 'ms' | 's'; readonly bounds: 'call' | 'start' };
}

/** The upstreams of a file, and the conventions of the client that wrote it. */
export interface UpstreamMap extends ClientStyle {
  readonly path: Path;
  /** In the order of the file. */
  readonly entries: readonly EntryPath[];
  readonly warnings: readonly string[];
}

/** Returns the place of the entry of an upstream, by its id; that of all upstreams if there is none. */
export function placeOf({ path, entries }: UpstreamMap, id: string): Path {
  return entries.find(({ key }) => upstreamId(key) === id)?.path ?? path;
}

const PLAIN = { syntax: 'plain', timeout: { unit: 'guess', bounds: 'call' } } as const;

/**
 * Finds the upstreams in our own config file or in a client's.
 *
 * @param project the folder of the project in `~/.claude.json` whose servers are served as well.
 */
export function findUpstreams(
  document: Document,
  project: string | undefined,
): UpstreamMap | { readonly problems: readonly Problem[] } {
  const { data } = document;
  if (data === null) return { problems: [document.problem([], 'is empty; expected a map with "mcpServers"')] };
  if (!isRecord(data)) return { problems: [document.problem([], 'expected a map with "mcpServers"')] };
  const keys = Object.keys(data);
  const misplaced = topLevelProblems(document);
  if (misplaced.length > 0) return { problems: misplaced };

  const projects = projectsOf(data);
  const chosen =
    project === undefined
      ? undefined
      : [...projects.keys()].find((name) => name === project || resolve(name) === resolve(project));
  if (project !== undefined && chosen === undefined) {
    return { problems: [document.problem(['projects'], noSuchProject(project, projects), 'key')] };
  }
  const own = chosen === undefined ? [] : entriesIn(document, ['projects', chosen, 'mcpServers']);

  const strong = MAP_KEYS.filter((key) => Object.hasOwn(data, key));
  const [first, second] = strong;
  if (first !== undefined && second !== undefined) {
    return { problems: [document.problem([second], `upstreams are under "${first}" already; keep one map`, 'key')] };
  }
  const key = first ?? WEAK_MAP_KEYS.find((key) => isRecord(data[key]));
  if (key === undefined) {
    if (chosen !== undefined) return { path: ['projects', chosen, 'mcpServers'], ...PLAIN, entries: own, warnings: [] };
    return { problems: [noMapProblem(document, keys, projects)] };
  }

  const found = mapAt(document, data, key);
  const map = valueAt(data, found.path) ?? null;
  const listed = isList(map) && map.every((item) => isRecord(item) && typeof item['name'] === 'string');
  if (map !== null && !isRecord(map) && !(listed && map.length > 0)) {
    return { problems: [document.problem(found.path, 'expected a map from names to upstreams')] };
  }
  // As in Claude Code, the servers of a project override those of the user.
  const names = new Set(own.map(({ key }) => key));
  const entries = [...own, ...entriesIn(document, found.path).filter(({ key }) => !names.has(key))];
  const others = [...projects].filter(([name]) => name !== chosen);
  const warnings = project === undefined && others.length > 0 ? [problemLine(leftOutProjects(document, projects))] : [];
  return { ...found, entries, warnings };
}

/** Returns the entries at a path, in file order. Continue writes a list of entries with a `name` each. */
function entriesIn(document: Document, path: Path): readonly EntryPath[] {
  const map = valueAt(document.data, path);
  if (isList(map)) {
    return map.map((item, index) => ({
      key: isRecord(item) && typeof item['name'] === 'string' ? item['name'] : String(index),
      path: [...path, index],
    }));
  }
  if (!isRecord(map)) return [];
  // JavaScript objects move integer-like keys such as "1" to the front.
  return Object.keys(map)
    .map((key) => ({ key, path: [...path, key] }))
    .toSorted((a, b) => document.offset(a.path, 'key') - document.offset(b.path, 'key'));
}

/** Returns the projects of `~/.claude.json` that have servers, with the number of their servers. */
function projectsOf(data: { readonly [key: string]: Data }): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  const { projects } = data;
  for (const [name, project] of Object.entries(isRecord(projects) ? projects : {})) {
    const servers = isRecord(project) ? project['mcpServers'] : undefined;
    const count = isRecord(servers) ? Object.keys(servers).length : 0;
    if (count > 0) found.set(name, count);
  }
  return found;
}

/** The largest number of project names that a message shows. */
const SHOWN_PROJECTS = 8;

function projectList(projects: ReadonlyMap<string, number>): string {
  const shown = [...projects].slice(0, SHOWN_PROJECTS).map(([name, count]) => `${name} (${count})`);
  const rest = projects.size - shown.length;
  return `${shown.join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`;
}

function leftOutProjects(document: Document, projects: ReadonlyMap<string, number>): Problem {
  const message = `servers of single projects are left out; add --project <folder> for those of ${projectList(projects)}`;
  return document.problem(['projects'], message, 'key');
}

function noSuchProject(project: string, projects: ReadonlyMap<string, number>): string {
  const none = `no project ${JSON.stringify(project)} with servers of its own`;
  const step = 'no project of this file has any; --project is for ~/.claude.json';
  return `${none}; ${projects.size === 0 ? step : `there are ${projectList(projects)}`}`;
}

function noMapProblem(document: Document, keys: readonly string[], projects: ReadonlyMap<string, number>): Problem {
  if (projects.size > 0) return leftOutProjects(document, projects);
  const inner = MAP_KEYS.find((key) => valueAt(document.data, ['gateway', key]) !== undefined);
  if (inner !== undefined) return document.problem(['gateway', inner], 'belongs beside "gateway", not in it', 'key');
  const near = keys.map((key) => ({ key, meant: suggest(key, MAP_KEYS) })).find(({ meant }) => meant !== undefined);
  const message = `expected the upstreams in a map under "mcpServers"${didYouMean(near?.meant)}`;
  return document.problem(near === undefined ? [] : [near.key], message, 'key');
}

function mapAt(
  document: Document,
  data: { readonly [key: string]: Data },
  key: string,
): ClientStyle & { readonly path: Path } {
  if (key === 'extensions') return { path: [key], syntax: 'plain', timeout: { unit: 's', bounds: 'call' } };
  if (key === 'mcp') {
    // Settings of older VS Code versions nest the servers one level deeper.
    const servers = valueAt(data, ['mcp', 'servers']);
    const nested =
      isRecord(servers) && !['command', 'url', 'type', 'enabled'].some((name) => Object.hasOwn(servers, name));
    if (nested) return { path: ['mcp', 'servers'], ...PLAIN };
    return { path: [key], syntax: 'opencode', timeout: { unit: 'ms', bounds: 'start' } };
  }
  if (key === 'mcpServers' && basename(document.file) === 'settings.json') {
    return { path: [key], syntax: 'gemini', timeout: { unit: 'ms', bounds: 'call' } };
  }
  return { path: [key], ...PLAIN };
}
