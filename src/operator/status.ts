/** One upstream as an operator sees it. */
export interface UpstreamStatus {
  readonly id: string;
  /** As the config file spells it. */
  readonly title: string;
  readonly transport: 'stdio' | 'http' | 'sse';
  readonly state: 'configured' | 'starting' | 'ready' | 'degraded' | 'failed' | 'stopped';
  /** Why it is in this state, in words, where that needs saying. */
  readonly reason: string | undefined;
  readonly connections: number;
  /** Of a stdio upstream: its processes with all that they have started, and their memory. */
  readonly processes?: number | undefined;
  readonly memoryBytes?: number | undefined;
  /** How the memory was measured, or why it is not known. */
  readonly memoryNote?: string | undefined;
  /** Which setting would take fewer processes, where there are several. */
  readonly advice?: string | undefined;
  readonly eras: Readonly<Record<'legacy' | 'modern', EraStatus>>;
  /** How many of each are offered at `/mcp/<id>` to clients of the legacy era. */
  readonly tools: number;
  /** Tools that `includeTools` and `excludeTools` leave out. */
  readonly filteredTools: number;
  readonly prompts: number;
  readonly resources: number;
}

/** What is known of one era of an upstream. */
export interface EraStatus {
  /** `unknown` until the first client of that era has come. */
  readonly speaks: 'yes' | 'no' | 'unknown';
  /** How that was found out: `configured`, `initialize answered`, `server/discover refused`, … */
  readonly how: string | undefined;
  /** The revision that was last negotiated in this era. */
  readonly revision: string | undefined;
  /** The era in which it serves clients of this era: the other one where it does not speak this one. */
  readonly servedIn: 'legacy' | 'modern' | undefined;
  /** How many of each it was last seen to offer in this era. */
  readonly tools: number;
  readonly prompts: number;
  readonly resources: number;
  /** The items and members of its lists that clients do not get as it lists them, and why. */
  readonly listProblems: readonly string[];
}
