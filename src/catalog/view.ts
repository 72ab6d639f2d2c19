import { isDeepStrictEqual } from 'node:util';
import type { Config } from '../config/values/config.ts';
import type { UpstreamConfig } from '../config/values/upstream-config.ts';
import { onChangeOf } from '../config/sections/lock.ts';
import type { OnChange } from '../lock/pins.ts';
import type { ToolFilter } from './names/glob.ts';
import { WeakCache } from './weak-cache.ts';

/** The upstreams of one endpoint, in order, with their names and filters. */
export interface View extends ToolFilter {
  /** Last segment of the endpoint's path; empty for the merged one at `/mcp`. */
  readonly id: string;
  readonly upstreams: readonly ViewUpstream[];
  /** New names by published name. Filters match the name before it is replaced, so that renaming never widens them. */
  readonly renames: Readonly<Record<string, string>>;
}

/** One upstream in a view. The filter's globs match the upstream's own tool names. */
export interface ViewUpstream extends ToolFilter {
  readonly id: string;
  /** Display name. */
  readonly title: string;
  readonly prefix: string;
  readonly rawUris: boolean;
  /** True if the upstream is reached over HTTP. */
  readonly isRemote: boolean;
  /** True if each call has a connection of its own. No task outlives it, so that clients see no tasks of 2025-11-25. */
  readonly isPerCall?: boolean;
  /** The reaction to a definition that differs from the lock; undefined if nothing of the upstream is pinned. */
  readonly onChange?: OnChange;
}

export function upstreamIn(view: View | undefined, id: string): ViewUpstream | undefined {
  return view?.upstreams.find((upstream) => upstream.id === id);
}

/** Returns the view in which a client knows an upstream: that of now, or that of its request if the upstream has left. */
export function viewWith(id: string, now: View, routed: View | undefined): View {
  return routed === undefined || upstreamIn(now, id) !== undefined ? now : routed;
}

/** Returns whether a view is the endpoint of a profile, and not the merged one or that of one upstream. */
export function isProfile({ id, upstreams: [first, ...others] }: View): boolean {
  return id !== '' && (first?.id !== id || others.length > 0);
}

/** Equal upstreams of views, also of other configs, are one object, since published texts are cached by it. */
const known = new WeakCache<ViewUpstream>();

function shared(upstream: ViewUpstream): ViewUpstream {
  return known.get(JSON.stringify(upstream), () => upstream);
}

function toViewUpstream(config: UpstreamConfig, onChange: OnChange | undefined): ViewUpstream {
  const { id, title, prefix, rawUris, target, includeTools, excludeTools, isolation } = config;
  const upstream = { id, title, prefix, rawUris, isRemote: target.kind !== 'stdio', includeTools, excludeTools };
  return shared({
    ...upstream,
    ...(isolation === 'call' ? { isPerCall: true } : {}),
    ...(onChange === undefined ? {} : { onChange }),
  });
}

const UNCHANGED = { includeTools: undefined, excludeTools: [], renames: {} };

/**
 * Returns the views of all endpoints by id: the merged view (`''`), one for each upstream, and one for each profile. The view of an
 * upstream has unchanged names and its tool filters.
 */
export function viewsOf(config: Config): ReadonlyMap<string, View> {
  const merged = config.upstreams.map((upstream) => toViewUpstream(upstream, onChangeOf(config, upstream)));
  const views = new Map<string, View>([['', { ...UNCHANGED, id: '', upstreams: merged }]]);
  for (const upstream of merged) {
    views.set(upstream.id, {
      ...UNCHANGED,
      id: upstream.id,
      upstreams: [shared({ ...upstream, prefix: '', rawUris: true })],
    });
  }
  for (const { id, upstreams, includeTools, excludeTools, renames } of config.profiles) {
    const selected = upstreams.flatMap((name) => merged.filter((upstream) => upstream.id === name));
    views.set(id, { id, upstreams: selected, includeTools, excludeTools, renames });
  }
  return views;
}

/** Replaces views by those of another config. Equal views stay the same objects, since catalogs are cached by view. */
export function updateViews(views: Map<string, View>, config: Config): void {
  const next = viewsOf(config);
  for (const id of views.keys()) if (!next.has(id)) views.delete(id);
  for (const [id, view] of next) if (!isDeepStrictEqual(views.get(id), view)) views.set(id, view);
}
