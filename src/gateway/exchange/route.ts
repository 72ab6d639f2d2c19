import {
  type Catalog,
  isListedPrompt,
  isListedResource,
  isPublishedAs,
  publishedToolName,
  resolvePrompt,
  resolveResource,
  resolveTemplate,
  resolveTool,
  sourceOf,
} from '../../catalog/catalog.ts';
import type { Source } from '../../catalog/names/named-items.ts';
import { GatewayError } from '../../errors.ts';
import { quoted, type RawObject } from '../../json/json.ts';
import type { Request } from '../../protocol/jsonrpc.ts';

/** The upstream of a request and the parameters that it gets, or the error that answers the request. */
export type Route =
  | {
      readonly kind: 'upstream';
      readonly upstream: string;
      readonly params: RawObject;
      /** The published name of the called tool, by which limits, idempotency keys, metrics and logs know it. */
      readonly tool: string | undefined;
      /** The upstream's own name for it. */
      readonly upstreamTool: string | undefined;
      /** The called tool as its upstream lists it; undefined if the upstream does not list it. */
      readonly source?: Source | undefined;
    }
  | { readonly kind: 'nowhere'; readonly error: GatewayError };

export type UpstreamRoute = Extract<Route, { kind: 'upstream' }>;
type NoRoute = Extract<Route, { kind: 'nowhere' }>;

function refuse(code: 'unknown-tool' | 'unknown-prompt' | 'invalid-params', message: string): NoRoute {
  return { kind: 'nowhere', error: new GatewayError(code, { message }) };
}

/** Returns the route of a request that calls no tool. */
export function toUpstream(upstream: string, params: RawObject): UpstreamRoute {
  return { kind: 'upstream', upstream, params, tool: undefined, upstreamTool: undefined };
}

/** Returns the prompt or resource that a request is about, by the name or URI that the upstream gets; undefined for other methods. */
export function upstreamItem(method: string, { params }: UpstreamRoute): string | undefined {
  if (method === 'prompts/get') return params.string('name');
  return method === 'resources/read' ? params.string('uri') : undefined;
}

/** A resource by the URI that its upstream uses. */
export interface UpstreamResource {
  readonly upstream: string;
  readonly uri: string;
}

/** Finds the upstream of a resource by its published URI. Returns the error for a URI of no upstream or of several. */
export function resolveUri(catalog: Catalog, uri: string): UpstreamResource | GatewayError {
  const resolution = resolveResource(catalog, uri);
  switch (resolution.kind) {
    case 'one':
      return resolution;
    case 'none':
      return unknownResource(uri);
    case 'many': {
      const isListed = resolution.upstreams.every((id) => isPublishedAs(catalog.view, id, uri));
      const advice = isListed ? 'use the endpoint of one of them' : 'use the URI from resources/list';
      return new GatewayError('ambiguous-resource', {
        message: `${uri} is offered by ${resolution.upstreams.join(', ')}; ${advice}`,
        data: { uri },
      });
    }
  }
}

/** Finds a resource that the access policy hides from the client of a catalog, at each upstream that has it. */
export function findHidden({ whole }: Catalog, uri: string): readonly UpstreamResource[] {
  const found = whole === undefined ? undefined : resolveResource(whole, uri);
  if (found?.kind === 'many') return found.upstreams.map((upstream) => ({ upstream, uri }));
  return found?.kind === 'one' ? [found] : [];
}

function routeCompletion(catalog: Catalog, request: Request, params: RawObject): Route {
  const ref = params.object('ref');
  const type = ref?.string('type');
  if (ref !== undefined && type === 'ref/prompt') {
    const name = ref.string('name') ?? '';
    const target = resolvePrompt(catalog, name);
    if (target === undefined) return unknownItem(request);
    return toUpstream(target.upstream, params.with('ref', ref.with('name', quoted(target.name)).toString()));
  }
  if (ref !== undefined && type === 'ref/resource') {
    const target = resolveTemplate(catalog, ref.string('uri') ?? '');
    if (target.kind !== 'one') return unknownItem(request);
    return toUpstream(target.upstream, params.with('ref', ref.with('uri', quoted(target.uri)).toString()));
  }
  return refuse('invalid-params', '"ref" must be a ref/prompt or a ref/resource');
}

/** Returns the answer to a request that names an item which is not in the catalog. */
export function unknownItem({ method, params }: Request): NoRoute {
  const name = params?.string('name');
  switch (method) {
    case 'tools/call':
      return refuse('unknown-tool', name ?? NO_NAME);
    case 'prompts/get':
      return refuse('unknown-prompt', name ?? NO_NAME);
    case 'resources/read':
      return { kind: 'nowhere', error: unknownResource(params?.string('uri') ?? '') };
    default: {
      const ref = params?.object('ref');
      return ref?.string('type') === 'ref/prompt'
        ? refuse('unknown-prompt', ref.string('name') ?? '')
        : refuse('invalid-params', `no such resource template: ${ref?.string('uri') ?? ''}`);
    }
  }
}

const NO_NAME = '"name" must be a string';

/** Returns whether a request names a resource or prompt that no list has. Its upstream may know it, though. */
export function namesUnlistedItem(catalog: Catalog, { method, params }: Pick<Request, 'method' | 'params'>): boolean {
  switch (method) {
    case 'prompts/get':
      return !isListedPrompt(catalog, params?.string('name') ?? '');
    case 'resources/read':
      return !isListedResource(catalog, params?.string('uri') ?? '');
    default:
      return false;
  }
}

export function unknownResource(uri: string): GatewayError {
  return new GatewayError('unknown-resource', { message: uri, data: { uri } });
}

/** Returns the failure of a request for an upstream that a reload has removed. */
export function removedUpstream(upstream: string): GatewayError {
  const message = `upstream "${upstream}" was removed from the configuration`;
  return new GatewayError('upstream-unavailable', { upstream, message });
}

/**
 * Decides where a request goes; sends nothing. Handles the four methods that one upstream answers: `tools/call`,
 * `prompts/get`, `resources/read` and `completion/complete`.
 */
export function route(catalog: Catalog, request: Request): Route {
  const { method, params } = request;
  if (params === undefined) return refuse('invalid-params', `${method} needs params`);
  switch (method) {
    case 'tools/call': {
      const name = params.string('name');
      const tool = name === undefined ? undefined : publishedToolName(catalog, name);
      const target = tool === undefined ? undefined : resolveTool(catalog, tool);
      if (target === undefined) return unknownItem(request);
      return {
        kind: 'upstream',
        upstream: target.upstream,
        params: params.with('name', quoted(target.name)),
        tool,
        upstreamTool: target.name,
        source: sourceOf(catalog, target),
      };
    }
    case 'prompts/get': {
      const name = params.string('name');
      const target = name === undefined ? undefined : resolvePrompt(catalog, name);
      if (target === undefined) return unknownItem(request);
      return toUpstream(target.upstream, params.with('name', quoted(target.name)));
    }
    case 'resources/read': {
      const uri = params.string('uri');
      if (uri === undefined) return refuse('invalid-params', '"uri" must be a string');
      const target = resolveUri(catalog, uri);
      if (target instanceof GatewayError) return { kind: 'nowhere', error: target };
      return toUpstream(target.upstream, params.with('uri', quoted(target.uri)));
    }
    default:
      return routeCompletion(catalog, request, params);
  }
}
