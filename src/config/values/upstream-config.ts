import type { OnChange } from '../../lock/pins.ts';
import type { ClientTls, UpstreamAuth } from './credentials.ts';

export const ISOLATIONS = ['session', 'principal', 'shared', 'call'] as const;
export type Isolation = (typeof ISOLATIONS)[number];

/** The features of clients that an upstream may use. */
export const CLIENT_FEATURES = ['elicitation', 'roots', 'sampling'] as const;
export type ClientFeature = (typeof CLIENT_FEATURES)[number];

export const ERA_SETTINGS = ['auto', 'modern', 'legacy'] as const;
export type EraSetting = (typeof ERA_SETTINGS)[number];

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
  readonly era: EraSetting;
  /** The features that the upstream may use, unless clients share it. A question that needs another feature reaches no client. */
  readonly clientFeatures: readonly ClientFeature[];
  /** Host names of the pages that the upstream may send users to; `*.example.com` for all below one. Undefined for any. */
  readonly elicitationHosts?: readonly string[];
  /** Tokens of `sampling/createMessage` that the upstream may ask one person for in an hour. */
  readonly samplingBudget: number;
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
  /** The reaction to a definition that differs from the lock; undefined for that of the gateway, `off` for none. */
  readonly lock?: OnChange | 'off' | undefined;
  /** The reason why it cannot be started, such as an unset variable. Such an upstream is listed as failed with this reason. */
  readonly problem: string | undefined;
}

/** Returns whether the gateway starts an upstream before its first use. */
export function startsWithGateway({ start, required }: UpstreamConfig): boolean {
  // A gateway that is not ready gets no client whose request would start it.
  return start === 'eager' || required;
}

/** The text for an upstream whose lists are read for a principal only. */
export const CALLERS_LISTS = 'its lists depend on the caller';

/** Returns whether each principal has credentials of its own at an upstream, so that nothing is read without a principal. */
export function hasCallersLists({ target }: Pick<UpstreamConfig, 'target'>): boolean {
  return target.kind !== 'stdio' && target.auth !== undefined && target.auth.kind !== 'clientCredentials';
}

export interface UpstreamTimeouts {
  /** From start to the answer to `initialize`. */
  readonly startMs: number;
  readonly connectMs: number;
  /** HTTP: until the response headers, for requests without a stream. */
  readonly firstByteMs: number;
  /** Timeout of a request that reports no progress. */
  readonly callMs: number;
  /** The same of a `tools/call`. */
  readonly toolMs: number;
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
  readonly processLimits?: ProcessLimits | undefined;
  /** Undefined: the process sees what the gateway sees. */
  readonly sandbox?: Sandbox | undefined;
}

/** The bounds of one process of an upstream. */
export interface ProcessLimits {
  /** Memory of the process and of those that it has started, together. */
  readonly memoryBytes: number | undefined;
  readonly openFiles: number | undefined;
  /** CPU time of a process from its start. */
  readonly cpuMs: number | undefined;
}

/** The places that a process in a sandbox sees besides the programs of the system. Paths are absolute. */
export interface Sandbox {
  readonly read: readonly string[];
  readonly write: readonly string[];
  readonly network: boolean;
}

export interface HttpTarget {
  /** `http`: Streamable HTTP, with a fallback to HTTP+SSE for servers of 2024-11-05. `sse`: HTTP+SSE only. */
  readonly kind: 'http' | 'sse';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly tls?: ClientTls | undefined;
  /** Credentials that the gateway gets for the upstream, besides the fixed ones in `headers`. */
  readonly auth?: UpstreamAuth | undefined;
}

/** Headers, in lower case, that the protocol or the connection decides. In the config, they have no effect. */
export const RESERVED_HEADERS: ReadonlySet<string> = new Set([
  'accept',
  'accept-encoding',
  'connection',
  'content-length',
  'content-type',
  'expect',
  'keep-alive',
  'last-event-id',
  'mcp-protocol-version',
  'mcp-session-id',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);
