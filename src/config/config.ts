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
  /** Directory for sealing keys, session journal and last good offers; absolute. */
  readonly stateDir: string;
  readonly auth: AuthConfig;
  /** Keys of operators, for the admin API. They are no credentials of clients, and those of clients are none here. */
  readonly operatorKeys: readonly ApiKeyConfig[];
  readonly limits: LimitsConfig;
  readonly sessions: SessionsConfig;
  /** Lets 2024-11-05 clients connect by `GET /sse`. */
  readonly legacySse: boolean;
  readonly logLevel: LogLevel;
  readonly accessLog: AccessLog;
  /** Undefined if nothing is traced. */
  readonly tracing: TracingConfig | undefined;
  readonly names: { readonly maxChars: number };
  readonly instructions: { readonly maxChars: number };
  /** `waitMs` limits how long a list request waits for upstreams that have never been listed. */
  readonly lists: { readonly waitMs: number };
  readonly reload: ReloadConfig;
  readonly upstreams: readonly UpstreamConfig[];
  readonly profiles: readonly ProfileConfig[];
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
}

export interface JwtIssuerConfig {
  readonly issuer: string;
  readonly jwksUrl: string;
  /** Accepted `aud` values. Empty: the URI of the requested endpoint. */
  readonly audiences: readonly string[];
  readonly algorithms: readonly string[];
  /** Scopes that every token must have. */
  readonly requiredScopes: readonly string[];
}

export interface ApiKeyConfig {
  /** Name of the key's owner in logs. */
  readonly name: string;
  /** SHA-256 of the key, hex. */
  readonly sha256: string;
}

export interface LimitsConfig {
  readonly bodyBytes: number;
  /** One message from an upstream. */
  readonly messageBytes: number;
  readonly processes: number;
  readonly sessionsPerPrincipal: number;
  /** Parked calls: they wait for an answer of their modern client. */
  readonly parkedPerPrincipal: number;
  readonly parkedPerUpstream: number;
  readonly inFlightPerSession: number;
  /** Open `subscriptions/listen` and `GET /sse` streams. */
  readonly streamsPerPrincipal: number;
  /** All request bodies being received, in total. Undefined: a fraction of the heap limit. */
  readonly bodyTotalBytes?: number | undefined;
  /** All events and answers that wait for slow readers, in total. Undefined: a fraction of the heap limit. */
  readonly unsentTotalBytes?: number | undefined;
}

export interface SessionsConfig {
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

export const ISOLATIONS = ['session', 'principal', 'shared', 'call'] as const;
export type Isolation = (typeof ISOLATIONS)[number];

/** The features of clients that an upstream may use. */
export const CLIENT_FEATURES = ['elicitation', 'roots', 'sampling'] as const;
export type ClientFeature = (typeof CLIENT_FEATURES)[number];

export const ERAS = ['auto', 'modern', 'legacy'] as const;
export type Era = (typeof ERAS)[number];

export interface UpstreamConfig {
  /** `[a-z][a-z0-9-]*`, derived from `title`. Used as route segment, part of URI schemes, and metric label. */
  readonly id: string;
  /** The key in the config file. */
  readonly title: string;
  readonly target: StdioTarget | HttpTarget;
  /** Prepended to tool and prompt names; includes the separator. Empty for none. */
  readonly prefix: string;
  /** Publishes resource URIs unchanged instead of as `<id>+<scheme>:…`. True if the prefix is empty. */
  readonly rawUris: boolean;
  readonly isolation: Isolation;
  /** The era used with it. `auto`: detected from its answers. */
  readonly era: Era;
  /** The features that the gateway declares to the upstream. A question that needs another feature reaches no client. */
  readonly clientFeatures: readonly ClientFeature[];
  readonly start: 'eager' | 'lazy';
  /** Makes `/readyz` wait for this upstream. */
  readonly required: boolean;
  readonly timeouts: UpstreamTimeouts;
  /** Requests in flight at once. Up to `queue` further requests wait for at most `queueMs`. */
  readonly concurrency: number;
  readonly queue: number;
  readonly queueMs: number;
  /** An unused connection is closed after this time; the next use opens another. */
  readonly idleMs: number;
  /** Connections (for stdio: processes) of this upstream at once. */
  readonly maxConnections: number;
  /** Globs over the upstream's own tool names; undefined includes all. */
  readonly includeTools: readonly string[] | undefined;
  readonly excludeTools: readonly string[];
  /** The reason why it cannot be started, such as an unset variable. Such an upstream is listed as failed with this reason. */
  readonly problem: string | undefined;
}

export interface UpstreamTimeouts {
  /** From start to the answer to `initialize`. */
  readonly startMs: number;
  readonly connectMs: number;
  /** HTTP: until the response headers, for requests without a stream. */
  readonly firstByteMs: number;
  /** Timeout of a request that reports no progress. */
  readonly callMs: number;
  /** Timeout of a request however much progress it reports. */
  readonly maxMs: number;
}

export interface StdioTarget {
  readonly kind: 'stdio';
  readonly command: string;
  readonly args: readonly string[];
  /** Variables from the config, added to the allow-listed part of our own environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | undefined;
}

export interface HttpTarget {
  /** `http`: Streamable HTTP, with a fallback to HTTP+SSE for servers of 2024-11-05. `sse`: HTTP+SSE only. */
  readonly kind: 'http' | 'sse';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
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
