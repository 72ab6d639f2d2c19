import { resolve } from 'node:path';

import type { UpstreamConfig } from './values/upstream-config.ts';
import type { Document } from './document/document.ts';
import { valueAt } from './document/expanded.ts';
import type { ConfigFiles } from './files/config-files.ts';
import { type Places, places } from './document/places.ts';
import { ConfigError, keyText, type Problem, problemLine } from './document/problem.ts';
import { parseFile } from './parse-file.ts';
import { findUpstreams, type UpstreamMap } from './upstreams/client-file.ts';
import { topLevelProblems } from './upstreams/top-level-keys.ts';
import { upstreamId } from './upstreams/upstream-id.ts';
import { isDisabled, readUpstream } from './upstreams/upstream.ts';

const UPSTREAM_LIMIT = 500;

/** A copy of a config file with all that its upstreams need, but environment variables and the files of `${file:…}`. */
export interface ConfigCopy {
  readonly text: string;
  /** The texts of its `envFile`s, by absolute path. */
  readonly envFiles: Readonly<Record<string, string>>;
}

/** The upstreams of an earlier version of a file. */
export interface LastGoodUpstreams {
  readonly copy: ConfigCopy;
  /** The time when the copy was made; ISO 8601. */
  readonly savedAt: string;
}

/** The document that upstreams are read from. */
export interface UpstreamSource {
  readonly document: Document;
  readonly where: Places;
  readonly map: UpstreamMap;
}

/** Returns the upstreams that were found. @throws {ConfigError} if there are problems instead. */
export function mapOf(found: ReturnType<typeof findUpstreams>): UpstreamMap {
  if ('problems' in found) throw new ConfigError(found.problems);
  return found;
}

/** A config file, and its upstreams as far as they are found. */
interface CurrentFile {
  readonly file: string;
  readonly document: Document;
  readonly found: ReturnType<typeof findUpstreams>;
}

/**
 * Returns the upstreams of an earlier version of a file, without those that the file has removed or disabled since.
 *
 * @throws {ConfigError}
 */
export function earlierUpstreams(
  { copy, savedAt }: LastGoodUpstreams,
  { file, document, found }: CurrentFile,
  { env, project }: { readonly env: NodeJS.ProcessEnv; readonly project?: string | undefined },
  files: ConfigFiles,
): UpstreamSource {
  const copied = parseFile(file, copy.text);
  // Without its section the gateway would run with defaults, which ask for no key.
  const misplaced = topLevelProblems(document);
  if (misplaced.length > 0) throw new ConfigError(misplaced);
  if (hasGateway(copied) && !hasGateway(document)) {
    throw new ConfigError([document.problem([], 'the section "gateway" is gone', 'key')]);
  }
  const map = mapOf(findUpstreams(copied, project));
  const problem: Document['problem'] = (...at) => ({ ...copied.problem(...at), file: `${file} of ${savedAt}` });
  const wanted = new Set(
    'problems' in found
      ? map.entries.map(({ key }) => upstreamId(key))
      : found.entries.filter(({ path }) => !isDisabled(valueAt(document.data, path))).map(({ key }) => upstreamId(key)),
  );
  return {
    document: { ...copied, problem },
    where: places(resolve(file), env, files, copy.envFiles),
    map: { ...map, entries: map.entries.filter(({ key }) => wanted.has(upstreamId(key))) },
  };
}

function hasGateway({ data }: Document): boolean {
  return valueAt(data, ['gateway']) !== undefined;
}

interface UpstreamsRead {
  readonly upstreams: readonly UpstreamConfig[];
  /** The key of each upstream by its id, disabled ones included. */
  readonly keys: Map<string, string>;
  readonly wrongEntries: readonly Problem[];
  readonly warnings: string[];
  /** True if at least one upstream has no problem. */
  readonly hasUsable: boolean;
}

/** Reads every entry. Adds the problems of the file as a whole to `problems`. */
export function readUpstreams({ document, where, map }: UpstreamSource, problems: Problem[]): UpstreamsRead {
  const wrongEntries: Problem[] = [];
  const warnings: string[] = [...map.warnings];
  const upstreams: UpstreamConfig[] = [];
  const keys = new Map<string, string>();
  let hasUsable = false;
  for (const at of map.entries) {
    const { key, path } = at;
    const id = upstreamId(key);
    const other = keys.get(id);
    if (other === undefined) keys.set(id, key);
    else {
      const message = `has the id "${id}", as ${keyText([...map.path, other])} has; rename one`;
      problems.push(document.problem(path, message, 'key'));
    }
    if (id.length > 64) problems.push(document.problem(path, 'expected a name of at most 64', 'key'));
    const read = readUpstream(document, map, at, where);
    wrongEntries.push(...read.problems);
    warnings.push(...read.warnings);
    if (read.config === undefined) continue;
    upstreams.push(read.config);
    if (read.problems.length === 0) hasUsable = true;
  }
  if (map.entries.length > UPSTREAM_LIMIT) {
    problems.push(document.problem(map.path, `more than ${UPSTREAM_LIMIT} upstreams`, 'key'));
  }
  if (upstreams.length === 0 && problems.length === 0) {
    warnings.push(problemLine(document.problem(map.path, 'no upstream is left to serve', 'key')));
  }
  return { upstreams, keys, wrongEntries, warnings, hasUsable };
}
