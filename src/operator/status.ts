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
  /** How many of each it offers. */
  readonly tools: number;
  readonly prompts: number;
  readonly resources: number;
  /** The items and members of its lists that clients do not get as it lists them, and why. */
  readonly listProblems: readonly string[];
}
