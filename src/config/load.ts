import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';

import { readAccess } from './sections/access.ts';
import { addressesOf, exposure, exposureWarnings, readOverrides } from './sections/addresses.ts';
import type { Addresses } from './sections/addresses.ts';
import { findUpstreams } from './upstreams/client-file.ts';
import { authProblems } from './sections/auth-checks.ts';
import { workerProblems } from './sections/worker-checks.ts';
import { isAuthRequired } from './auth-required.ts';
import type {
  AuditConfig,
  AuditOtlpConfig,
  AuthConfig,
  Config,
  OverloadConfig,
  RedisConfig,
  RepeatsConfig,
  TracingConfig,
} from './config.ts';
import type { Document } from './document/document.ts';
import { expandData, valueAt } from './document/expanded.ts';
import { gatewaySchema } from './schema/gateway-schema.ts';
import type { GatewaySettings } from './schema/gateway-schema.ts';
import { parseFile } from './parse-file.ts';
import { onChangeOf } from './on-change.ts';
import { readableSecrets } from './readable-secrets.ts';
import { places } from './document/places.ts';
import type { Places } from './document/places.ts';
import { ConfigError } from './document/problem.ts';
import type { Problem } from './document/problem.ts';
import { readLock } from './sections/lock.ts';
import { judgePinnedNames } from './sections/pinned-names.ts';
import { readProfiles } from './sections/profiles.ts';
import { readRates } from './sections/rates.ts';
import { checkSection } from './schema/section.ts';
import { type Setting, settingsOf } from './settings.ts';
import { defaultStateDir } from './state-dir.ts';
import { upstreamId } from './upstreams/upstream-id.ts';
import {
  type ConfigCopy,
  earlierUpstreams,
  type LastGoodUpstreams,
  mapOf,
  readUpstreams,
  type UpstreamSource,
} from './upstream-source.ts';

const FILE_LIMIT_BYTES = 1_048_576;
/** Claude Code keeps all its state in the file with its servers. */
const JSON_FILE_LIMIT_BYTES = 33_554_432;

export interface LoadOptions {
  readonly env: NodeJS.ProcessEnv;
  /** Overrides `gateway.listen`. */
  readonly listen?: string | undefined;
  /** Overrides `gateway.operator`. */
  readonly operator?: string | undefined;
  /** The folder of the project in `~/.claude.json` whose servers are served as well. */
  readonly project?: string | undefined;
  /** Returns the SHA-256 of an API key for a config without authentication. Called only if the rest of the config is valid. */
  readonly firstKeyHash?: ((config: Pick<Config, 'stateDir' | 'publicUrl' | 'listen' | 'tls'>) => string) | undefined;
  /** Loads a config whose lock file is missing or broken, for the command that writes it. */
  readonly ignoresLock?: boolean | undefined;
  /** Upstreams to use instead of those of the file. The settings of the gateway are always those of the file. */
  readonly lastGood?: LastGoodUpstreams | undefined;
}

export interface Loaded {
  /** Deeply frozen. */
  readonly config: Config;
  /** Ignored or suspicious settings, one line each. */
  readonly warnings: readonly string[];
  /** Problems of entries. Each such upstream is listed as failed; the others are served. */
  readonly problems: readonly Problem[];
  /** The absolute paths of all files that the config depends on: its own, those of `envFile` and `${file:…}`, and the lock file. */
  readonly files: readonly string[];
  /** Absolute path of the lock file, also if there is none. */
  readonly lockFile: string;
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
export function loadConfig(file: string, options: LoadOptions): Loaded {
  const { env, listen, operator, project, lastGood } = options;
  const absolute = resolve(file);
  const text = readText(file);
  const document = parseFile(file, text);
  const where = places(absolute, env);
  const own = findUpstreams(document, project);
  const source: UpstreamSource =
    lastGood === undefined
      ? { document, where, map: mapOf(own) }
      : earlierUpstreams(lastGood, { file, document, found: own }, options);

  const problems: Problem[] = [];
  const settings = readGateway(document, where, problems);
  const { upstreams, keys, wrongEntries, warnings, hasUsable } = readUpstreams(source, problems);
  // A profile may name an upstream that only the file has. It goes without that upstream.
  if (lastGood !== undefined && 'entries' in own) {
    for (const { key } of own.entries) if (!keys.has(upstreamId(key))) keys.set(upstreamId(key), key);
  }

  const overrides = readOverrides({ listen, operator }, problems);
  if (settings === undefined) throw new ConfigError([...problems, ...wrongEntries]);
  const addresses = addressesOf(document, settings, overrides);
  const profiles = readProfiles(document, settings, upstreams, keys);
  const rates = readRates(document, settings, { keys, profiles: profiles.profiles });
  const isAuthConfigured = isAuthRequired(authOf(settings, where));
  const firstKeyHash = isAuthConfigured ? undefined : options.firstKeyHash;
  const hasAuth = isAuthConfigured || firstKeyHash !== undefined;
  const { access, problems: accessProblems } = readAccess(document, settings, {
    upstreams: keys,
    profiles: profiles.profiles.map(({ id }) => id),
  });
  problems.push(...accessProblems, ...rates.problems);
  problems.push(...profiles.problems, ...exposure(document, hasAuth, addresses), ...authProblems(document, settings));
  problems.push(...workerProblems(document, settings));
  const hasNoUsableEntry = !hasUsable && wrongEntries.length > 0;
  if (problems.length > 0 || hasNoUsableEntry) throw new ConfigError([...problems, ...wrongEntries]);
  warnings.push(...profiles.warnings, ...exposureWarnings(document, settings, addresses));
  warnings.push(...readableSecrets(absolute, document));
  const lock = readLock(document, settings.lock, where, upstreams);
  warnings.push(...lock.warnings);
  if (lock.problem !== undefined && options.ignoresLock !== true)
    throw new ConfigError([lock.problem, ...wrongEntries]);
  if (access !== undefined && lock.config !== undefined && options.ignoresLock !== true) {
    const names = judgePinnedNames(document, access, lock.config, upstreams, (upstream) =>
      onChangeOf({ lock: lock.config }, upstream),
    );
    warnings.push(...names.warnings);
    if (names.problems.length > 0) throw new ConfigError([...names.problems, ...wrongEntries]);
  }

  const config = configOf(absolute, settings, addresses, where, env);
  const auth =
    firstKeyHash === undefined
      ? config.auth
      : { ...config.auth, apiKeys: [{ name: 'first', sha256: firstKeyHash(config) }] };
  return {
    config: freeze({
      ...config,
      ...(lock.config === undefined ? {} : { lock: lock.config }),
      auth,
      upstreams,
      profiles: profiles.profiles,
      access,
      rates: rates.rates,
    }),
    warnings,
    problems: wrongEntries.toSorted((a, b) => a.line - b.line || a.column - b.column),
    files: [...new Set([absolute, ...where.files, ...source.where.files, lock.file])],
    lockFile: lock.file,
    settings: () =>
      settingsOf({
        document,
        gateway: expandData(['gateway'], valueAt(document.data, ['gateway']) ?? {}, where, 'plain'),
        upstreamDocument: source.document,
        upstreams: source.map.entries.map(({ path }) => path),
        options: optionSettings({ listen, operator }),
      }),
    copy: text.length > FILE_LIMIT_BYTES ? undefined : { text, envFiles: Object.fromEntries(where.envFiles) },
  };
}

/** @throws {ConfigError} */
function readText(file: string): string {
  const refuse = (message: string, cause?: unknown): ConfigError => {
    return new ConfigError([{ file, line: 0, column: 0, key: '', message }], cause);
  };
  let bytes: Buffer;
  try {
    bytes = readFileSync(file);
  } catch (thrown) {
    const code = thrown instanceof Error && 'code' in thrown ? String(thrown.code) : 'unknown error';
    throw refuse(code === 'ENOENT' ? 'no such file' : `cannot be read (${code})`, thrown);
  }
  const isJsonFile = /\.jsonc?$/i.test(file);
  if (bytes.length > (isJsonFile ? JSON_FILE_LIMIT_BYTES : FILE_LIMIT_BYTES)) {
    throw refuse(`is larger than ${isJsonFile ? '32 MiB' : '1 MiB'}`);
  }
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (thrown) {
    throw refuse('is not UTF-8 text', thrown);
  }
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

function configOf(
  file: string,
  settings: GatewaySettings,
  { listen, operator, operatorMayMove }: Addresses,
  where: Places,
  env: LoadOptions['env'],
): Omit<Config, 'upstreams' | 'profiles' | 'access' | 'rates'> {
  const { limits, sessions } = settings;
  const ofFile = defaultStateDir(file, where);
  return {
    file,
    listen,
    operator,
    operatorMayMove,
    publicUrl: settings.publicUrl,
    allowedHosts: settings.allowedHosts,
    allowedOrigins: settings.allowedOrigins,
    trustedProxies: settings.trustedProxies,
    stateDir: settings.stateDir === undefined ? ofFile : where.resolve(settings.stateDir),
    defaultStateDir: ofFile,
    tls: settings.tls,
    auth: authOf(settings, where),
    operatorKeys: settings.operatorKeys.map(({ name, sha256 }) => ({ name, sha256 })),
    limits: {
      bodyBytes: limits.body,
      messageBytes: limits.message,
      processes: limits.processes,
      sessions: limits.sessions,
      sessionsPerPrincipal: limits.sessionsPerPrincipal,
      parkedPerPrincipal: limits.parkedPerPrincipal,
      parkedPerUpstream: limits.parkedPerUpstream,
      inFlightPerSession: limits.inFlightPerSession,
      inFlightPerPrincipal: limits.inFlightPerPrincipal,
      streamsPerPrincipal: limits.streamsPerPrincipal,
      bodyTotalBytes: limits.bodyTotal,
      messageTotalBytes: limits.messageTotal,
      unsentTotalBytes: limits.unsentTotal,
    },
    sessions: {
      idleMs: sessions.idle,
      maxAgeMs: sessions.maxAge,
      parkMs: sessions.park,
      keepAliveMs: sessions.keepAlive,
      eventLimit: sessions.events,
      eventLimitBytes: sessions.eventBytes,
      eventTotalBytes: sessions.eventBytesTotal,
    },
    legacySse: settings.legacySse,
    logLevel: settings.logLevel,
    accessLog: settings.accessLog,
    tracing: tracingOf(settings.tracing, env),
    audit: auditOf(settings.audit, where),
    repeats: repeatsOf(settings.repeats),
    overload: overloadOf(settings.overload),
    idempotency: { keepMs: settings.idempotency.keep },
    names: settings.names,
    instructions: settings.instructions,
    lists: { waitMs: settings.lists.wait },
    reload: { watch: settings.reload.watch, drainMs: settings.reload.drain },
    ...(settings.egress === undefined ? {} : { egress: settings.egress }),
    workers: settings.workers,
    redis: redisOf(settings.redis, where),
  };
}

function authOf({ auth }: Pick<GatewaySettings, 'auth'>, where: Places): AuthConfig {
  const { jwt, apiKeys, introspection, keyFile, keysInRedis } = auth;
  return {
    jwt: jwt.map(({ types, leeway, ...issuer }) => ({ ...issuer, types, leewayMs: leeway })),
    apiKeys: apiKeys.map(({ name, sha256, groups }) => ({ name, sha256, ...(groups === undefined ? {} : { groups }) })),
    introspection,
    keyFile: keyFile === undefined ? undefined : where.resolve(keyFile),
    keysInRedis,
  };
}

function redisOf(redis: GatewaySettings['redis'], where: Places): RedisConfig | undefined {
  if (redis === undefined) return undefined;
  const { url: target, caFile, prefix, wrappingKeys, internal, advertise, events } = redis;
  return {
    target,
    caFile: caFile === undefined ? undefined : where.resolve(caFile),
    prefix,
    wrappingKeys,
    internal,
    advertise,
    events,
  };
}

type AuditOtlpSettings = NonNullable<NonNullable<GatewaySettings['audit']>['otlp']>;

function auditOf(audit: GatewaySettings['audit'], where: Places): AuditConfig | undefined {
  if (audit === undefined) return undefined;
  const { file, otlp, maxSize, maxFiles, required, sync, queue, recordSize, chainKeys } = audit;
  return {
    file: file === undefined ? undefined : where.resolve(file),
    otlp: otlp === undefined ? undefined : auditOtlpOf(otlp),
    maxBytes: maxSize,
    maxFiles,
    arguments: audit.arguments,
    required,
    sync,
    queueBytes: queue,
    recordBytes: recordSize,
    keys: chainKeys,
  };
}

function auditOtlpOf({ endpoint, headers, tls }: AuditOtlpSettings): AuditOtlpConfig {
  const { ca, cert, key } = tls ?? {};
  return { endpoint, headers, tls: tls === undefined ? undefined : { ca, cert, key } };
}

function repeatsOf(repeats: GatewaySettings['repeats']): RepeatsConfig | undefined {
  if (repeats === undefined) return undefined;
  const { limit, window: windowMs, tools, exceptTools } = repeats;
  return { limit, windowMs, tools, exceptTools };
}

function overloadOf({ loopDelay, memory }: GatewaySettings['overload']): OverloadConfig {
  const limit = memory === false ? 'none' : (memory ?? 'of cgroup');
  return { loopDelayMs: loopDelay === false ? 'off' : loopDelay, memory: limit };
}

const ENDPOINT_VARIABLES = ['OTEL_EXPORTER_OTLP_ENDPOINT', 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'];

/** Returns how traces are exported; undefined if neither the file nor the environment asks for it. */
function tracingOf(settings: GatewaySettings['tracing'], env: LoadOptions['env']): TracingConfig | undefined {
  if (settings?.enabled === false || env['OTEL_SDK_DISABLED']?.toLowerCase() === 'true') return undefined;
  if (settings !== undefined) return { endpoint: settings.endpoint, sampling: settings.sampling };
  const isNamed = ENDPOINT_VARIABLES.some((name) => (env[name] ?? '') !== '') && env['OTEL_TRACES_EXPORTER'] !== 'none';
  return isNamed ? { endpoint: undefined, sampling: undefined } : undefined;
}

/** Returns the settings that the command line overrides, by key. */
function optionSettings({
  listen,
  operator,
}: Pick<LoadOptions, 'listen' | 'operator'>): Map<string, { readonly option: string; readonly value: string | false }> {
  const options = new Map<string, { readonly option: string; readonly value: string | false }>();
  if (listen !== undefined) options.set('gateway.listen', { option: '--listen', value: listen });
  if (operator !== undefined) {
    options.set('gateway.operator', { option: '--operator', value: operator === 'off' ? false : operator });
  }
  return options;
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const member of Object.values(value)) freeze(member);
  }
  return value;
}
