import { dirname, join, resolve } from 'node:path';

import { readAccess } from './sections/access.ts';
import { addressesOf, judgeAddresses, readOverrides, warnOfExposure } from './sections/addresses.ts';
import { judgeItself } from './sections/circle-checks.ts';
import { findUpstreams } from './upstreams/client-file.ts';
import { scopesOnDemandOf } from '../policy/scopes-on-demand.ts';
import { exchangeWarnings, judgeAuth, warnOfScopes } from './sections/auth-checks.ts';
import { isAuthRequired } from './auth-required.ts';
import type { Config } from './values/config.ts';
import { authOf, configOf } from './config-values.ts';
import type { Document } from './document/document.ts';
import { expandData, valueAt } from './document/expanded.ts';
import { Faults } from './document/faults.ts';
import { gatewaySchema, type GatewaySettings } from './schema/gateway-schema.ts';
import { parseFile } from './parse-file.ts';
import { LIMITS } from '../limits.ts';
import { ConfigFiles, configLimitBytes, isJsonFile } from './files/config-files.ts';
import { type FileProblem, fileProblemText } from './files/ordinary-file.ts';
import { readableSecrets } from './readable-secrets.ts';
import { places, type Places } from './document/places.ts';
import { byPlace, ConfigError, type Problem, problemLine, problemOfWhole } from './document/problem.ts';
import { DEFAULT_LOCK_FILE, judgeUnpinnable, readLock } from './sections/lock.ts';
import { judgeRedis, judgeWorkers, warnOfLimits } from './sections/gateway-checks.ts';
import { Names } from './sections/names.ts';
import { judgePinnedNames } from './sections/pinned-names.ts';
import { readProfiles } from './sections/profiles.ts';
import { readRates } from './sections/rates.ts';
import { type KnownKey, SelectorJudge } from './sections/selector-faults.ts';
import { checkSection } from './schema/section.ts';
import { type Setting, settingsOf, type SettingsSource } from './settings.ts';
import { withProblem } from './upstreams/upstream.ts';
import { upstreamId } from './upstreams/upstream-id.ts';
import {
  type ConfigCopy,
  earlierUpstreams,
  type LastGoodUpstreams,
  mapOf,
  readUpstreams,
  type UpstreamSource,
} from './upstream-source.ts';

export interface LoadOptions {
  readonly env: NodeJS.ProcessEnv;
  /** Overrides `gateway.listen`. */
  readonly listen?: string | undefined;
  /** Overrides `gateway.operator`. */
  readonly operator?: string | undefined;
  /** False for a gateway that opens no port. Default: true. */
  readonly listens?: boolean | undefined;
  /** The folder of the project in `~/.claude.json` whose servers are served as well. */
  readonly project?: string | undefined;
  /** Returns the SHA-256 of an API key for a config without authentication. Called only if the rest of the config is valid. */
  readonly firstKeyHash?:
    | ((config: Pick<Config, 'stateDir' | 'publicUrl' | 'listen' | 'tls'>) => string | Promise<string>)
    | undefined;
  /** Loads a config whose lock file is missing or broken, for the command that writes it. */
  readonly ignoresLock?: boolean | undefined;
  /** The API keys in the key file, so that a grant or a rate for another one is a warning. Default: unknown, since keys come and go. */
  readonly storedKeys?: readonly KnownKey[] | undefined;
  /** Upstreams to use instead of those of the file. The settings of the gateway are always those of the file. */
  readonly lastGood?: LastGoodUpstreams | undefined;
}

/** Files by absolute path, with the states in which they were read; undefined if that is unknown. */
export type LoadedFiles = ReadonlyMap<string, string | undefined>;

export interface Loaded {
  /** Deeply frozen. */
  readonly config: Config;
  /** Ignored or suspicious settings, one line each. */
  readonly warnings: readonly string[];
  /** Problems of entries. Each such upstream is listed as failed; the others are served. */
  readonly problems: readonly Problem[];
  /**
   * All files that the config depends on: its own, those of `envFile` and `${file:…}`, and the lock file. The absolute path of each, and the state in
   * which it was read; undefined if that is unknown.
   */
  readonly files: LoadedFiles;
  /** Absolute path of the lock file, also if there is none. */
  readonly lockFile: string;
  /** Ids of entries that are not served: disabled, or of a type that only its client can run. */
  readonly disabled: readonly string[];
  /** Returns every setting with its origin, without secrets. */
  readonly settings: () => readonly Setting[];
  /** A copy of the file; undefined for a large file, most of which is the state of a client. */
  readonly copy: ConfigCopy | undefined;
  /** Set if the file is broken and the upstreams are those of an earlier one. */
  readonly lastGood?: { readonly savedAt: string; readonly reason: string } | undefined;
}

/**
 * Loads our config file or that of any MCP client. Never writes to it.
 *
 * A mistake in one entry fails that upstream alone: it is listed as failed with the reason, and the others are served.
 * A variable that is not set fails its upstream in the same way; in the gateway's own settings it is an error.
 *
 * @throws {ConfigError} with every problem found, if the file as a whole or every entry of it is wrong; and what
 *   `firstKeyHash` throws.
 */
export async function loadConfig(file: string, options: LoadOptions): Promise<Loaded> {
  const files = new ConfigFiles();
  const main = await readMain(file, files);
  const document = parseFile(file, main.text);
  const loaded = await files.build(() => loadFrom(file, { ...main, document }, options, files));
  return options.firstKeyHash === undefined ? loaded : await withFirstKey(loaded, options.firstKeyHash);
}

/** Adds the first key to a config without authentication. */
async function withFirstKey(loaded: Loaded, hashOf: NonNullable<LoadOptions['firstKeyHash']>): Promise<Loaded> {
  const { config } = loaded;
  if (isAuthRequired(config.auth)) return loaded;
  const apiKeys = [{ name: 'first', sha256: await hashOf(config) }];
  return { ...loaded, config: freeze({ ...config, auth: { ...config.auth, apiKeys } }) };
}

/** The file of a config itself. */
interface MainFile {
  readonly text: string;
  readonly mode: number;
}

/** Loads a config from a parsed file. Reads nothing: the result counts only if `files` has all that it asks for. @throws as {@link loadConfig} does. */
function loadFrom(
  file: string,
  { text, mode, document }: MainFile & { readonly document: Document },
  options: LoadOptions,
  files: ConfigFiles,
): Loaded {
  const { env, listen, operator, project, lastGood, listens = true } = options;
  const absolute = resolve(file);
  const where = places(absolute, env, files);
  const own = findUpstreams(document, project);
  const source: UpstreamSource =
    lastGood === undefined
      ? { document, where, map: mapOf(own) }
      : earlierUpstreams(lastGood, { file, document, found: own }, options, files);

  const faults = new Faults(document);
  const { problems, warnings } = faults;
  const settings = readGateway(document, where, problems);
  const read = readUpstreams(source, problems);
  const { upstreams, keys, wrongEntries } = read;
  warnings.push(...read.warnings);
  const idsInFile = [...keys.keys()];
  // A profile may name an upstream that only the file has. It goes without that upstream.
  if (lastGood !== undefined && 'entries' in own) {
    for (const { key } of own.entries) if (!keys.has(upstreamId(key))) keys.set(upstreamId(key), key);
  }

  const overrides = readOverrides({ listen, operator }, problems);
  const hasNoUsableEntry = !read.hasUsable && wrongEntries.length > 0;
  const throwIfWrong = (): void => {
    if (problems.length > 0 || hasNoUsableEntry) throw new ConfigError([...problems, ...wrongEntries]);
  };
  if (settings === undefined) throw new ConfigError([...problems, ...wrongEntries]);
  const addresses = addressesOf(document, settings, overrides);
  const names = new Names(keys, settings.profiles);
  const profiles = readProfiles(settings, upstreams, names, faults);
  const judge = new SelectorJudge(faults, settings, options.storedKeys);
  const auth = authOf(settings, where);
  const access = readAccess(settings, { document, names, judge, issuers: scopesOnDemandOf(auth), faults });
  const rates = readRates(settings, names, judge, faults);
  const jsonAnswers = settings.jsonAnswers.flatMap(
    (one, i) => faults.resolve(['gateway', 'jsonAnswers', i], 'endpoint', one, names.views) ?? [],
  );
  const hasAuth = isAuthRequired(auth) || options.firstKeyHash !== undefined;
  judgeAddresses(hasAuth, addresses, faults);
  judgeAuth(settings, faults);
  judgeRedis(settings, faults);
  judgeWorkers(settings, faults);
  throwIfWrong();
  warnings.push(...exchangeWarnings(source, settings.auth, upstreams));
  warnOfScopes(settings, faults);
  warnOfLimits(settings, faults);
  // Over stdio there is one client, on this machine.
  warnOfExposure(hasAuth || !listens, settings, addresses, faults);
  warnings.push(...readableSecrets(absolute, mode, document, 'entries' in own ? own.entries : []));
  const lockFile = where.resolve(settings.lock?.file ?? DEFAULT_LOCK_FILE);
  const lock = options.ignoresLock === true ? undefined : readLock(lockFile, settings.lock, files, upstreams, faults);
  throwIfWrong();
  if (access !== undefined && lock !== undefined) judgePinnedNames(access, lock, upstreams, faults);
  throwIfWrong();
  const unpinnable = judgeUnpinnable(source, lock, upstreams);

  const base = configOf(absolute, settings, addresses, where, env);
  const itself = judgeItself(source, { ...base, profiles }, upstreams, listens);
  warnings.push(...[...itself.leftOut.values()].map(problemLine));
  const served = upstreams.filter(({ id }) => !itself.leftOut.has(id));

  return {
    config: freeze({
      ...base,
      ...(lock === undefined ? {} : { lock }),
      upstreams: served.map((one) => withProblem(one, itself.problems.get(one.id) ?? unpinnable.get(one.id))),
      profiles,
      access,
      rates,
      jsonAnswers,
    }),
    warnings,
    problems: [...wrongEntries, ...unpinnable.values(), ...itself.problems.values()].toSorted(byPlace),
    files: new Map(
      [absolute, ...where.files, ...source.where.files, lockFile].map((path) => [path, files.stateOf(path)]),
    ),
    lockFile,
    disabled: idsInFile.filter((id) => !served.some((one) => one.id === id)),
    settings: settingsLater({
      document,
      gateway: expandData(['gateway'], valueAt(document.data, ['gateway']) ?? {}, where, 'plain'),
      upstreamDocument: source.document,
      upstreams: source.map.entries.map(({ path }) => path),
      options: optionSettings({ listen, operator }),
    }),
    copy: text.length > LIMITS.configFileBytes ? undefined : { text, envFiles: Object.fromEntries(where.envFiles) },
  };
}

/** Keeps the source alone, not the texts that it was made from. */
function settingsLater(source: SettingsSource): () => readonly Setting[] {
  return () => settingsOf(source);
}

/** Reads the file itself. @throws {ConfigError} */
async function readMain(file: string, files: ConfigFiles): Promise<MainFile> {
  const refuse = (message: string, cause?: unknown) => new ConfigError([problemOfWhole(file, message)], cause);
  const path = resolve(file);
  const limitBytes = configLimitBytes(file);
  files.get(path, limitBytes);
  // Most configs need no other file, and are built once.
  files.get(join(dirname(path), DEFAULT_LOCK_FILE), LIMITS.configLockBytes);
  await files.readWanted();
  const found = files.get(path, limitBytes);
  if (found.kind !== 'found') throw refuse(mainProblem(file, found));
  const { bytes, mode } = found;
  try {
    return { text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes), mode };
  } catch (thrown) {
    throw refuse('is not UTF-8 text; save it in that encoding', thrown);
  }
}

function mainProblem(file: string, problem: FileProblem): string {
  if (problem.kind === 'failed' && problem.code === 'ENOENT') return 'no such file';
  const text = fileProblemText(problem);
  if (problem.kind === 'not-ordinary') return `${text}; write the config to a file, and name that`;
  if (problem.kind !== 'too-large') return text;
  return isJsonFile(file) ? `${text}; is it a config?` : `${text}; is it a config? One in JSON may have 32 MiB`;
}

function readGateway(document: Document, where: Places, problems: Problem[]): GatewaySettings | undefined {
  const path = ['gateway'];
  const expanded = expandData(path, valueAt(document.data, path) ?? {}, where, 'plain');
  const unset = expanded.unexpanded.map(({ path, reason }) => document.problem(path, reason));
  const section = checkSection(gatewaySchema, document, path, expanded);
  const reported = new Set(unset.map(({ key }) => key));
  problems.push(...unset);
  if ('value' in section) return section.value;
  problems.push(...section.problems.filter(({ key }) => !reported.has(key)));
  return undefined;
}

/** Returns the settings that the command line overrides, by key. */
function optionSettings({ listen, operator }: Pick<LoadOptions, 'listen' | 'operator'>): SettingsSource['options'] {
  const value = operator === 'off' ? false : operator;
  return new Map([
    ...(listen === undefined ? [] : [['gateway.listen', { option: '--listen', value: listen }] as const]),
    ...(value === undefined ? [] : [['gateway.operator', { option: '--operator', value }] as const]),
  ]);
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const member of Object.values(value)) freeze(member);
  }
  return value;
}
