import { GatewayError } from '../errors.ts';
import { RawObject, rawItems } from '../json/json.ts';
import type { RpcError } from '../protocol/jsonrpc.ts';
import type { ItemKind } from './items/kind.ts';
import { isMalformed } from './malformed.ts';
import { uriToClient } from './uri.ts';
import type { View, ViewUpstream } from './view.ts';

/** Where in a JSON value the URIs are that name resources of the upstream. All else is carried as it came. */
type Shape =
  | { readonly kind: 'uri' }
  | { readonly kind: 'each'; readonly item: Shape }
  | { readonly kind: 'object'; readonly members: readonly (readonly [string, Shape])[] };

const URI: Shape = { kind: 'uri' };

/** Items of an array; one item may stand without the array, as the content of a prompt message does. */
function each(item: Shape): Shape {
  return { kind: 'each', item };
}

function object(members: Readonly<Record<string, Shape>>): Shape {
  return { kind: 'object', members: Object.entries(members) };
}

/** A content block: `uri` of a resource link, `resource.uri` of an embedded resource. */
const BLOCKS = each(object({ uri: URI, resource: object({ uri: URI }) }));
const BLOCKS_WITHIN = object({ content: BLOCKS });

const SHAPES: ReadonlyMap<string, Shape> = new Map([
  ['tools/call', BLOCKS_WITHIN],
  ['tasks/result', BLOCKS_WITHIN],
  ['prompts/get', object({ messages: each(BLOCKS_WITHIN) })],
  ['resources/read', object({ contents: each(object({ uri: URI })) })],
  // Blocks inside the `tool_result` blocks of the messages; tool names there belong to the sampling request.
  ['sampling/createMessage', object({ messages: each(object({ content: each(BLOCKS_WITHIN) })) })],
  ['notifications/resources/updated', object({ uri: URI })],
]);

/** A tool's user interface, in the standard's two spellings and OpenAI's. */
const UI_META = object({ ui: object({ resourceUri: URI }), 'ui/resourceUri': URI, 'openai/outputTemplate': URI });

const ITEMS: Readonly<Record<ItemKind, Shape>> = {
  tool: object({ _meta: UI_META }),
  prompt: object({}),
  resource: object({ uri: URI }),
  template: object({ uriTemplate: URI }),
};

/** The same text where nothing changes, so an untouched value is never rebuilt. */
function rewrite(upstream: ViewUpstream, shape: Shape, text: string): string {
  if (shape.kind === 'uri') {
    if (!text.startsWith('"')) return text;
    const uri = String(JSON.parse(text));
    const published = uriToClient(upstream, uri);
    return published === uri ? text : JSON.stringify(published);
  }
  if (shape.kind === 'each') {
    if (!text.startsWith('[')) return rewrite(upstream, shape.item, text);
    const items = rawItems(text);
    const rewritten = items.map((item) => rewrite(upstream, shape.item, item));
    return items.every((item, i) => item === rewritten[i]) ? text : `[${rewritten.join(',')}]`;
  }
  if (!text.startsWith('{')) return text;
  const before = RawObject.parse(text);
  const after = rewriteMembers(upstream, shape.members, before);
  return after === before ? text : after.toString();
}

function rewriteMembers(
  upstream: ViewUpstream,
  members: readonly (readonly [string, Shape])[],
  before: RawObject,
): RawObject {
  let after = before;
  for (const [key, shape] of members) {
    const raw = before.raw(key);
    if (raw !== undefined) after = after.with(key, rewrite(upstream, shape, raw));
  }
  return after;
}

/** Whether the text can have a member `uri`, also one spelled with escapes to slip through. */
function mayHoldUri(text: string): boolean {
  // Not by the quote it begins with: JSON is full of them.
  if (text.includes('uri"')) return true;
  return text.includes('\\u00') && (text.includes('\\u007') || text.includes('\\u0069'));
}

/**
 * What an upstream says, with the URIs that name its resources in the form clients know them by.
 *
 * @param method of the request that `text` is the result of, or of the upstream's own message that it is the params of.
 * @throws {GatewayError} `upstream-protocol` (executed `yes`): a place where a URI could be is not well-formed.
 */
export function toClient(method: string, upstream: ViewUpstream, text: string): string {
  const shape = SHAPES.get(method);
  if (shape === undefined || upstream.rawUris || !mayHoldUri(text)) return text;
  try {
    return rewrite(upstream, shape, text);
  } catch (thrown) {
    if (!isMalformed(thrown)) throw thrown;
    const message = `"${upstream.title}" sent what is not well-formed JSON for ${method}; report this to its maintainers.`;
    throw new GatewayError('upstream-protocol', { message, upstream: upstream.id, executed: 'yes' }, thrown);
  }
}

/** A list item with its URIs in the form clients know them by. Its name is the catalog's business. @throws {JsonTextError} */
export function itemToClient(kind: ItemKind, upstream: ViewUpstream, item: RawObject): RawObject {
  const shape = ITEMS[kind];
  return upstream.rawUris || shape.kind !== 'object' ? item : rewriteMembers(upstream, shape.members, item);
}

/** An upstream's error with `data.uri` in the form the client asked with. */
export function errorToClient(error: RpcError, upstream: ViewUpstream): RpcError {
  const { data } = error;
  if (typeof data !== 'object' || data === null || !('uri' in data) || typeof data.uri !== 'string') return error;
  const uri = uriToClient(upstream, data.uri);
  return uri === data.uri ? error : { ...error, data: { ...data, uri } };
}

/** Params of `notifications/message` that say which upstream logs, where the view has more than one. */
export function loggerToClient(view: View, upstream: ViewUpstream, params: RawObject): RawObject {
  if (view.upstreams.length <= 1) return params;
  const raw = params.raw('logger');
  if (raw === undefined) return params.with('logger', JSON.stringify(upstream.id));
  // Put inside the quotes, so that the logger's own spelling stays as it came.
  return raw.startsWith('"') ? params.with('logger', `"${upstream.id}/${raw.slice(1)}`) : params;
}
