/**
 * What a 2026-07-28 upstream says, in words of 2025-11-25. `lower.ts` goes on from there to the client's own revision.
 */

import { arrayText, isArrayText, isObjectText, RawObject, rawItems } from '../json/json.ts';
import type { RpcError } from './jsonrpc.ts';
import { downgradeServerRequest, withTextOf } from './downgrade.ts';
import { withoutModernMeta } from './meta.ts';
import { isWrapped, wrappedContent, wrappedSchema } from './output-schema.ts';
import type { LegacyRevision } from './revisions.ts';

const RESULT_MEMBERS = ['resultType', 'ttlMs', 'cacheScope'];

const INVALID_PARAMS = -32602;
const RESOURCE_NOT_FOUND = -32002;

/** A tool's result with structured content that older clients read; the value itself stays readable as text. */
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
 * A complete result of a 2026-07-28 upstream.
 *
 * @param isSchemaWrapped of `tools/call`: whether {@link downgradeModernTool} changed the tool's `outputSchema`, by
 *   {@link hasWrappedOutput}.
 * @throws {JsonTextError} when the text is not JSON after all.
 */
export function downgradeModernResult(method: string, result: RawObject, isSchemaWrapped: boolean): RawObject {
  let lowered = withoutModernMeta(result);
  for (const member of RESULT_MEMBERS) lowered = lowered.with(member, undefined);
  return method === 'tools/call' ? wrapResult(lowered, isSchemaWrapped) : lowered;
}

/** Whether older clients are shown this tool with structured content inside `{"result": …}`. @throws {JsonTextError} */
export function hasWrappedOutput(tool: RawObject): boolean {
  const schema = tool.object('outputSchema');
  return schema !== undefined && isWrapped(schema);
}

/** `true` and `false` are schemas too, which older typed clients cannot read as a property's. */
function lowerProperties(schema: RawObject): RawObject {
  const properties = schema.object('properties');
  if (properties === undefined) return schema;
  const lowered = properties.map((raw) => {
    if (raw === 'true') return '{}';
    return raw === 'false' ? '{"not":{}}' : raw;
  });
  return schema.with('properties', lowered.toString());
}

/**
 * One tool of a list. An output schema whose root is no object is wrapped, or left out where that cannot be done.
 *
 * @throws {JsonTextError} when the text is not JSON after all.
 */
export function downgradeModernTool(item: string): string {
  let tool = RawObject.parse(item);
  const input = tool.object('inputSchema');
  if (input !== undefined) tool = tool.with('inputSchema', lowerProperties(input).toString());
  const output = tool.object('outputSchema');
  if (output === undefined) return tool.toString();
  const lowered = isWrapped(output) ? wrappedSchema(output) : lowerProperties(output);
  return tool.with('outputSchema', lowered?.toString()).toString();
}

/** An error of a 2026-07-28 upstream: a resource that is not there has a code of its own in older revisions. */
export function downgradeModernError(method: string, error: RpcError): RpcError {
  const { code, data } = error;
  const isNotFound =
    method === 'resources/read' &&
    code === INVALID_PARAMS &&
    typeof data === 'object' &&
    data !== null &&
    'uri' in data &&
    typeof data.uri === 'string';
  return isNotFound ? { ...error, code: RESOURCE_NOT_FOUND } : error;
}

/** `tool_result` blocks of sampling messages hold structured content too. */
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

/** Sampling with tools as 2025-11-25 has it. */
function lowerTools(params: RawObject): RawObject {
  let lowered = params;
  const tools = params.raw('tools');
  if (isArrayText(tools)) {
    const items = rawItems(tools).map((tool) => (isObjectText(tool) ? downgradeModernTool(tool) : tool));
    lowered = lowered.with('tools', arrayText(items));
  }
  const messages = params.raw('messages');
  if (isArrayText(messages) && messages.includes('structuredContent')) {
    lowered = lowered.with('messages', arrayText(rawItems(messages).map(wrapMessage)));
  }
  return lowered;
}

/**
 * The parameters of an entry of `inputRequests`, as an older client can be asked; undefined when its revision has no way to say
 * it.
 *
 * @param elicitationId of a page to open, which 2025-11-25 wants named: minted by us, unique for this client.
 * @throws {JsonTextError} when the text is not JSON after all.
 */
export function downgradeInputRequest(
  method: string,
  revision: LegacyRevision,
  params: RawObject,
  elicitationId: string,
): RawObject | undefined {
  switch (method) {
    case 'elicitation/create': {
      const isPage = params.string('mode') === 'url';
      return downgradeServerRequest(
        method,
        revision,
        isPage ? params.with('elicitationId', JSON.stringify(elicitationId)) : params,
      );
    }
    case 'sampling/createMessage':
      return downgradeServerRequest(method, revision, lowerTools(params));
    case 'roots/list':
      return params;
    default:
      return undefined;
  }
}
