import { pino } from 'pino';
import { type Config, type LimitsConfig, type SessionsConfig } from '../../src/config/values/config.ts';
import type { Authenticator, AuthVerdict } from '../../src/auth/authenticate.ts';
import { createApp, createEndpoints, type EndpointsParts } from '../../src/downstream/http/app.ts';
import { scopeChallengeText } from '../../src/auth/challenge.ts';
import { createEdgeMemory } from '../../src/downstream/memory/edge-memory.ts';
import { memoryEventLogs } from '../../src/downstream/streams/memory-event-log.ts';
import { Listener } from '../../src/compose/listener.ts';
import { LOCAL, type Principal } from '../../src/policy/principal.ts';
import { createMetrics, type Metrics } from '../../src/telemetry/metrics.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { HonestFront } from './honest-front.ts';

const DEFAULTS: Config = {
  file: '/nowhere/config.yaml',
  listen: { host: '127.0.0.1', port: 0 },
  operator: undefined,
  operatorMayMove: false,
  accessLog: 'all',
  tracing: undefined,
  audit: undefined,
  workers: 1,
  rates: [],
  repeats: undefined,
  overload: { loopDelayMs: 500, memory: 'of cgroup' },
  idempotency: { keepMs: 3_600_000 },
  publicUrl: undefined,
  tls: undefined,
  allowedHosts: [],
  allowedOrigins: [],
  trustedProxies: [],
  stateDir: '/nowhere',
  defaultStateDir: '/nowhere',
  auth: { jwt: [], apiKeys: [] },
  operatorKeys: [],
  limits: {
    bodyBytes: 4_194_304,
    messageBytes: 4_194_304,
    processes: 8,
    sessions: 1_000,
    sessionsPerPrincipal: 100,
    parkedPerPrincipal: 256,
    parkedPerUpstream: 1_024,
    inFlightPerSession: 100,
    streamsPerPrincipal: 100,
  },
  sessions: {
    required: true,
    idleMs: 60_000,
    maxAgeMs: 600_000,
    parkMs: 60_000,
    keepAliveMs: 15_000,
    eventLimit: 1_000,
    eventLimitBytes: 8_388_608,
  },
  jsonAnswers: [],
  legacySse: true,
  logLevel: 'silent',
  names: { maxChars: 48 },
  instructions: { maxChars: 1_000 },
  lists: { waitMs: PATIENCE_MS },
  reload: { watch: true, drainMs: 60_000 },
  redis: undefined,
  upstreams: [],
  profiles: [],
};

export type Overrides = Partial<Omit<Config, 'sessions' | 'limits'>> & {
  readonly sessions?: Partial<SessionsConfig>;
  readonly limits?: Partial<LimitsConfig>;
};

export function configWith({ sessions, limits, ...rest }: Overrides): Config {
  return {
    ...DEFAULTS,
    ...rest,
    sessions: { ...DEFAULTS.sessions, ...sessions },
    limits: { ...DEFAULTS.limits, ...limits },
  };
}

/** No authentication. */
const OPEN: Authenticator = {
  authenticate: async () => ({ kind: 'principal', principal: LOCAL }),
  known: () => LOCAL,
};

function byName(authorization: readonly string[]): AuthVerdict {
  const [only, second] = authorization;
  const name = /^Bearer ([a-z]+)$/.exec(only ?? '')?.[1];
  if (second !== undefined) return { kind: 'refused', status: 400, challenge: undefined, why: 'twice' };
  if (name === undefined || name === 'bad') {
    return { kind: 'refused', status: 401, challenge: 'Bearer error="invalid_token"', why: 'no token' };
  }
  const principal: Principal = { key: name, label: name, scopes: [] };
  return { kind: 'principal', principal };
}

/**
 * `Bearer <name>` authenticates as that principal; `Bearer bad` and all else is refused. `Bearer carol` is never known
 * without waiting.
 */
export const BY_NAME: Authenticator = {
  authenticate: async ({ authorization }) => byName(authorization),
  known: ({ authorization }) => {
    const verdict = byName(authorization);
    return verdict.kind === 'principal' && verdict.principal.key !== 'carol' ? verdict.principal : undefined;
  },
};

export interface Edge extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly front: HonestFront;
  readonly metrics: Metrics;
  drain(isForRestart?: boolean): void;
  /** Ends the streams of these principals on which no answer is due. */
  endStreams(isConcerned: (principal: Principal) => boolean): void;
  /** Applies the limits of another config to the endpoints. */
  setConfig(overrides: Overrides): void;
}

/** Accepts all credentials with the same rights, and all work. */
export const ACCEPTING: Pick<EndpointsParts, 'load' | 'challengeIfOver' | 'scopeChallenge' | 'currentOf'> = {
  load: { isHigh: false, refusalOf: () => undefined },
  challengeIfOver: () => undefined,
  scopeChallenge: (scopes) => scopeChallengeText(scopes),
  currentOf: (principal) => principal,
};

/** Starts the client's edge on a port of its own, in front of an in-memory core. */
export async function startEdge(
  overrides: Overrides = {},
  authenticator: Authenticator = OPEN,
  front: HonestFront = new HonestFront(),
): Promise<Edge> {
  const config = configWith(overrides);
  const metrics = createMetrics('0');
  const log = pino({ level: 'silent' });
  const memory = createEdgeMemory(config, metrics);
  const { eventLimit, eventLimitBytes } = config.sessions;
  const openEventLog = memoryEventLogs({ events: eventLimit, bytes: eventLimitBytes }, memory.events);
  const endpoints = createEndpoints({ ...ACCEPTING, front, config, log, metrics, memory, openEventLog });
  const listener = await Listener.open({ host: '127.0.0.1', port: 0 }, 'test', (origin) =>
    createApp({ front, endpoints, authenticator, config, origin, log, metrics }),
  );
  return {
    url: listener.origin,
    port: Number(new URL(listener.origin).port),
    front,
    metrics,
    drain: (isForRestart) => endpoints.drain(isForRestart),
    endStreams: (isConcerned) => endpoints.endStreams(isConcerned),
    setConfig: (next) => endpoints.setConfig(configWith(next)),
    [Symbol.asyncDispose]: () => listener.close(),
  };
}
