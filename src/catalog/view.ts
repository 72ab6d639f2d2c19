import type { Config, UpstreamConfig } from '../config/config.ts';
import type { ToolFilter } from './names/glob.ts';

/** What one endpoint shows: which upstreams, in which order, under which names. */
export interface View extends ToolFilter {
  /** Last segment of the endpoint's path; empty for the merged one at `/mcp`. */
  readonly id: string;
  readonly upstreams: readonly ViewUpstream[];
  /** Published tool name → name here. The filter's globs, too, are over published names, so renaming never widens it. */
  readonly renames: Readonly<Record<string, string>>;
}

/** One upstream as a view shows it. The filter's globs are over the upstream's own tool names. */
export interface ViewUpstream extends ToolFilter {
  readonly id: string;
  /** For people. */
  readonly title: string;
  readonly prefix: string;
  readonly rawUris: boolean;
  /** Reached over HTTP. */
  readonly isRemote: boolean;
}

function toViewUpstream(config: UpstreamConfig): ViewUpstream {
  const { id, title, prefix, rawUris, target, includeTools, excludeTools } = config;
  return { id, title, prefix, rawUris, isRemote: target.kind !== 'stdio', includeTools, excludeTools };
}

const UNCHANGED = { includeTools: undefined, excludeTools: [], renames: {} };

/**
 * Every endpoint's view by id: the merged one, one per upstream with nothing renamed (its tool filters still hold), one
 * per profile.
 */
export function viewsOf(config: Config): ReadonlyMap<string, View> {
  const merged = config.upstreams.map(toViewUpstream);
  const views = new Map<string, View>([['', { ...UNCHANGED, id: '', upstreams: merged }]]);
  for (const upstream of merged) {
    views.set(upstream.id, { ...UNCHANGED, id: upstream.id, upstreams: [{ ...upstream, prefix: '', rawUris: true }] });
  }
  for (const { id, upstreams, includeTools, excludeTools, renames } of config.profiles) {
    const selected = upstreams.flatMap((name) => merged.filter((upstream) => upstream.id === name));
    views.set(id, { id, upstreams: selected, includeTools, excludeTools, renames });
  }
  return views;
}
