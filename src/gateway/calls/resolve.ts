import { prefixesOf } from '../../catalog/names/prefixes.ts';
import type { View } from '../../catalog/view.ts';
import { GatewayError } from '../../errors.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import { isUp, type Lifecycle } from '../../upstream/lifecycle.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import { type Route, route } from '../exchange/route.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';

/** State of an upstream by its id. */
export type LifecycleOf = (upstream: string) => Lifecycle | undefined;

/**
 * Decides where a request goes. A name that is in no list is looked for once more after the lists were refreshed, since a
 * client may call before it lists.
 */
export async function resolve(
  listRefresher: ListRefresher,
  lifecycleOf: LifecycleOf,
  holder: ConnectionHolder,
  request: Request,
): Promise<Route> {
  const first = route(holder.catalog, request);
  if (first.kind !== 'nowhere') return first;
  await listRefresher.refreshFor(holder);
  const again = route(holder.catalog, request);
  if (again.kind !== 'nowhere') return again;
  const { view } = holder.catalog;
  const error = unavailableOwner(view, lifecycleOf, request, performance.now());
  return error === undefined ? again : { kind: 'nowhere', error };
}

/** The member that names an item, and the kind of the item, by method. */
const NAMED_BY: Readonly<Record<string, readonly [member: string, kind: string]>> = {
  'tools/call': ['name', 'tool'],
  'prompts/get': ['name', 'prompt'],
  'resources/read': ['uri', 'resource'],
};

/**
 * Returns the failure of a request whose name has the prefix of an upstream that is not up. Returns undefined if every such
 * upstream is up, so that the name is unknown.
 *
 * @param nowMs monotonic.
 */
export function unavailableOwner(
  view: View,
  lifecycleOf: LifecycleOf,
  { method, params }: Request,
  nowMs: number,
): GatewayError | undefined {
  const [member = '', kind = ''] = NAMED_BY[method] ?? [];
  const name = params?.string(member);
  const upstream = name === undefined ? undefined : ownerByPrefix(view, name, kind === 'resource');
  const lifecycle = upstream === undefined ? undefined : lifecycleOf(upstream);
  if (name === undefined || upstream === undefined || lifecycle === undefined || isUp(lifecycle)) return undefined;
  const message = `${kind} "${name}" belongs to upstream "${upstream}", which ${explained(lifecycle, nowMs)}`;
  return new GatewayError('upstream-unavailable', {
    upstream,
    message,
    executed: 'no',
    retryable: !isPermanent(lifecycle),
  });
}

function ownerByPrefix(view: View, name: string, isUri: boolean): string | undefined {
  const prefixes = isUri
    ? view.upstreams.map(({ id, rawUris }) => [rawUris ? '' : `${id}+`, id] as const)
    : prefixesOf(view);
  const fitting = prefixes.filter(([prefix]) => name.startsWith(prefix));
  const longest = Math.max(...fitting.map(([prefix]) => prefix.length));
  const [only, ...others] = fitting.filter(([prefix]) => prefix.length === longest);
  return others.length === 0 ? only?.[1] : undefined;
}

/** Returns whether only a change of the config can help. */
function isPermanent({ phase, retryAtMs }: Lifecycle): boolean {
  return phase === 'failed' && retryAtMs === Number.POSITIVE_INFINITY;
}

/** State, reason and next step of an upstream that is not up, as the end of a sentence. */
function explained(lifecycle: Lifecycle, nowMs: number): string {
  const { phase, reason, retryAtMs } = lifecycle;
  if (phase === 'stopped') return 'is stopped';
  if (phase !== 'failed') return 'is starting; try again in a moment';
  const because = reason === undefined ? '' : `: ${reason}`;
  if (isPermanent(lifecycle)) return `cannot be started${because}; an operator has to correct the config`;
  const waitSeconds = Math.ceil((retryAtMs - nowMs) / 1_000);
  return `is down${because}; ${waitSeconds > 0 ? `it is tried again in ${waitSeconds} s` : 'try again'}`;
}

const MAX_NAMED = 5;

/**
 * Returns instructions that say why an endpoint has no tools; undefined if every upstream of it is up.
 *
 * @param nowMs monotonic.
 */
export function noToolsNote(view: View, lifecycleOf: LifecycleOf, nowMs: number): string | undefined {
  const lines = view.upstreams.flatMap(({ id }) => {
    const lifecycle = lifecycleOf(id);
    // An upstream that only starts announces its tools by list_changed.
    return lifecycle?.phase === 'failed' ? [`upstream "${id}" ${explained(lifecycle, nowMs)}`] : [];
  });
  if (lines.length === 0) return undefined;
  const more = lines.length > MAX_NAMED ? [`and ${lines.length - MAX_NAMED} more upstreams`] : [];
  return `This server has no tools at the moment: ${[...lines.slice(0, MAX_NAMED), ...more].join('. ')}.`;
}
