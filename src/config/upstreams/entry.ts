import { isRecord } from '../../json/record.ts';
import type { ClientStyle } from './client-file.ts';
import { type Data, type Document, problemOfKey } from '../document/document.ts';
import { expandData, isList, mapScalars, valueAt } from '../document/expanded.ts';
import type { Lookup } from '../document/interpolate.ts';
import { type Path, placeText, type Problem, problemLine } from '../document/problem.ts';
import { checkSection } from '../schema/section.ts';
import { didYouMean, suggest } from '../document/suggest.ts';
import { isOwnFile } from './top-level-keys.ts';
import {
  IGNORED_KEYS,
  OWN_KEYS,
  UPSTREAM_KEYS,
  type UpstreamEntry,
  upstreamSchema,
} from '../schema/upstream-schema.ts';

/** One upstream entry: variables expanded, and every key checked. */
export interface CheckedEntry {
  readonly entry: UpstreamEntry;
  /** Keys that are present in the file. */
  readonly given: ReadonlySet<string>;
  /** Texts that could not be expanded: the key of each, and the reason with its place. */
  readonly unexpanded: readonly { readonly key: string; readonly reason: string }[];
  readonly warnings: readonly string[];
}

/** A problem of an entry, at one of its keys; without a key, of the entry as a whole. */
export interface Fault {
  readonly key: string | undefined;
  readonly message: string;
}

/** Keys whose numbers keep their source text: a port `08080` stays `08080`. */
const SOURCE_TEXT_KEYS: ReadonlySet<string> = new Set([
  'command',
  'args',
  'env',
  'environment',
  'envs',
  'headers',
  'http_headers',
  'requestOptions',
  'auth',
]);

/** Keys whose texts are names of environment variables. They are not expanded: a name may be shown to everybody, and a value to nobody. */
const NAME_KEYS: ReadonlySet<string> = new Set(['bearer_token_env_var', 'env_http_headers', 'env_keys', 'env_vars']);

/** Keys whose values `$NAME` are probably meant as variables. */
const VARIABLE_KEYS: readonly string[] = ['env', 'environment', 'envs', 'headers', 'http_headers'];

/** Expands the variables of one entry and checks it against the schema. */
export function checkEntry(
  document: Document,
  path: Path,
  lookup: Lookup,
  { syntax }: ClientStyle,
): CheckedEntry | { readonly problems: readonly Problem[] } {
  const raw = valueAt(document.data, path) ?? null;
  const problems: Problem[] = [];
  const warnings: string[] = [];
  const known: Record<string, Data> = {};
  const ignored: Record<string, Data> = {};
  for (const [key, value] of Object.entries(isRecord(raw) ? raw : {})) {
    // Zed and other clients write null for an unset setting.
    if (value === null && UPSTREAM_KEYS.has(key)) continue;
    if (IGNORED_KEYS.has(key)) {
      ignored[key] = value;
      continue;
    }
    if (NAME_KEYS.has(key) && JSON.stringify(value).includes('$')) {
      problems.push(document.problem([...path, key], 'expected names of variables alone: NAME instead of ${NAME}'));
      continue;
    }
    if (UPSTREAM_KEYS.has(key)) {
      const used = usedPart(key, value);
      known[key] = SOURCE_TEXT_KEYS.has(key) ? sourceText(document, [...path, key], used) : used;
      continue;
    }
    // Clients have a setting `oauth` of their own, which is no misspelled `auth`.
    const near = key === 'oauth' ? undefined : suggest(key, OWN_KEYS);
    const message = near === undefined ? 'unknown key; ignored' : `unknown key${didYouMean(near)}`;
    const problem = problemOfKey(document, [...path, key], message);
    if (near === undefined) warnings.push(problemLine(problem));
    else problems.push(problem);
  }

  const expanded = expandData(path, isRecord(raw) ? known : raw, lookup, syntax);
  const data = isRecord(expanded.data) ? { ...ignored, ...expanded.data } : expanded.data;
  const section = checkSection(upstreamSchema, document, path, { ...expanded, data }, { withoutIncomplete: true });
  if ('problems' in section) return { problems: [...problems, ...section.problems] };
  if (problems.length > 0) return { problems };
  return {
    entry: section.value,
    given: givenKeys(known),
    unexpanded: expanded.unexpanded.map((one) => ({
      key: String(one.path[path.length]),
      reason: `${one.reason} (${place(document, one.path)})`,
    })),
    warnings: [
      ...warnings,
      ...(syntax === 'plain' ? bareVariableWarnings(document, path, known) : []),
      ...(isOwnFile(document) ? [] : dollarWarnings(document, path, known)),
    ],
  };
}

/** Returns a position as in `config.yaml:5:32, mcpServers.github.headers.Authorization`. */
export function place(document: Document, path: Path): string {
  return placeText(document.problem(path, ''));
}

/** Returns the part of a client's setting that has a meaning here. */
function usedPart(key: string, value: Data): Data {
  if (!isRecord(value)) return value;
  if (key === 'requestOptions') return { headers: value['headers'] ?? null };
  return key === 'tools' ? {} : value;
}

function sourceText(document: Document, path: Path, data: Data): Data {
  return mapScalars(data, path, (value, at) =>
    typeof value === 'number' || typeof value === 'boolean' ? (document.source(at) ?? value) : value,
  );
}

function givenKeys(known: Readonly<Record<string, Data>>): ReadonlySet<string> {
  const { timeouts } = known;
  const inner = isRecord(timeouts) ? Object.keys(timeouts).map((key) => `timeouts.${key}`) : [];
  return new Set([...Object.keys(known), ...inner]);
}

function bareVariableWarnings(document: Document, path: Path, known: Readonly<Record<string, Data>>): string[] {
  return VARIABLE_KEYS.flatMap((key) => {
    const map = known[key];
    return Object.entries(isRecord(map) ? map : {}).flatMap(([name, value]) => {
      const [, variable] = (typeof value === 'string' && /(?:^|\s)\$([A-Z_][A-Z0-9_]*)$/.exec(value)) || [];
      if (variable === undefined) return [];
      const message = `"$${variable}" is passed on as it stands; for the environment variable write "\${${variable}}"`;
      return [problemLine(document.problem([...path, key, name], message))];
    });
  });
}

/** Matches two dollar signs that become one, unless they are two of the four that become two. */
const DOLLARS = /(?<!\$)(?:\$\$\$\$)*\${2,3}(?!\$)/;

/** Returns a warning for each text with `$$`, which is an escape here and means itself to most clients. */
function dollarWarnings(document: Document, path: Path, value: Data): string[] {
  if (typeof value === 'string') {
    const message =
      '"$$" is passed on as "$"; for two dollar signs write "$$$$", or "${NAME}" for a variable with the value';
    return DOLLARS.test(value) ? [problemLine(document.problem(path, message))] : [];
  }
  if (isList(value)) return value.flatMap((item, index) => dollarWarnings(document, [...path, index], item));
  if (!isRecord(value)) return [];
  return Object.entries(value).flatMap(([key, member]) => dollarWarnings(document, [...path, key], member));
}
