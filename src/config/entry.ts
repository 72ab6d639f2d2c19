import type { ClientStyle } from './client-file.ts';
import type { Data, Document } from './document.ts';
import { expandData, isList, isRecord, valueAt } from './expanded.ts';
import type { Lookup } from './interpolate.ts';
import { placeText, problemLine } from './problem.ts';
import type { Path, Problem } from './problem.ts';
import { checkSection } from './section.ts';
import { didYouMean, suggest } from './suggest.ts';
import { OWN_KEYS, UPSTREAM_KEYS, upstreamSchema } from './upstream-schema.ts';
import type { UpstreamEntry } from './upstream-schema.ts';

/** One entry of the map of upstreams: expanded and checked key by key. */
export interface CheckedEntry {
  readonly path: Path;
  readonly entry: UpstreamEntry;
  /** Keys that the file itself has. */
  readonly given: ReadonlySet<string>;
  /** Why it cannot be started. */
  readonly reasons: readonly string[];
  readonly warnings: readonly string[];
}

/** Keys below which a number stands for its spelling: a port `08080` stays that. */
const SPELLED: ReadonlySet<string> = new Set([
  'command',
  'args',
  'env',
  'environment',
  'envs',
  'headers',
  'http_headers',
]);

/** Keys below which `$NAME` is most likely meant as a variable. */
const VARIABLES: readonly string[] = ['env', 'environment', 'envs', 'headers', 'http_headers'];

export function checkEntry(
  document: Document,
  path: Path,
  lookup: Lookup,
  { dialect }: ClientStyle,
): CheckedEntry | { readonly problems: readonly Problem[] } {
  const raw = valueAt(document.data, path) ?? null;
  const problems: Problem[] = [];
  const warnings: string[] = [];
  const known: Record<string, Data> = {};
  for (const [key, value] of Object.entries(isRecord(raw) ? raw : {})) {
    // Zed and others write null for a setting that is not set.
    if (value === null && UPSTREAM_KEYS.has(key)) continue;
    if (UPSTREAM_KEYS.has(key)) {
      known[key] = SPELLED.has(key) ? spelled(document, [...path, key], value) : value;
      continue;
    }
    const near = suggest(key, OWN_KEYS);
    const problem = document.problem(
      [...path, key],
      near === undefined ? 'unknown key; ignored' : `unknown key${didYouMean(near)}`,
      'key',
    );
    if (near === undefined) warnings.push(problemLine(problem));
    else problems.push(problem);
  }

  const expanded = expandData(path, isRecord(raw) ? known : raw, lookup, dialect);
  const section = checkSection(upstreamSchema, document, path, expanded);
  if ('problems' in section) return { problems: [...problems, ...section.problems] };
  if (problems.length > 0) return { problems };
  return {
    path,
    entry: section.value,
    given: givenKeys(known),
    reasons: expanded.unexpanded.map(({ path, reason }) => `${reason} (${place(document, path)})`),
    warnings: dialect === 'plain' ? [...warnings, ...bareVariables(document, path, known)] : warnings,
  };
}

/** `config.yaml:5:32, mcpServers.github.headers.Authorization` */
export function place(document: Document, path: Path): string {
  return placeText(document.problem(path, ''));
}

function spelled(document: Document, path: Path, value: Data): Data {
  if (typeof value === 'number' || typeof value === 'boolean') return document.source(path) ?? value;
  if (isList(value)) return value.map((item, index) => spelled(document, [...path, index], item));
  if (!isRecord(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [key, spelled(document, [...path, key], member)]),
  );
}

function givenKeys(known: Readonly<Record<string, Data>>): ReadonlySet<string> {
  const { timeouts } = known;
  const inner = isRecord(timeouts) ? Object.keys(timeouts).map((key) => `timeouts.${key}`) : [];
  return new Set([...Object.keys(known), ...inner]);
}

function bareVariables(document: Document, path: Path, known: Readonly<Record<string, Data>>): string[] {
  return VARIABLES.flatMap((key) => {
    const map = known[key];
    return Object.entries(isRecord(map) ? map : {}).flatMap(([name, value]) => {
      const [, variable] = (typeof value === 'string' && /(?:^|\s)\$([A-Z_][A-Z0-9_]*)$/.exec(value)) || [];
      if (variable === undefined) return [];
      const message = `"$${variable}" is passed on as it stands; for the environment variable write "\${${variable}}"`;
      return [problemLine(document.problem([...path, key, name], message))];
    });
  });
}
