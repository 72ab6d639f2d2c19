import type { AccessConfig } from '../../policy/access-config.ts';
import type { PrincipalSelector } from '../../policy/principal-selector.ts';
import type { ScopeOnDemand } from '../../policy/scopes-on-demand.ts';
import type { OnChange, Pins } from '../../lock/pins.ts';
import type { ClientTls, EgressConfig } from './credentials.ts';
import type { UpstreamConfig } from './upstream-config.ts';

/** The parsed configuration, with defaults, frozen. Durations are milliseconds, sizes are bytes. */
export interface Config {
  /** Absolute path of the config file. */
  readonly file: string;
  readonly listen: Address;
  /** Address of the operator's port, or undefined for none. */
  readonly operator: Address | undefined;
  /** Takes the next free port if that one is in use. True if the port was not configured. */
  readonly operatorMayMove: boolean;
  /** Origin under which clients reach the gateway, without a trailing slash; undefined for `http://` + listen. */
  readonly publicUrl: string | undefined;
  /** Host names (without port) accepted in `Host`, besides loopback names and the host of `publicUrl`. */
  readonly allowedHosts: readonly string[];
  /** Origins (scheme, host, port) accepted in `Origin` besides our own. */
  readonly allowedOrigins: readonly string[];
  /** Networks in CIDR notation, of proxies whose `X-Forwarded-For` names clients. */
  readonly trustedProxies: readonly string[];
  /** Directory for sealing keys, session journal and last good offers; absolute. */
  readonly stateDir: string;
  /** The state directory that a file of this path has by default; absolute. */
  readonly defaultStateDir: string;
  /** Undefined if `listen` speaks plain HTTP. */
  readonly tls: ServerTls | undefined;
  readonly auth: AuthConfig;
  /** The access policy; undefined if every principal may use everything. */
  readonly access?: AccessConfig | undefined;
  /** Keys of operators, for the admin API. They are no credentials of clients, and those of clients are none here. */
  readonly operatorKeys: readonly ApiKeyConfig[];
  readonly limits: LimitsConfig;
  readonly sessions: SessionsConfig;
  /** Ids of the views whose answers are JSON always. */
  readonly jsonAnswers: readonly string[];
  /** Lets 2024-11-05 clients connect by `GET /sse`. */
  readonly legacySse: boolean;
  readonly logLevel: LogLevel;
  readonly accessLog: AccessLog;
  /** Undefined if nothing is traced. */
  readonly tracing: TracingConfig | undefined;
  /** Undefined if nothing is recorded. */
  readonly audit: AuditConfig | undefined;
  readonly rates: readonly RateConfig[];
  /** Undefined if equal calls are not counted. */
  readonly repeats: RepeatsConfig | undefined;
  readonly overload: OverloadConfig;
  /** `keepMs` is the time that the end of a call with an idempotency key is kept. */
  readonly idempotency: { readonly keepMs: number };
  readonly names: { readonly maxChars: number };
  readonly instructions: { readonly maxChars: number };
  /** `waitMs` limits how long a list request waits for upstreams that have never been listed. */
  readonly lists: { readonly waitMs: number };
  readonly reload: ReloadConfig;
  /** Connections of the gateway to upstreams and issuers; undefined for direct ones. */
  readonly egress?: EgressConfig | undefined;
  /** The number of processes that serve clients; 1 for one process that does everything. */
  readonly workers: number;
  /** Shared state of several replicas; undefined for a gateway of one process. */
  readonly redis: RedisConfig | undefined;
  /** The pinned definitions of upstreams; undefined if there is no lock file. */
  readonly lock?: LockConfig | undefined;
  readonly upstreams: readonly UpstreamConfig[];
  readonly profiles: readonly ProfileConfig[];
}

/** The certificate for clients and its private key, in PEM. */
export interface ServerTls {
  readonly cert: string;
  readonly key: string;
}

/** `none`: no trace of them. `digest`: a keyed digest. `full`: their text, without secrets. */
export const AUDITED_ARGUMENTS = ['none', 'digest', 'full'] as const;
export type AuditedArguments = (typeof AUDITED_ARGUMENTS)[number];

/** `write`: after each write. `second`: once a second. `never`: the operating system decides. */
export const AUDIT_SYNCS = ['write', 'second', 'never'] as const;
export type AuditSync = (typeof AUDIT_SYNCS)[number];

/** A receiver of audit records by OTLP over HTTP. */
export interface AuditOtlpConfig {
  /** URL with the path for logs. */
  readonly endpoint: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly tls?: ClientTls | undefined;
}

export interface AuditConfig {
  /** Absolute path of the file; undefined for stdout or {@link otlp}. */
  readonly file: string | undefined;
  /** A receiver of OTLP logs; undefined for a file or stdout. */
  readonly otlp: AuditOtlpConfig | undefined;
  /** A file that reaches this size is renamed, and another one is begun. */
  readonly maxBytes: number;
  /** The number of renamed files that are kept. */
  readonly maxFiles: number;
  readonly arguments: AuditedArguments;
  /** Refuses calls that cannot be recorded before they are sent. */
  readonly required: boolean;
  readonly sync: AuditSync;
  /** Records that wait for being written. */
  readonly queueBytes: number;
  /** One record. Longer texts in it are cut. */
  readonly recordBytes: number;
  /** Secrets of 32 bytes in base64url; the first one signs. Empty: the key file in the state directory. */
  readonly keys: readonly string[];
}

export const RATE_SHARES = ['principal', 'all'] as const;

/** A bound on how often upstreams are called. */
export interface RateConfig {
  /** Unique. Counts are kept under it. */
  readonly name: string;
  readonly to: PrincipalSelector;
  /** Ids of views; undefined for all endpoints. */
  readonly endpoints: readonly string[] | undefined;
  /** Ids of upstreams; undefined for all. */
  readonly upstreams: readonly string[] | undefined;
  /** Globs over the names of tools at all endpoints; undefined for all requests. */
  readonly tools: readonly string[] | undefined;
  /** Each principal has a count of its own, or all principals have one together. */
  readonly per: (typeof RATE_SHARES)[number];
  readonly limit: number;
  readonly windowMs: number;
}

/** The bound on equal calls of one principal. */
export interface RepeatsConfig {
  readonly limit: number;
  readonly windowMs: number;
  /** Globs over the names of tools at all endpoints. */
  readonly tools: readonly string[];
  readonly exceptTools: readonly string[];
}

/** The limits beyond which new calls and sessions are refused. */
export interface OverloadConfig {
  /** Delay of the event loop. */
  readonly loopDelayMs: number | 'off';
  /** Memory in bytes of the processes that serve clients. `of cgroup`: that of the cgroup. `none`: only that of the heap. */
  readonly memory: number | 'of cgroup' | 'none';
}

export interface LockConfig {
  /** Absolute path of the lock file. */
  readonly file: string;
  /** The reaction to a definition that differs from the lock. */
  readonly onChange: OnChange;
  readonly pins: Pins;
}

/** The export of traces. The environment sets what is undefined here, by the names of OpenTelemetry. */
export interface TracingConfig {
  /** URL that traces are sent to, by OTLP over HTTP. */
  readonly endpoint: string | undefined;
  /** The share of requests that are traced, 0 to 1, among those whose clients name no trace. */
  readonly sampling: number | undefined;
}

export interface ReloadConfig {
  /** Loads a changed file without being asked to. */
  readonly watch: boolean;
  /** The time that a removed or replaced upstream, endpoint or address has to finish its requests. */
  readonly drainMs: number;
}

export interface RedisConfig {
  readonly target: RedisTarget;
  /** Absolute path of the certificates that sign the one of Redis; undefined for those of the system. */
  readonly caFile: string | undefined;
  /** Beginning of every key. Gateways with different configs need different ones. */
  readonly prefix: string;
  /** Secrets of 32 bytes in base64url. The first one encrypts, all of them decrypt. */
  readonly wrappingKeys: readonly string[];
  /** Address on which other replicas connect. Undefined: the one by which Redis is reached, and a free port. */
  readonly internal: Address | undefined;
  /** Address under which other replicas reach `internal`. Undefined: as bound. */
  readonly advertise: Address | undefined;
  /** Keeps the events of streams in Redis too, so that a client resumes a stream after the loss of its replica. */
  readonly events: boolean;
}

/** The Redis servers, and how to log in. */
export interface RedisTarget {
  readonly kind: 'single' | 'sentinel' | 'cluster';
  readonly tls: boolean;
  /** The server, the sentinels, or some nodes of the cluster. */
  readonly nodes: readonly Address[];
  /** Name of the master that the sentinels watch. */
  readonly master: string;
  readonly username: string | undefined;
  readonly password: string | undefined;
  readonly database: number;
}

export interface Address {
  readonly host: string;
  readonly port: number;
}

export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/**
 * The requests that get a log line. `auto` is `none` on a terminal, `errors` over stdio and where only this machine can connect, and
 * `all` elsewhere.
 */
export const ACCESS_LOGS = ['auto', 'all', 'errors', 'none'] as const;
export type AccessLog = (typeof ACCESS_LOGS)[number];

export interface AuthConfig {
  readonly jwt: readonly JwtIssuerConfig[];
  readonly apiKeys: readonly ApiKeyConfig[];
  /** Absolute path of a file with further API keys; undefined for none. It is read again when it changes. */
  readonly keyFile?: string | undefined;
  /** Issuers of opaque tokens, which are asked about each token. */
  readonly introspection?: readonly IntrospectionConfig[];
  /** True if further API keys are in Redis, for all replicas. */
  readonly keysInRedis?: boolean | undefined;
}

/** The settings of each issuer of tokens. */
interface IssuerConfig {
  readonly issuer: string;
  /** Accepted `aud` values. Empty: the URI of the requested endpoint. */
  readonly audiences: readonly string[];
  /** Scopes that every token must have. */
  readonly requiredScopes: readonly string[];
  /** Scopes that clients are told to request. Undefined: the required ones. */
  readonly advertisedScopes?: readonly string[] | undefined;
  /** Scopes that clients may get when a request needs them. */
  readonly scopesOnDemand?: readonly ScopeOnDemand[] | undefined;
}

export interface JwtIssuerConfig extends IssuerConfig {
  readonly jwksUrl: string;
  readonly algorithms: readonly string[];
  /** Accepted values of `typ` in the header of tokens, one of which must be there. Undefined: JWT or at+jwt, or none. */
  readonly types?: readonly string[] | undefined;
  /** Tolerated difference between the clocks of the issuer and of the gateway. Default: 30 s. */
  readonly leewayMs?: number | undefined;
}

/** An issuer that is asked about its tokens, by RFC 7662. */
export interface IntrospectionConfig extends IssuerConfig {
  /** URL that is asked. */
  readonly endpoint: string;
  /** The credentials of the gateway at the issuer. */
  readonly clientId: string;
  readonly clientSecret: string;
  /** Beginning of the tokens of this issuer. Empty: those that no other entry has. */
  readonly tokenPrefix: string;
}

export interface ApiKeyConfig {
  /** Name of the key's owner in logs. */
  readonly name: string;
  /** SHA-256 of the key, hex. */
  readonly sha256: string;
  /** Groups of the client or user of the key, for access rules. */
  readonly groups?: readonly string[];
}

/** Returns groups of the running config. A reload changes them, so a part reads a setting at each use and keeps no copy. */
export type Settings<Group extends keyof Config> = () => Pick<Config, Group>;

export interface LimitsConfig {
  readonly bodyBytes: number;
  /** One message from an upstream. */
  readonly messageBytes: number;
  readonly processes: number;
  /** Open sessions of all principals in this process; and as many client groups. */
  readonly sessions: number;
  readonly sessionsPerPrincipal: number;
  /** Parked calls: they wait for an answer of their modern client. */
  readonly parkedPerPrincipal: number;
  readonly parkedPerUpstream: number;
  readonly inFlightPerSession: number;
  /** Requests of one principal at upstreams. Undefined for no limit. */
  readonly inFlightPerPrincipal?: number | undefined;
  /** Open `subscriptions/listen` and `GET /sse` streams. */
  readonly streamsPerPrincipal: number;
  /** All request bodies being received, in total, and all large ones whose requests are not answered. Undefined: a fraction of the heap limit. */
  readonly bodyTotalBytes?: number | undefined;
  /** All messages being received from upstreams, in total. Undefined: a fraction of the heap limit. */
  readonly messageTotalBytes?: number | undefined;
  /** All events and answers that wait for slow readers, in total. Undefined: a fraction of the heap limit. */
  readonly unsentTotalBytes?: number | undefined;
}

export interface SessionsConfig {
  /** False if a request of the legacy era without a session is answered alone. */
  readonly required: boolean;
  /** An unused session releases its processes, connections and events after this time. Its id stays valid. */
  readonly idleMs: number;
  /** Maximum age of a session id. */
  readonly maxAgeMs: number;
  /** The time that a parked call waits for the answer of its modern client. */
  readonly parkMs: number;
  readonly keepAliveMs: number;
  /** Events kept for `Last-Event-ID`, per session. */
  readonly eventLimit: number;
  readonly eventLimitBytes: number;
  /** Size of the kept events of all sessions, in total. Undefined: a fraction of the heap limit. */
  readonly eventTotalBytes?: number | undefined;
}

/** A named selection, served at `/mcp/<id>`. */
export interface ProfileConfig {
  readonly id: string;
  /** Upstream ids in order. */
  readonly upstreams: readonly string[];
  /** Globs over published tool names; undefined includes all. */
  readonly includeTools: readonly string[] | undefined;
  readonly excludeTools: readonly string[];
  /** Published tool name → name in this profile. */
  readonly renames: Readonly<Record<string, string>>;
}
