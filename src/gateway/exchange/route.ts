import {
  type Catalog,
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

/** Where a request goes, and with which parameters. */
export type Route =
  | {
      readonly kind: 'upstream';
      readonly upstream: string;
      readonly params: RawObject;
      /** Published name, for metrics and logs. */
      readonly tool: string | undefined;
      /** The tool that is called, as its owner lists it. */
      readonly source?: Source | undefined;
    }
  | { readonly kind: 'nowhere'; readonly error: GatewayError };

export type Found = Extract<Route, { kind: 'upstream' }>;

function nowhere(code: 'unknown-tool' | 'unknown-prompt' | 'invalid-params', message: string): Route {
  return { kind: 'nowhere', error: new GatewayError(code, { message }) };
}

function to(upstream: string, params: RawObject): Route {
  return { kind: 'upstream', upstream, params, tool: undefined };
}

/** Finds the owner of a resource by the URI a client knows. */
export function ownerOf(
  catalog: Catalog,
  uri: string,
): { readonly upstream: string; readonly uri: string } | GatewayError {
  const owner = resolveResource(catalog, uri);
  switch (owner.kind) {
    case 'one':
      return owner;
    case 'none':
      return new GatewayError('unknown-resource', { message: uri, data: { uri } });
    case 'many':
      return new GatewayError('ambiguous-resource', {
        message: `${uri} is offered by ${owner.upstreams.join(', ')}; use the URI from resources/list`,
        data: { uri },
      });
  }
}

function toCompletion(catalog: Catalog, params: RawObject): Route {
  const ref = params.object('ref');
  const type = ref?.string('type');
  if (ref !== undefined && type === 'ref/prompt') {
    const name = ref.string('name') ?? '';
    const owner = resolvePrompt(catalog, name);
    if (owner === undefined) return nowhere('unknown-prompt', name);
    return to(owner.upstream, params.with('ref', ref.with('name', quoted(owner.name)).toString()));
  }
  if (ref !== undefined && type === 'ref/resource') {
    const owner = resolveTemplate(catalog, ref.string('uri') ?? '');
    if (owner.kind !== 'one') return nowhere('invalid-params', `no such resource template: ${ref.string('uri') ?? ''}`);
    return to(owner.upstream, params.with('ref', ref.with('uri', quoted(owner.uri)).toString()));
  }
  return nowhere('invalid-params', '"ref" must be a ref/prompt or a ref/resource');
}

/** Decides; never sends. Knows the four methods that one upstream answers. */
export function route(catalog: Catalog, request: Request): Route {
  const { method, params } = request;
  if (params === undefined) return nowhere('invalid-params', `${method} needs params`);
  switch (method) {
    case 'tools/call': {
      const name = params.string('name');
      const owner = name === undefined ? undefined : resolveTool(catalog, name);
      if (name === undefined || owner === undefined) return nowhere('unknown-tool', name ?? '"name" must be a string');
      return {
        kind: 'upstream',
        upstream: owner.upstream,
        params: params.with('name', quoted(owner.name)),
        tool: name,
        source: sourceOf(catalog, owner),
      };
    }
    case 'prompts/get': {
      const name = params.string('name');
      const owner = name === undefined ? undefined : resolvePrompt(catalog, name);
      if (owner === undefined) return nowhere('unknown-prompt', name ?? '"name" must be a string');
      return to(owner.upstream, params.with('name', quoted(owner.name)));
    }
    case 'resources/read': {
      const uri = params.string('uri');
      if (uri === undefined) return nowhere('invalid-params', '"uri" must be a string');
      const owner = ownerOf(catalog, uri);
      if (owner instanceof GatewayError) return { kind: 'nowhere', error: owner };
      return to(owner.upstream, params.with('uri', quoted(owner.uri)));
    }
    default:
      return toCompletion(catalog, params);
  }
}
