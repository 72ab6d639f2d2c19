import type { Addresses } from './sections/addresses.ts';
import type {
  AuditConfig,
  AuthConfig,
  Config,
  OverloadConfig,
  RedisConfig,
  RepeatsConfig,
  TracingConfig,
} from './values/config.ts';
import type { GatewaySettings } from './schema/gateway-schema.ts';
import { spelledScopes } from '../policy/scopes-on-demand.ts';
import type { Places } from './document/places.ts';
import { defaultStateDir } from './state-dir.ts';

/** Returns the config as values: with sizes in bytes, times in ms and absolute paths. */
export function configOf(
  file: string,
  settings: GatewaySettings,
  { listen, operator, operatorMayMove }: Addresses,
  where: Places,
  env: NodeJS.ProcessEnv,
): Omit<Config, 'upstreams' | 'profiles' | 'access' | 'rates' | 'jsonAnswers'> {
  const { sessions } = settings;
  const { body, message, inFlightPerPrincipal, bodyTotal, messageTotal, unsentTotal, ...counts } = settings.limits;
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
      ...counts,
      inFlightPerPrincipal,
      bodyBytes: body,
      messageBytes: message,
      bodyTotalBytes: bodyTotal,
      messageTotalBytes: messageTotal,
      unsentTotalBytes: unsentTotal,
    },
    sessions: {
      required: sessions.required,
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

/** Returns the settings of authentication as values. */
export function authOf({ auth }: Pick<GatewaySettings, 'auth'>, where: Places): AuthConfig {
  const { jwt, apiKeys, introspection, keyFile, keysInRedis } = auth;
  return {
    jwt: jwt.map(({ types, leeway, scopesOnDemand, ...issuer }) => {
      return { ...issuer, scopesOnDemand: spelledScopes(scopesOnDemand), types, leewayMs: leeway };
    }),
    apiKeys: apiKeys.map(({ name, sha256, groups }) => ({ name, sha256, ...(groups === undefined ? {} : { groups }) })),
    introspection: introspection.map((issuer) => ({ ...issuer, scopesOnDemand: spelledScopes(issuer.scopesOnDemand) })),
    keyFile: keyFile === undefined ? undefined : where.resolve(keyFile),
    keysInRedis,
  };
}

function redisOf(redis: GatewaySettings['redis'], where: Places): RedisConfig | undefined {
  if (redis === undefined) return undefined;
  const { url: target, caFile, internal, advertise, ...rest } = redis;
  return { ...rest, target, caFile: caFile === undefined ? undefined : where.resolve(caFile), internal, advertise };
}

function auditOf(audit: GatewaySettings['audit'], where: Places): AuditConfig | undefined {
  if (audit === undefined) return undefined;
  const { file, otlp, maxSize, maxFiles, required, sync, queue, recordSize, chainKeys } = audit;
  return {
    file: file === undefined ? undefined : where.resolve(file),
    otlp,
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

function repeatsOf(repeats: GatewaySettings['repeats']): RepeatsConfig | undefined {
  if (repeats === undefined) return undefined;
  const { window: windowMs, ...rest } = repeats;
  return { ...rest, windowMs };
}

function overloadOf({ loopDelay, memory }: GatewaySettings['overload']): OverloadConfig {
  const limit = memory === false ? 'none' : (memory ?? 'of cgroup');
  return { loopDelayMs: loopDelay === false ? 'off' : loopDelay, memory: limit };
}

const ENDPOINT_VARIABLES = ['OTEL_EXPORTER_OTLP_ENDPOINT', 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'];

/** Returns how traces are exported; undefined if neither the file nor the environment asks for it. */
function tracingOf(settings: GatewaySettings['tracing'], env: NodeJS.ProcessEnv): TracingConfig | undefined {
  if (settings?.enabled === false || env['OTEL_SDK_DISABLED']?.toLowerCase() === 'true') return undefined;
  if (settings !== undefined) return { endpoint: settings.endpoint, sampling: settings.sampling };
  const isNamed = ENDPOINT_VARIABLES.some((name) => (env[name] ?? '') !== '') && env['OTEL_TRACES_EXPORTER'] !== 'none';
  return isNamed ? { endpoint: undefined, sampling: undefined } : undefined;
}
