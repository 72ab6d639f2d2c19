/** States of an upstream, the one that is most useful to clients first. */
export const UPSTREAM_STATES = [
  'ready',
  'degraded',
  'starting',
  'configured',
  'needs-authorization',
  'failed',
  'stopped',
] as const;

/** The status of one upstream, as the operator's port shows it. */
export interface UpstreamStatus {
  readonly id: string;
  /** The key in the config file. */
  readonly title: string;
  readonly transport: 'stdio' | 'http' | 'sse';
  readonly state: (typeof UPSTREAM_STATES)[number];
  /** The reason for this state, in words; undefined if the state needs none. */
  readonly reason: string | undefined;
  readonly connections: number;
  /** stdio only: its processes, including their descendants, and their memory. Undefined if unknown. */
  readonly processes?: number | undefined;
  readonly memoryBytes?: number | undefined;
  /** The way in which the memory was measured, or the reason why it is unknown. */
  readonly memoryNote?: string | undefined;
  /** The setting that would need fewer processes, if several are running. */
  readonly advice?: string | undefined;
  readonly eras: Readonly<Record<'legacy' | 'modern', EraStatus>>;
  /** True if the gateway has lists of it, read from the upstream or kept on disk. If not, the numbers of items are 0. */
  readonly isListed: boolean;
  /** Number of items at `/mcp/<id>` for clients of the legacy era. */
  readonly tools: number;
  /** Number of tools removed by `includeTools` and `excludeTools`. */
  readonly filteredTools: number;
  readonly prompts: number;
  readonly resources: number;
  /** Undefined if nothing of the upstream is pinned. */
  readonly lock?: LockStatus | undefined;
}

/** The definitions of one upstream, compared with the lock. */
export interface LockStatus {
  /** The reaction to a definition that differs. */
  readonly onChange: 'warn' | 'quarantine' | 'refuse';
  /** Number of definitions that differ, and number of items that are withheld. */
  readonly differences: number;
  readonly withheld: number;
  /** The first differences in words. */
  readonly details: readonly string[];
}

/** The status of one era of an upstream. */
export interface EraStatus {
  /** `unknown` until the first client of that era has connected. */
  readonly speaks: 'yes' | 'no' | 'unknown';
  /** The evidence: `configured`, `initialize answered`, `server/discover refused`, … */
  readonly how: string | undefined;
  /** The revision that was last negotiated in this era. */
  readonly revision: string | undefined;
  /** The era in which it serves clients of this era: the other one if it does not support this one. */
  readonly servedIn: 'legacy' | 'modern' | undefined;
  /** Number of items in its latest lists in this era. */
  readonly tools: number;
  readonly prompts: number;
  readonly resources: number;
  /** Items and members of its lists that clients do not get, and why. */
  readonly listProblems: readonly string[];
}
