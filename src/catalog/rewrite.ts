import { GatewayError, isGatewayForm } from '../errors.ts';
import { RawObject, rawItems } from '../json/json.ts';
import { isRecord } from '../json/record.ts';
import type { RpcError } from '../protocol/jsonrpc.ts';
import { safeIcons } from './items/icons.ts';
import type { ItemKind } from './items/kind.ts';
import { isMalformed } from '../json/malformed.ts';
import { uriToClient } from './uri.ts';
import type { View, ViewUpstream } from './view.ts';

/** The places in a JSON value that hold URIs of the upstream's resources, or icons. Everything else is relayed unchanged. */
type UriPlaces =
  | { readonly kind: 'uri' }
  | { readonly kind: 'icons' }
  | { readonly kind: 'each'; readonly item: UriPlaces }
  | { readonly kind: 'object'; readonly members: readonly (readonly [string, UriPlaces])[] };

const URI: UriPlaces = { kind: 'uri' };
const ICONS: UriPlaces = { kind: 'icons' };

/** Returns the places in the items of an array, or in a single item, such as the content of a prompt message. */
function arrayOf(item: UriPlaces): UriPlaces {
  return { kind: 'each', item };
}

function objectOf(members: Readonly<Record<string, UriPlaces>>): UriPlaces {
  return { kind: 'object', members: Object.entries(members) };
}

/** Content blocks: `uri` and `icons` of a resource link, `resource.uri` of an embedded resource. */
const BLOCKS = arrayOf(objectOf({ uri: URI, icons: ICONS, resource: objectOf({ uri: URI }) }));
const BLOCKS_WITHIN = objectOf({ content: BLOCKS });

/** The resource of a tool's user interface: the two names in the standard, and the one of OpenAI. */
const UI_META = objectOf({ ui: objectOf({ resourceUri: URI }), 'ui/resourceUri': URI, 'openai/outputTemplate': URI });

const TOOL_RESULT = objectOf({ content: BLOCKS, _meta: UI_META });

const SAMPLING = 'sampling/createMessage';

const PLACES: ReadonlyMap<string, UriPlaces> = new Map([
  ['tools/call', TOOL_RESULT],
  ['tasks/result', TOOL_RESULT],
  ['prompts/get', objectOf({ messages: arrayOf(BLOCKS_WITHIN) })],
  ['resources/read', objectOf({ contents: arrayOf(objectOf({ uri: URI })) })],
  // Blocks inside the `tool_result` blocks of the messages. Tool names in them belong to the sampling request.
  [
    SAMPLING,
    objectOf({
      messages: arrayOf(objectOf({ content: arrayOf(BLOCKS_WITHIN) })),
      tools: arrayOf(objectOf({ icons: ICONS })),
    }),
  ],
  ['notifications/resources/updated', objectOf({ uri: URI })],
]);

const ITEMS: Readonly<Record<ItemKind, UriPlaces>> = {
  tool: objectOf({ _meta: UI_META }),
  prompt: objectOf({}),
  resource: objectOf({ uri: URI }),
  template: objectOf({ uriTemplate: URI }),
};

/** Replaces the URIs in a JSON text, and leaves out icons that clients must reject. Returns the same text if nothing changes: such a value is never rebuilt. */
function rewrite(upstream: ViewUpstream, places: UriPlaces, text: string): string {
  if (places.kind === 'uri') {
    if (!text.startsWith('"') || upstream.rawUris) return text;
    const uri = String(JSON.parse(text));
    const published = uriToClient(upstream, uri);
    return published === uri ? text : JSON.stringify(published);
  }
  if (places.kind === 'icons') return safeIcons(text);
  if (places.kind === 'each') {
    if (!text.startsWith('[')) return rewrite(upstream, places.item, text);
    const items = rawItems(text);
    const rewritten = items.map((item) => rewrite(upstream, places.item, item));
    return items.every((item, i) => item === rewritten[i]) ? text : `[${rewritten.join(',')}]`;
  }
  if (!text.startsWith('{')) return text;
  const before = RawObject.parse(text);
  const after = rewriteMembers(upstream, places.members, before);
  return after === before ? text : after.toString();
}

function rewriteMembers(
  upstream: ViewUpstream,
  members: readonly (readonly [string, UriPlaces])[],
  before: RawObject,
): RawObject {
  let after = before;
  for (const [key, places] of members) {
    const raw = before.raw(key);
    if (raw !== undefined) after = after.with(key, rewrite(upstream, places, raw));
  }
  return after;
}

/** Escapes of letters in the names of these members. */
const URI_ESCAPES = /\\u00(?:5[45]|6|7)/;

/** Returns whether the text may have a member with a URI, also if its name is spelled with escapes. */
function mayHoldUri(text: string): boolean {
  // The opening quote is not part of the search, since JSON is full of quotes.
  if (['uri"', 'Uri"', 'outputTemplate"'].some((name) => text.includes(name))) return true;
  return text.includes('\\u00') && URI_ESCAPES.test(text);
}

/** Returns whether the text may have a member `icons`, also one that is spelled with escapes. */
function mayHoldIcons(text: string): boolean {
  if (text.includes('icons"')) return true;
  return text.includes('\\u00') && (text.includes('\\u006') || text.includes('\\u007'));
}

/** Methods whose texts can have icons. */
const ICON_METHODS: ReadonlySet<string> = new Set(['tools/call', 'tasks/result', 'prompts/get', SAMPLING]);

/** Returns whether {@link toClient} may change the text. Most texts have neither URIs nor icons, and are not read further. */
function mayChange(method: string, { rawUris }: ViewUpstream, text: string): boolean {
  if (!rawUris && mayHoldUri(text)) return true;
  // The icons of a link are found by its URI. Tools have no URI, and URIs that stay as they are were not looked for.
  return (rawUris || method === SAMPLING) && ICON_METHODS.has(method) && mayHoldIcons(text);
}

/**
 * Returns a result or the params of an upstream with its URIs replaced by published ones, and without icons that clients must reject.
 *
 * @param method the method of the request that `text` is the result of, or of the upstream's message that has `text` as
 *   params.
 * @throws {GatewayError} `upstream-protocol` (executed `yes`): a part that may hold a URI is not well-formed.
 */
export function toClient(method: string, upstream: ViewUpstream, text: string): string {
  const places = PLACES.get(method);
  if (places === undefined || !mayChange(method, upstream, text)) return text;
  try {
    return rewrite(upstream, places, text);
  } catch (thrown) {
    if (!isMalformed(thrown)) throw thrown;
    const message = `"${upstream.title}" answered ${method} with malformed JSON; report this to its maintainers.`;
    throw new GatewayError('upstream-protocol', { message, upstream: upstream.id, executed: 'yes' }, thrown);
  }
}

/** Returns a list item with its URIs replaced by published ones. Does not change its name. @throws {JsonTextError} */
export function itemToClient(kind: ItemKind, upstream: ViewUpstream, item: RawObject): RawObject {
  const places = ITEMS[kind];
  return upstream.rawUris || places.kind !== 'object' ? item : rewriteMembers(upstream, places.members, item);
}

/**
 * Returns an upstream's error with `data.uri` replaced by the published URI. If the upstream is such a gateway, `data.upstream` names the upstream
 * as clients of this one know it, with the one behind it: `id/upstream`.
 */
export function errorToClient(error: RpcError, upstream: ViewUpstream): RpcError {
  const { data } = error;
  if (!isRecord(data)) return error;
  const { uri: sent, upstream: behind } = data;
  const uri = typeof sent === 'string' ? uriToClient(upstream, sent) : sent;
  const named = typeof behind === 'string' ? `${upstream.id}/${behind}` : upstream.id;
  const isNamed = isGatewayForm(error);
  if (uri === sent && !isNamed) return error;
  return { ...error, data: { ...data, ...(uri === sent ? {} : { uri }), ...(isNamed ? { upstream: named } : {}) } };
}

/** Adds the upstream's id to `logger` in `notifications/message`, if the view has more than one upstream. */
export function loggerToClient(view: View, upstream: ViewUpstream, params: RawObject): RawObject {
  if (view.upstreams.length <= 1) return params;
  const raw = params.raw('logger');
  if (raw === undefined) return params.with('logger', JSON.stringify(upstream.id));
  // Inserts the id inside the quotes, so that the logger's own spelling stays unchanged.
  return raw.startsWith('"') ? params.with('logger', `"${upstream.id}/${raw.slice(1)}`) : params;
}
