/**
 * Translates messages of a 2026-07-28 upstream to 2025-11-25. `downgrade.ts` translates from there to the revision of
 * the client.
 */

import { arrayText, isArrayText, isObjectText, RawObject, rawItems } from '../../json/json.ts';
import type { RpcError } from '../jsonrpc.ts';
import { downgradeServerRequest, withTextOf } from './downgrade.ts';
import { withoutModernMeta } from '../meta.ts';
import { isWrapped, wrappedContent, wrappedSchema } from './output-schema.ts';
import type { LegacyRevision } from '../revisions.ts';
import { RPC } from '../rpc-codes.ts';

const RESULT_MEMBERS = ['resultType', 'ttlMs', 'cacheScope'];

/** Wraps structured content in an object, as older clients require, and repeats the value as text. */
function wrapResult(result: RawObject, isSchemaWrapped: boolean): RawObject {
  const value = result.raw('structuredContent');
  if (value === undefined || (isObjectText(value) && !isSchemaWrapped)) return result;
  const wrapped = result.with('structuredContent', wrappedContent(value));
  const content = result.raw('content') ?? '[]';
  if (!isArrayText(content)) return wrapped;
  const blocks = rawItems(content);
  const withText = withTextOf(value, blocks);
  return withText === blocks ? wrapped : wrapped.with('content', arrayText(withText));
}

/**
 * Translates a complete result of a 2026-07-28 upstream.
 *
 * @param isSchemaWrapped for `tools/call`: whether {@link downgradeModernTool} wrapped the tool's `outputSchema`; see
 *   {@link hasWrappedOutput}.
 * @throws {JsonTextError} if the text is not JSON.
 */
export function downgradeModernResult(method: string, result: RawObject, isSchemaWrapped: boolean): RawObject {
  const downgraded = withoutModernMeta(result).without(RESULT_MEMBERS);
  return method === 'tools/call' ? wrapResult(downgraded, isSchemaWrapped) : downgraded;
}

/**
 * Returns whether older clients get the structured content of this tool inside `{"result": …}`. @throws {JsonTextError}
 */
export function hasWrappedOutput(tool: RawObject): boolean {
  const schema = tool.object('outputSchema');
  return schema !== undefined && isWrapped(schema);
}

/** Replaces the schemas `true` and `false` of properties, which older typed clients cannot read, by equivalent objects. */
export function downgradeProperties(schema: RawObject): RawObject {
  const properties = schema.object('properties');
  if (properties === undefined) return schema;
  const downgraded = properties.map((raw) => {
    if (raw === 'true') return '{}';
    return raw === 'false' ? '{"not":{}}' : raw;
  });
  return schema.with('properties', downgraded.toString());
}

/**
 * Translates one tool of a list. An output schema whose root is not an object is wrapped, or removed if it cannot be
 * wrapped.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function downgradeModernTool(item: string): string {
  let tool = RawObject.parse(item);
  const input = tool.object('inputSchema');
  if (input !== undefined) tool = tool.with('inputSchema', downgradeProperties(input).toString());
  const output = tool.object('outputSchema');
  if (output === undefined) return tool.toString();
  const downgraded = isWrapped(output) ? wrappedSchema(output) : downgradeProperties(output);
  return tool.with('outputSchema', downgraded?.toString()).toString();
}

/** Translates an error of a 2026-07-28 upstream. Older revisions have a code of their own for a missing resource. */
export function downgradeModernError(method: string, error: RpcError): RpcError {
  const { code, data } = error;
  const isNotFound =
    method === 'resources/read' &&
    code === RPC.invalidParams &&
    typeof data === 'object' &&
    data !== null &&
    'uri' in data &&
    typeof data.uri === 'string';
  return isNotFound ? { ...error, code: RPC.resourceNotFound } : error;
}

/** Wraps the structured content of a `tool_result` block in a sampling message. */
function wrapToolResult(raw: string): string {
  if (!isObjectText(raw) || !raw.includes('structuredContent')) return raw;
  const block = RawObject.parse(raw);
  return block.string('type') === 'tool_result' ? wrapResult(block, false).toString() : raw;
}

function wrapMessage(raw: string): string {
  if (!isObjectText(raw)) return raw;
  const message = RawObject.parse(raw);
  const content = message.raw('content');
  if (content === undefined) return raw;
  const wrapped = isArrayText(content) ? arrayText(rawItems(content).map(wrapToolResult)) : wrapToolResult(content);
  return message.with('content', wrapped).toString();
}

/** Translates the tools and tool results of a sampling request. */
function downgradeSamplingTools(params: RawObject): RawObject {
  let downgraded = params;
  const tools = params.raw('tools');
  if (isArrayText(tools)) {
    const items = rawItems(tools).map((tool) => (isObjectText(tool) ? downgradeModernTool(tool) : tool));
    downgraded = downgraded.with('tools', arrayText(items));
  }
  const messages = params.raw('messages');
  if (isArrayText(messages) && messages.includes('structuredContent')) {
    downgraded = downgraded.with('messages', arrayText(rawItems(messages).map(wrapMessage)));
  }
  return downgraded;
}

/**
 * Translates the parameters of an entry of `inputRequests` for a legacy client. Returns undefined if the client's
 * revision cannot express the request.
 *
 * @param elicitationId id of a URL elicitation, which 2025-11-25 requires: made by us, unique for this client.
 * @throws {JsonTextError} if the text is not JSON.
 */
export function downgradeInputRequest(
  method: string,
  revision: LegacyRevision,
  params: RawObject,
  elicitationId: string,
): RawObject | undefined {
  switch (method) {
    case 'elicitation/create': {
      const isUrl = params.string('mode') === 'url';
      return downgradeServerRequest(
        method,
        revision,
        isUrl ? params.with('elicitationId', JSON.stringify(elicitationId)) : params,
      );
    }
    case 'sampling/createMessage':
      return downgradeServerRequest(method, revision, downgradeSamplingTools(params));
    case 'roots/list':
      return params;
    default:
      return undefined;
  }
}
