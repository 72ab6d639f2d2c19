/**
 * Translates messages of legacy servers and clients to 2026-07-28. Parses as little as possible; unknown members stay.
 */

import { isRecord } from '../../json/record.ts';
import { RawObject } from '../../json/json.ts';
import { withoutHiddenQuestions } from '../input-required.ts';
import type { RpcError } from '../jsonrpc.ts';
import { TextCache } from '../../json/text-cache.ts';
import { META, metaText, withoutCoreTaskMeta, withoutMeta } from '../meta.ts';
import { withoutTaskSupport } from '../tasks.ts';
import { publishedSchema } from '../framing/mirrored-params.ts';
import { isReservedCode, RPC } from '../rpc-codes.ts';
import { getOrMake } from '../../map-entries.ts';

/** Methods whose results carry `ttlMs` and `cacheScope`. */
const CACHEABLE = new Set([
  'server/discover',
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
  'resources/read',
]);

/** Members that 2026-07-28 requires of a result and that legacy servers do not send. */
export interface Stamp {
  /** Raw JSON text of our `Implementation`. */
  readonly serverInfo: string;
  /** The time for which the result may be cached: an integer of 0 or more. */
  readonly ttlMs: number;
  readonly cacheScope: 'public' | 'private';
}

/**
 * `_meta` with our `serverInfo`, by `serverInfo` and by the `_meta` without it. A server's results mostly repeat their
 * `_meta`.
 */
const metaCaches = new Map<string, TextCache<string>>();

function withServerInfo(result: RawObject, serverInfo: string): string {
  const cache = getOrMake(metaCaches, serverInfo, () => new TextCache());
  return cache.of(result.raw('_meta') ?? '', (raw) => metaText(raw, [[META.serverInfo, serverInfo]]));
}

/** Returns the result with our `serverInfo` and, if the method is cacheable, with `ttlMs` and `cacheScope`. */
export function withStamp(method: string, result: RawObject, stamp: Stamp): RawObject {
  const ours = result.with('_meta', withServerInfo(result, stamp.serverInfo));
  if (!CACHEABLE.has(method)) return ours;
  return ours.with('ttlMs', String(stamp.ttlMs)).with('cacheScope', JSON.stringify(stamp.cacheScope));
}

/**
 * Translates a complete result of a legacy server.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function upgradeResult(method: string, result: string, stamp: Stamp): string {
  const bare = withoutCoreTaskMeta(withoutHiddenQuestions(RawObject.parse(result)));
  let upgraded = bare.with('resultType', '"complete"');
  if (method === 'tools/call' && upgraded.raw('content') === undefined) upgraded = upgraded.with('content', '[]');
  return withStamp(method, upgraded, stamp).toString();
}

/**
 * Translates a tool of a list. It loses the members that only 2025-11-25 tasks use, and invalid `x-mcp-header`
 * annotations, for which clients would drop it.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function upgradeTool(item: string): string {
  const tool = withoutTaskSupport(RawObject.parse(item));
  const schema = tool.object('inputSchema');
  return schema === undefined
    ? tool.toString()
    : tool.with('inputSchema', publishedSchema(schema).toString()).toString();
}

/**
 * Translates an error of a legacy server. `urlElicitationRequired` does not reach this function: the caller turns it into an input
 * request.
 */
export function upgradeError(error: RpcError): RpcError {
  return error.code === RPC.resourceNotFound ? { ...error, code: RPC.invalidParams } : error;
}

/**
 * Returns an error of a server without a code that 2026-07-28 reserves. Its clients would take such a code for a failure between them and
 * the gateway. Servers of older revisions may use these codes as they like. `data.upstreamCode` has the code of the server.
 */
export function withoutReservedCode(error: RpcError): RpcError {
  const { code, data } = error;
  if (!isReservedCode(code)) return error;
  return { ...error, code: RPC.internalError, data: { ...(isRecord(data) ? data : { data }), upstreamCode: code } };
}

/** Codes of servers that do not know a resource or prompt. The Python SDK uses 0, and servers that have none of the kind use the last. */
const UNKNOWN_ITEM_CODES: ReadonlySet<number> = new Set([
  0,
  RPC.resourceNotFound,
  RPC.invalidParams,
  RPC.internalError,
  RPC.methodNotFound,
]);

/**
 * Returns an error about a resource or prompt that no list has. One of a server that does not know the item is as 2026-07-28 requires it.
 * It has its code and, for a resource, the URI in `data`. Others, such as of a rate limit, are those of any request.
 *
 * @param uri of the resource as the client knows it; undefined for a prompt.
 */
export function unknownItemError(error: RpcError, uri: string | undefined): RpcError {
  if (!UNKNOWN_ITEM_CODES.has(error.code)) return upgradeError(error);
  if (uri === undefined) return { ...error, code: RPC.invalidParams };
  const { message, data } = error;
  const kept = isRecord(data) ? data : {};
  return { code: RPC.invalidParams, message, data: { ...kept, uri } };
}

/** Members of a server request of 2025-11-25, and of its `_meta`, that an entry of `inputRequests` does not have. */
const LEGACY_REQUEST_MEMBERS = ['elicitationId', 'task'];
const LEGACY_REQUEST_META = ['progressToken', META.relatedTask];

/**
 * Returns the parameters of a legacy server request as an entry of `inputRequests` holds them. An empty object stays:
 * `params` is optional for `roots/list`, but the Go SDK cannot read the request without it.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function upgradeServerRequest(params: RawObject): RawObject {
  return withoutMeta(params, LEGACY_REQUEST_META).without(LEGACY_REQUEST_MEMBERS);
}
