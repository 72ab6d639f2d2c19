/**
 * What a server or a client of an older revision says, in words of 2026-07-28. Takes apart as little as it can; what nobody
 * knows stays.
 */

import { RawObject } from '../json/json.ts';
import type { RpcError } from './jsonrpc.ts';
import { TextCache } from '../json/memo.ts';
import { META, metaText, withoutCoreTaskMeta } from './meta.ts';
import { publishedSchema } from './mirrored-params.ts';

/** Methods whose results say how long they may be kept. */
const CACHEABLE = new Set([
  'server/discover',
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
  'resources/read',
]);

const RESOURCE_NOT_FOUND = -32002;
const INVALID_PARAMS = -32602;

/** What 2026-07-28 wants said about a result and no older server says. */
export interface Stamp {
  /** Who we are, as raw JSON text of an `Implementation`. */
  readonly serverInfo: string;
  /** Milliseconds a result may be kept: an integer of 0 or more. */
  readonly ttlMs: number;
  readonly cacheScope: 'public' | 'private';
}

/** A server's results mostly say the same of themselves. By who we say we are. */
const named = new Map<string, TextCache<string>>();

function namedMeta(result: RawObject, serverInfo: string): string {
  let memo = named.get(serverInfo);
  if (memo === undefined) named.set(serverInfo, (memo = new TextCache()));
  return memo.of(result.raw('_meta') ?? '', (raw) => metaText(raw, [[META.serverInfo, serverInfo]]));
}

/** The result under our name, and with how long it may be kept where the method wants that said. */
export function withStamp(method: string, result: RawObject, stamp: Stamp): RawObject {
  const ours = result.with('_meta', namedMeta(result, stamp.serverInfo));
  if (!CACHEABLE.has(method)) return ours;
  return ours.with('ttlMs', String(stamp.ttlMs)).with('cacheScope', JSON.stringify(stamp.cacheScope));
}

/**
 * A complete result of an older server.
 *
 * @throws {JsonTextError} when the text is not JSON after all.
 */
export function upgradeResult(method: string, result: string, stamp: Stamp): string {
  let raised = withoutCoreTaskMeta(RawObject.parse(result)).with('resultType', '"complete"');
  if (method === 'tools/call' && raised.raw('content') === undefined) raised = raised.with('content', '[]');
  return withStamp(method, raised, stamp).toString();
}

function raiseTool(item: string): string {
  let tool = RawObject.parse(item);
  const execution = tool.object('execution');
  if (execution?.raw('taskSupport') !== undefined) {
    const kept = execution.with('taskSupport', undefined);
    tool = tool.with('execution', kept.size === 0 ? undefined : kept.toString());
  }
  const schema = tool.object('inputSchema');
  return schema === undefined
    ? tool.toString()
    : tool.with('inputSchema', publishedSchema(schema).toString()).toString();
}

/**
 * One item of a list. A tool loses what only the tasks of 2025-11-25 read, and annotations for headers that are against the
 * rules, since its clients would have to drop it for them.
 *
 * @throws {JsonTextError} when the text is not JSON after all.
 */
export function upgradeListItem(kind: 'tools' | 'prompts' | 'resources' | 'templates', item: string): string {
  return kind === 'tools' ? raiseTool(item) : item;
}

/** An error of an older server. `-32042` is none here: it is a question, and becomes one elsewhere. */
export function upgradeError(error: RpcError): RpcError {
  return error.code === RESOURCE_NOT_FOUND ? { ...error, code: INVALID_PARAMS } : error;
}

/**
 * Returns the error of a server that does not know a resource, as 2026-07-28 requires it: with its code, and the URI in `data`.
 * The SDKs of older servers answer with codes of their own: 0, -32002, -32603.
 *
 * @param uri as the client knows it.
 */
export function unknownResourceError({ message, data }: RpcError, uri: string): RpcError {
  const kept = typeof data === 'object' && data !== null && !Array.isArray(data) ? data : {};
  return { code: INVALID_PARAMS, message, data: { ...kept, uri } };
}

/** Members of a server request of 2025-11-25 that an entry of `inputRequests` does not have. */
const LEGACY_REQUEST_MEMBERS = ['elicitationId', 'task', '_meta'];

/**
 * Returns the parameters of an older server's request as an entry of `inputRequests` holds them. An empty object stays:
 * `params` is optional for `roots/list`, but the Go SDK cannot read the request without it.
 *
 * @throws {JsonTextError} when the text is not JSON after all.
 */
export function upgradeServerRequest(params: RawObject): RawObject {
  let upgraded = params;
  for (const member of LEGACY_REQUEST_MEMBERS) upgraded = upgraded.with(member, undefined);
  return upgraded;
}
