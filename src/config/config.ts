/** The configuration as the program uses it: parsed, with defaults, frozen. Durations are milliseconds, sizes bytes. */
export interface Config {
  /** The file it came from; absolute. */
  readonly file: string;
  readonly listen: Address;
  /** Operator's port, or undefined for none. */
  readonly operator: Address | undefined;
  /** Whether the next free port is taken where that one is in use: nobody chose it. */
  readonly operatorMayMove: boolean;
  /** Origin clients reach us by, without a trailing slash, where it is not simply `http://` + listen. */
  readonly publicUrl: string | undefined;
  /** Host names (without port) accepted in `Host` besides loopback names and that of `publicUrl`. */
  readonly allowedHosts: readonly string[];
  /** Origins (scheme, host, port) accepted in `Origin` besides our own. */
  readonly allowedOrigins: readonly string[];
  /** Directory for sealing keys, session journal and last good offers; absolute. */
  readonly stateDir: string;
  readonly auth: AuthConfig;
  readonly limits: LimitsConfig;
  readonly sessions: SessionsConfig;
  /** Whether 2024-11-05 clients may come by `GET /sse`. */
  readonly legacySse: boolean;
  readonly logLevel: LogLevel;
  readonly accessLog: AccessLog;
  readonly names: { readonly maxChars: number };
  readonly instructions: { readonly maxChars: number };
  /** `waitMs` is the longest that a list waits for upstreams that were never listed. */
  readonly lists: { readonly waitMs: number };
  readonly upstreams: readonly UpstreamConfig[];
  readonly profiles: readonly ProfileConfig[];
}

export interface Address {
  readonly host: string;
  readonly port: number;
}

export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/**
 * Which requests get a log line. `auto` is `none` on a terminal, `errors` over stdio and where only this machine can connect, and
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
  /** Accepted `aud` values; empty means the URI of the endpoint that was called. */
  readonly audiences: readonly string[];
  readonly algorithms: readonly string[];
  /** Scopes a token must carry to use the gateway at all. */
  readonly requiredScopes: readonly string[];
}

export interface ApiKeyConfig {
  /** Who the key stands for, in logs. */
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
  /** Calls that wait for an answer of their modern client. */
  readonly parkedPerPrincipal: number;
  readonly parkedPerUpstream: number;
  readonly inFlightPerSession: number;
  /** Open `subscriptions/listen` and `GET /sse` streams. */
  readonly streamsPerPrincipal: number;
  /** Request bodies that are being received, together; undefined for a part of the heap. */
  readonly bodyTotalBytes?: number | undefined;
  /** Events and answers that wait for slow readers, together; undefined for a part of the heap. */
  readonly unsentTotalBytes?: number | undefined;
}

export interface SessionsConfig {
  /** After this long unused, what a session holds (processes, connections, events) is let go; its id still works. */
  readonly idleMs: number;
  /** After this long a session id is refused. */
  readonly maxAgeMs: number;
  /** How long a call waits for its modern client to come back with an answer. */
  readonly parkMs: number;
  readonly keepAliveMs: number;
  /** Events kept for `Last-Event-ID`, per session. */
  readonly eventLimit: number;
  readonly eventLimitBytes: number;
  /** The same for all sessions together; undefined for a part of the heap. */
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
  /** `[a-z][a-z0-9-]*`, made from the key in the file: route segment, URI scheme part, metric label. */
  readonly id: string;
  /** The key as the file spells it. */
  readonly title: string;
  readonly target: StdioTarget | HttpTarget;
  /** Put in front of tool and prompt names, separator included; empty for none. */
  readonly prefix: string;
  /** Whether resource URIs are published as they are instead of as `<id>+<scheme>:…`. True where the prefix is empty. */
  readonly rawUris: boolean;
  readonly isolation: Isolation;
  /** How it is spoken to: as its answers show, or in one era alone. */
  readonly era: Era;
  /** The others are not declared to it, and a question that needs one goes to no client. */
  readonly clientFeatures: readonly ClientFeature[];
  readonly start: 'eager' | 'lazy';
  /** Whether `/readyz` waits for it. */
  readonly required: boolean;
  readonly timeouts: UpstreamTimeouts;
  /** Requests under way at once; further ones wait in a queue of `queue` for at most `queueMs`. */
  readonly concurrency: number;
  readonly queue: number;
  readonly queueMs: number;
  /** A connection unused for this long is closed; the next use opens another. */
  readonly idleMs: number;
  /** Connections (for stdio: processes) of this upstream at once. */
  readonly maxConnections: number;
  /** Globs over the upstream's own tool names; undefined includes all. */
  readonly includeTools: readonly string[] | undefined;
  readonly excludeTools: readonly string[];
  /** Why it cannot be started, such as an unset variable: it is listed as failed with this reason and the rest goes on. */
  readonly problem: string | undefined;
}

export interface UpstreamTimeouts {
  /** From start to the answer to `initialize`. */
  readonly startMs: number;
  readonly connectMs: number;
  /** HTTP: until response headers, for requests that are answered at once. */
  readonly firstByteMs: number;
  /** Without progress. */
  readonly callMs: number;
  /** With progress. */
  readonly maxMs: number;
}

export interface StdioTarget {
  readonly kind: 'stdio';
  readonly command: string;
  readonly args: readonly string[];
  /** What the config sets, added to the allow-listed part of our own environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | undefined;
}

export interface HttpTarget {
  /** `http` is Streamable HTTP, falling back to `sse` where the server is one of 2024-11-05; `sse` pins that. */
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
