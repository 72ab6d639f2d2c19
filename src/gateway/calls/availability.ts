import { COMMAND } from '../../command-name.ts';
import { mayBeHashed } from '../../catalog/names/name.ts';
import { prefixesOf } from '../../catalog/names/prefixes.ts';
import { unpublishUri } from '../../catalog/uri.ts';
import type { View } from '../../catalog/view.ts';
import { GatewayError } from '../../errors.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import { isFailed, isUp, type Lifecycle } from '../../upstream/lifecycle/lifecycle.ts';
import { reasonOf } from '../../upstream/start-failure.ts';

export type LifecycleOf = (upstream: string) => Lifecycle | undefined;

/** The member that names an item, and the kind of the item, by method. */
const NAMED_BY: Readonly<Record<string, readonly [member: string, kind: string]>> = {
  'tools/call': ['name', 'tool'],
  'prompts/get': ['name', 'prompt'],
  'resources/read': ['uri', 'resource'],
};

/** Returns the upstream whose prefix the name of a request has; undefined if there is none, or more than one. */
export function ownerOf(view: View, request: Request): string | undefined {
  const { name, kind } = namedIn(request);
  return name === undefined ? undefined : ownerByPrefix(view, name, kind === 'resource');
}

/** Returns the upstreams whose lists may have the name of a request. They are all of the endpoint if the name does not say whose it is. */
export function possibleOwners(view: View, request: Request): readonly string[] {
  const { name, kind } = namedIn(request);
  const all = view.upstreams.map(({ id }) => id);
  if (name === undefined) return all;
  if (kind === 'resource') {
    const owner = unpublishUri(name)?.id;
    const isKnown = owner !== undefined && all.includes(owner);
    return isKnown ? view.upstreams.flatMap(({ id, rawUris }) => (id === owner || rawUris ? [id] : [])) : all;
  }
  const former = Object.entries(view.renames).flatMap(([from, to]) => (to === name ? [from] : []));
  const names = [name, ...former];
  if (names.some(mayBeHashed)) return all;
  const owners = names.flatMap((one) => ownersByPrefix(prefixesOf(view), one));
  // Apps call tools by the names that their upstreams give them, without a prefix.
  return owners.length === 0 && kind === 'tool' && !name.includes('__') ? all : owners;
}

/** Returns the name or URI in a request, and the kind of its item. The name is undefined if the request has none. */
function namedIn({ method, params }: Request): { readonly name: string | undefined; readonly kind: string } {
  const [member = '', kind = ''] = NAMED_BY[method] ?? [];
  return { name: params?.string(member), kind };
}

/**
 * Returns the failure of a request whose name has the prefix of an upstream that cannot answer. The upstream is not up, is being listed for the
 * first time, or could not be listed for the principal. Returns undefined if there is no such upstream, so that the name is unknown.
 *
 * @param nowMs monotonic.
 * @param failureOf returns the failure to list an upstream for the principal of the request.
 */
export function unavailableOwner(
  view: View,
  lifecycleOf: LifecycleOf,
  request: Request,
  nowMs: number,
  isBeingListed = false,
  failureOf: (upstream: string) => GatewayError | undefined = () => undefined,
): GatewayError | undefined {
  const upstream = ownerOf(view, request);
  const lifecycle = upstream === undefined ? undefined : lifecycleOf(upstream);
  if (upstream === undefined || lifecycle === undefined) return undefined;
  // The state of the upstream, which has a reason for all clients, goes first.
  const isUsable = !isFailed(lifecycle) && lifecycle.phase !== 'stopped' && !isBeingListed;
  const failure = isUsable ? failureOf(upstream) : undefined;
  if (failure !== undefined) return notListed(upstream, failure);
  if (isUp(lifecycle) && !isBeingListed) return undefined;
  const { name, kind } = namedIn(request);
  const message = `${kind} "${name}" belongs to upstream "${upstream}", which ${stateText(lifecycle, nowMs)}`;
  return new GatewayError('upstream-unavailable', {
    upstream,
    message,
    executed: 'no',
    // An operator has to correct its credentials.
    retryable: !isPermanent(lifecycle) && lifecycle.phase !== 'needs-authorization',
  });
}

/** Returns the failure of a request to an upstream that could not be listed. The request was not sent, whatever became of the listing. */
function notListed(upstream: string, failure: GatewayError): GatewayError {
  const { retryable = true } = failure.detail;
  const detail = { upstream, message: reasonOf(failure), executed: 'no', retryable } as const;
  return new GatewayError('upstream-unavailable', detail, failure);
}

/** Returns the upstream whose prefix a name or URI has; undefined if there is none, or more than one. */
export function ownerByPrefix(view: View, name: string, isUri: boolean): string | undefined {
  const prefixes = isUri
    ? view.upstreams.map(({ id, rawUris }) => [rawUris ? '' : `${id}+`, id] as const)
    : prefixesOf(view);
  const [only, ...others] = ownersByPrefix(prefixes, name);
  return others.length === 0 ? only : undefined;
}

/** Returns the upstreams with the longest prefix that a name begins with. */
function ownersByPrefix(prefixes: readonly (readonly [prefix: string, id: string])[], name: string): readonly string[] {
  const fitting = prefixes.filter(([prefix]) => name.startsWith(prefix));
  const longest = Math.max(...fitting.map(([prefix]) => prefix.length));
  return fitting.flatMap(([prefix, id]) => (prefix.length === longest ? [id] : []));
}

/** Returns whether only a change of the config can help. */
function isPermanent({ phase, retryAtMs }: Lifecycle): boolean {
  return phase === 'failed' && retryAtMs === Number.POSITIVE_INFINITY;
}

/** State, reason and next step of an upstream that is not up or not listed yet, as the end of a sentence. */
function stateText(lifecycle: Lifecycle, nowMs: number): string {
  const { phase, reason, retryAtMs } = lifecycle;
  if (phase === 'stopped') return 'is stopped';
  const because = reason === undefined ? '' : `: ${reason}`;
  if (phase === 'starting' && reason !== undefined) return `is started again after a failure${because}`;
  if (!isFailed(lifecycle)) return 'is starting; try again in a moment';
  if (isPermanent(lifecycle)) {
    // The reason of an upstream that an operator has disabled says what enables it.
    const advice = reason?.includes(`${COMMAND} restart`) === true ? '' : '; an operator has to correct the config';
    return `cannot be started${because}${advice}`;
  }
  const waitSeconds = Math.ceil((retryAtMs - nowMs) / 1_000);
  return `is down${because}; ${waitSeconds > 0 ? `it is tried again in ${waitSeconds} s` : 'try again'}`;
}

/** Why an upstream may be without tools, as the end of a sentence; undefined if nothing has failed. It announces its tools once it is listed. */
function problemText(lifecycle: Lifecycle, nowMs: number): string | undefined {
  const { phase, reason } = lifecycle;
  if (isFailed(lifecycle)) return stateText(lifecycle, nowMs);
  if (reason === undefined) return undefined;
  return phase === 'degraded' ? `is degraded: ${reason}` : stateText(lifecycle, nowMs);
}

const MAX_NAMED = 5;

/**
 * Returns instructions that say why an endpoint has no tools; undefined if no upstream of it has a problem.
 *
 * @param nowMs monotonic.
 */
export function noToolsNote(view: View, lifecycleOf: LifecycleOf, nowMs: number): string | undefined {
  const lines = view.upstreams.flatMap(({ id }) => {
    const lifecycle = lifecycleOf(id);
    const problem = lifecycle === undefined ? undefined : problemText(lifecycle, nowMs);
    return problem === undefined ? [] : [`upstream "${id}" ${problem}`];
  });
  if (lines.length === 0) return undefined;
  const more = lines.length > MAX_NAMED ? [`and ${lines.length - MAX_NAMED} more upstreams`] : [];
  return `This server has no tools at the moment: ${[...lines.slice(0, MAX_NAMED), ...more].join('. ')}.`;
}
