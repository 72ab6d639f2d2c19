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
  /** How many of each are offered at `/mcp/<id>`. */
  readonly tools: number;
  /** Tools that `includeTools` and `excludeTools` leave out. */
  readonly filteredTools: number;
  readonly prompts: number;
  readonly resources: number;
  /** Items that cannot be offered as the upstream sends them. */
  readonly quarantined: readonly QuarantinedItem[];
}

export interface QuarantinedItem {
  readonly kind: string;
  /** Empty where it has no name that can be read. */
  readonly name: string;
  readonly why: string;
}
