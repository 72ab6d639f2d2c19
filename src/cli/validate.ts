import { basename } from 'node:path';

import { openOffline } from '../compose/offline.ts';
import { unmatchedGlobs } from '../compose/lists/unmatched-globs.ts';
import { addressText } from '../config/schema/address.ts';
import type { Config } from '../config/values/config.ts';
import type { UpstreamConfig } from '../config/values/upstream-config.ts';
import { loadConfig, type Loaded, type LoadOptions } from '../config/load.ts';
import { ConfigError, type Problem, problemLine, problemOfWhole } from '../config/document/problem.ts';
import { StartError } from '../errors.ts';
import { missingPrograms } from './missing-programs.ts';
import { shownCommand } from '../config/shown-command.ts';
import { fileOf, loadOptions, type StartOptions } from './start.ts';
import { LEFT_TO_CALLERS, type Trial, tryStart } from './trial-start.ts';
import { oneLine } from '../peer-text.ts';
import { readKeyFile } from '../store/disk/api-key-file.ts';
import { countText, jsonText, print, printError } from './operator/output.ts';
import { gapNotes } from './operator/status.ts';

/** The command-line options of `validate`. */
export interface ValidateOptions extends StartOptions {
  readonly json: boolean;
  /** Starts the upstreams and reads their lists. */
  readonly start: boolean;
}

type StartedUpstream = Trial['upstreams'][number];

/** Results about the upstreams that are not in the config, by upstream id. */
interface Findings {
  readonly missing: ReadonlyMap<string, string>;
  /** Empty if the upstreams were not started. */
  readonly started: ReadonlyMap<string, StartedUpstream>;
}

/**
 * Prints the endpoints and upstreams of a config. With `start`, starts every upstream once. Resolves with the exit code. It is 1 if the
 * file, an entry of it or its key file cannot be used, or a started upstream is not ready. It is also 1 if an endpoint has nothing left of
 * such an upstream.
 */
export async function validate(options: ValidateOptions): Promise<number> {
  const { json } = options;
  try {
    const file = fileOf(options);
    const { loaded, keyProblem } = await loadWithKeys(file, loadOptions(options).preview);
    const { config, warnings: ofFile, disabled } = loaded;
    const problems = keyProblem === undefined ? loaded.problems : [...loaded.problems, keyProblem];
    const trial = options.start ? await tryStart(config) : undefined;
    const warnings = [...ofFile, ...(trial?.unmatched ?? unmatchedGlobs(config, await openOffline(config)))];
    const started = trial?.upstreams ?? [];
    const findings: Findings = {
      missing: await missingPrograms(config.upstreams, process.env),
      started: new Map(started.map((status) => [status.id, status])),
    };
    const valid = problems.length === 0;
    const isReady = started.every(
      ({ state, emptyAt, isForCallers }) => isForCallers || (state === 'ready' && emptyAt.length === 0),
    );
    if (json) {
      const report = { valid, ...(valid ? {} : { problems }), ...summary(config, findings), warnings };
      print(jsonText(report));
    } else {
      for (const problem of problems) printError(`${problemLine(problem)}\n`);
      for (const warning of warnings) printError(`warning: ${warning}\n`);
      for (const { id, problem } of config.upstreams) {
        // The problems of an invalid file are above.
        const reason = (valid ? problem : undefined) ?? findings.missing.get(id);
        if (reason !== undefined) printError(`warning: upstream ${id} cannot be started: ${reason}\n`);
      }
      for (const one of started)
        for (const note of gapNotes(one)) printError(`warning: upstream ${one.id}: ${oneLine(note)}\n`);
      print(overview(verdictOf(file, loaded, keyProblem), config, findings, disabled));
    }
    return valid && isReady ? 0 : 1;
  } catch (thrown) {
    if (!json || !(thrown instanceof ConfigError)) throw thrown;
    print(jsonText({ valid: false, problems: thrown.problems }));
    return 1;
  }
}

interface LoadedWithKeys {
  readonly loaded: Loaded;
  /** The reason why a start with the key file is refused; undefined if it is not. */
  readonly keyProblem: Problem | undefined;
}

/** Loads a config and judges it by the API keys in its key file, if that can be read. */
async function loadWithKeys(file: string, options: LoadOptions): Promise<LoadedWithKeys> {
  const loaded = await loadConfig(file, options);
  const { keyFile } = loaded.config.auth;
  if (keyFile === undefined) return { loaded, keyProblem: undefined };
  try {
    const storedKeys = await readKeyFile(keyFile);
    return { loaded: await loadConfig(file, { ...options, storedKeys }), keyProblem: undefined };
  } catch (thrown) {
    if (!(thrown instanceof StartError)) throw thrown;
    return { loaded, keyProblem: problemOfWhole(file, thrown.message, 'gateway.auth.keyFile') };
  }
}

function verdictOf(file: string, { problems }: Loaded, keyProblem: Problem | undefined): string {
  if (keyProblem !== undefined) return `${file}: a start is refused for its key file. It would serve:`;
  return problems.length === 0 ? `${file} is valid.` : `${file} has entries that cannot be used; the rest is served.`;
}

/** Returns the public part of a config, without arguments, environment, headers and URL paths, which may hold secrets. */
function summary(config: Config, { missing, started }: Findings): object {
  const { file, listen, operator, stateDir, upstreams, profiles } = config;
  return {
    file,
    listen: addressText(listen),
    operator: operator === undefined ? null : addressText(operator),
    stateDir,
    upstreams: upstreams.map(({ id, title, target, prefix, isolation, clientFeatures, start, required, problem }) => ({
      id,
      title,
      endpoint: `/mcp/${id}`,
      transport: target.kind,
      prefix,
      isolation,
      clientFeatures,
      start,
      required,
      problem: problem ?? missing.get(id) ?? null,
      ...startedSummary(started.get(id)),
    })),
    profiles: profiles.map(({ id, upstreams }) => ({ id, endpoint: `/mcp/${id}`, upstreams })),
  };
}

function startedSummary(status: StartedUpstream | undefined): object {
  if (status === undefined) return {};
  const { state, tools, prompts, resources, listProblems, emptyAt } = status;
  const reason = status.isForCallers ? LEFT_TO_CALLERS : (status.reason ?? null);
  return { state, reason, tools, prompts, resources, listProblems, emptyAt };
}

/** @param disabled the ids of entries that are not served. */
function overview(verdict: string, config: Config, findings: Findings, disabled: readonly string[]): string {
  const { listen, tls, operator, publicUrl, stateDir, upstreams, profiles } = config;
  const rows: [string, string][] = [
    ['/mcp', upstreams.length === 1 ? 'the one upstream' : `all ${upstreams.length} upstreams`],
    ...upstreams.map((upstream): [string, string] => [`/mcp/${upstream.id}`, upstreamText(upstream, findings)]),
    ...profiles.map((one): [string, string] => [`/mcp/${one.id}`, `profile of ${one.upstreams.join(', ')}`]),
  ];
  const width = Math.max(...rows.map(([endpoint]) => endpoint.length));
  return [
    verdict,
    '',
    `clients    ${publicUrl ?? `${tls === undefined ? 'http' : 'https'}://${addressText(listen)}`}`,
    ...rows.map(([endpoint, text]) => `  ${endpoint.padEnd(width)}  ${text}`),
    ...(disabled.length === 0 ? [] : [`not served ${disabled.join(', ')}`]),
    `operators  ${operator === undefined ? 'none' : `http://${addressText(operator)}`}`,
    `state      ${stateDir}`,
    '',
  ].join('\n');
}

function upstreamText(
  { id, target, isolation, start, required, problem }: UpstreamConfig,
  { missing, started }: Findings,
): string {
  if (problem !== undefined) return `FAILED ${problem}`;
  const status = started.get(id);
  const program = target.kind === 'stdio' ? ` ${basename(shownCommand(target.command))}` : '';
  const each = isolation === 'shared' ? 'shared by all' : `one per ${isolation}`;
  const how = `${target.kind}${program}, ${each}, ${start}${required ? ', required' : ''}`;
  if (status === undefined) return missing.has(id) ? `${how}; CANNOT START` : how;
  if (status.isForCallers) return `${LEFT_TO_CALLERS}; ${how}`;
  if (status.state !== 'ready') return `FAILED ${status.reason ?? status.state}`;
  return `ready, ${countText(status.tools, 'tool')}, ${countText(status.prompts, 'prompt')}, ${countText(status.resources, 'resource')}; ${how}`;
}
