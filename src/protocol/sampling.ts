import { isArrayText, isObjectText, RawObject, rawItems } from '../json/json.ts';

const TOOL_BLOCKS: ReadonlySet<string | undefined> = new Set(['tool_use', 'tool_result']);

/** Returns the content blocks of a sampling message, which has one or an array of them. */
export function blocksOf(message: RawObject): readonly string[] {
  const content = message.raw('content');
  if (content === undefined) return [];
  return isArrayText(content) ? rawItems(content) : [content];
}

function hasToolBlock(message: string): boolean {
  if (!isObjectText(message)) return false;
  const blocks = blocksOf(RawObject.parse(message));
  return blocks.some((block) => isObjectText(block) && TOOL_BLOCKS.has(RawObject.parse(block).string('type')));
}

/**
 * Returns whether a sampling request may be sent only to clients that declare `sampling.tools`: it offers tools, or has the calls of earlier
 * turns.
 *
 * @throws {JsonTextError} if a message is not JSON.
 */
export function usesTools(params: RawObject): boolean {
  if (params.raw('tools') !== undefined || params.raw('toolChoice') !== undefined) return true;
  const messages = params.raw('messages');
  return isArrayText(messages) && rawItems(messages).some(hasToolBlock);
}
