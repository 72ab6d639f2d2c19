import type { Pins } from '../../lock/pins.ts';
import type { Config } from '../values/config.ts';
import type { HttpTarget, StdioTarget, UpstreamConfig } from '../values/upstream-config.ts';

/** The effect of a changed setting of the gateway: it is read at its next use, or at the next start. */
export type GatewayEffect = 'at once' | 'at the next start';

/** The effect of a changed setting of an upstream: it is given to the running upstream, or another upstream takes its place. */
export type UpstreamEffect = 'update' | 'replace';

/** An effect for each setting of a group. */
export type EffectTree<E extends string> = E | { readonly [setting: string]: EffectTree<E> };

type Scalar = string | number | boolean;
type KeyOf<T> = T extends unknown ? keyof T : never;
type MemberOf<T, K> = T extends unknown ? (K extends keyof T ? T[K] : never) : never;
type EffectOf<T, E, Safe> = [T] extends [Scalar | readonly unknown[] | Pins]
  ? E
  : string extends keyof T
    ? E
    : Safe | EffectsOf<T, E, Safe>;
/**
 * An effect for every setting of `T`. Lists and maps with keys of the operator are one setting. A group may have one effect only if
 * it is the safe one, which is right for any setting that is added to it.
 */
type EffectsOf<T, E, Safe> = { readonly [K in KeyOf<T>]-?: EffectOf<NonNullable<MemberOf<T, K>>, E, Safe> };

/**
 * The effect of each setting of the gateway. A setting may be `at once` only if its reader asks for it at each use. It asks by `Settings`
 * of `config.ts`, or by a `setConfig` that a file of `compose/reload/` calls.
 */
export const GATEWAY_EFFECTS = {
  listen: { host: 'at once', port: 'at once' },
  operator: { host: 'at once', port: 'at once' },
  tls: { cert: 'at once', key: 'at once' },
  publicUrl: 'at once',
  allowedHosts: 'at once',
  allowedOrigins: 'at once',
  trustedProxies: 'at once',
  stateDir: 'at the next start',
  workers: 'at the next start',
  redis: 'at the next start',
  auth: { jwt: 'at once', introspection: 'at once', apiKeys: 'at once', keyFile: 'at once', keysInRedis: 'at once' },
  access: {
    claims: 'at once',
    groupClaims: 'at once',
    roles: 'at once',
    grants: 'at once',
    tested: 'at once',
    external: { url: 'at once', headers: 'at once', timeoutMs: 'at once', upstreams: 'at once', arguments: 'at once' },
  },
  operatorKeys: 'at once',
  limits: {
    bodyBytes: 'at once',
    messageBytes: 'at once',
    processes: 'at once',
    sessions: 'at once',
    sessionsPerPrincipal: 'at once',
    parkedPerPrincipal: 'at once',
    parkedPerUpstream: 'at once',
    inFlightPerSession: 'at once',
    inFlightPerPrincipal: 'at once',
    streamsPerPrincipal: 'at once',
    bodyTotalBytes: 'at once',
    messageTotalBytes: 'at the next start',
    unsentTotalBytes: 'at the next start',
  },
  sessions: {
    required: 'at once',
    idleMs: 'at once',
    maxAgeMs: 'at once',
    parkMs: 'at once',
    keepAliveMs: 'at the next start',
    eventLimit: 'at the next start',
    eventLimitBytes: 'at the next start',
    eventTotalBytes: 'at the next start',
  },
  jsonAnswers: 'at once',
  legacySse: 'at once',
  logLevel: 'at once',
  accessLog: 'at the next start',
  tracing: 'at the next start',
  audit: 'at the next start',
  rates: 'at once',
  repeats: { limit: 'at once', windowMs: 'at once', tools: 'at once', exceptTools: 'at once' },
  overload: { loopDelayMs: 'at once', memory: 'at once' },
  idempotency: { keepMs: 'at once' },
  names: { maxChars: 'at once' },
  instructions: { maxChars: 'at once' },
  lists: { waitMs: 'at once' },
  egress: 'at the next start',
  reload: { watch: 'at once', drainMs: 'at once' },
  lock: { file: 'at once', onChange: 'at once', pins: 'at once' },
} as const satisfies EffectsOf<
  Omit<Config, 'file' | 'defaultStateDir' | 'operatorMayMove' | 'upstreams' | 'profiles'>,
  GatewayEffect,
  'at the next start'
>;

/**
 * The effect of each setting of an upstream: `replace` for those that its open processes and connections depend on. The running
 * upstream gets the others by `UpstreamFactory.update`.
 */
export const UPSTREAM_EFFECTS = {
  title: 'update',
  target: {
    kind: 'replace',
    command: 'replace',
    args: 'replace',
    env: 'replace',
    cwd: 'replace',
    processLimits: 'replace',
    sandbox: 'replace',
    url: 'replace',
    headers: 'update',
    tls: 'replace',
    auth: {
      kind: 'replace',
      issuer: 'replace',
      tokenUrl: 'replace',
      clientId: 'replace',
      method: 'replace',
      clientSecret: 'update',
      privateKey: 'update',
      keyId: 'update',
      scopes: 'replace',
      stepUpScopes: 'replace',
      resource: 'replace',
      parameters: 'replace',
      audience: 'replace',
      lifetimeMs: 'update',
    },
  },
  prefix: 'update',
  rawUris: 'update',
  isolation: 'replace',
  era: 'replace',
  clientFeatures: 'replace',
  elicitationHosts: 'update',
  samplingBudget: 'update',
  start: 'update',
  required: 'update',
  timeouts: {
    startMs: 'update',
    // The pool of sockets has this deadline.
    connectMs: 'replace',
    firstByteMs: 'update',
    callMs: 'update',
    toolMs: 'update',
    maxMs: 'update',
  },
  concurrency: 'update',
  queue: 'update',
  queueMs: 'update',
  idleMs: 'update',
  maxConnections: 'update',
  includeTools: 'update',
  excludeTools: 'update',
  lock: 'update',
  problem: 'replace',
} as const satisfies EffectsOf<Omit<UpstreamConfig, 'id'>, UpstreamEffect, 'replace'>;

type TargetEffects = typeof UPSTREAM_EFFECTS.target;
type UpdatedKey = { [K in keyof TargetEffects]: TargetEffects[K] extends 'update' ? K : never }[keyof TargetEffects];

/** The settings of a target that its transport applies while it has open connections. */
export type UpdatedSettings<Target extends StdioTarget | HttpTarget> = Pick<Target, UpdatedKey & keyof Target>;

/** Returns the effects of the settings at a place: of one, or of all in a group that changed as a whole. */
export function effectsAt<E extends string>(tree: EffectTree<E>, at: readonly string[]): readonly E[] {
  if (typeof tree === 'string') return [tree];
  const [step, ...rest] = at;
  return Object.entries(tree).flatMap(([setting, inner]) =>
    step === undefined || setting === step ? effectsAt(inner, rest) : [],
  );
}

/** Returns the path of the setting with an effect of its own that holds a path: `gateway.audit` for `gateway.audit.file`. */
export function pathWithEffect(path: string): string {
  const steps = path.split('.');
  let tree: EffectTree<GatewayEffect> | undefined = GATEWAY_EFFECTS;
  let length = 1;
  for (; typeof tree === 'object' && length < steps.length; length++) tree = tree[steps[length] ?? ''];
  return steps.slice(0, length).join('.');
}
