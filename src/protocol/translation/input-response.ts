/** Translates responses of clients to server requests from one era to the other. */

import { isArrayText, isObjectText, RawObject, rawItems } from '../../json/json.ts';
import { downgradeBlock } from './downgrade.ts';
import { withoutCoreTaskMeta } from '../meta.ts';
import { type LegacyRevision, featuresOf } from '../revisions.ts';

/**
 * Translates the result of a legacy client to a value of `inputResponses`.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function upgradeInputResponse(result: string): string {
  return withoutCoreTaskMeta(RawObject.parse(result)).toString();
}

const ACTIONS = ['accept', 'decline', 'cancel'];

/**
 * Joins content blocks into one, since older revisions allow only one. Returns undefined if the blocks cannot be
 * joined.
 */
function joinBlocks(blocks: readonly string[], revision: LegacyRevision): string | undefined {
  const texts: string[] = [];
  for (const raw of blocks) {
    const block = isObjectText(raw) ? RawObject.parse(raw) : undefined;
    const type = block?.string('type');
    if (type === undefined || type === 'tool_use' || type === 'tool_result') return undefined;
    const text = type === 'text' ? block?.string('text') : undefined;
    if (text !== undefined) texts.push(text);
  }
  const [only] = blocks;
  if (blocks.length === 1 && only !== undefined) return downgradeBlock(only, featuresOf(revision));
  if (blocks.length === 0 || texts.length !== blocks.length) return undefined;
  return `{"type":"text","text":${JSON.stringify(texts.join('\n'))}}`;
}

/**
 * Translates the result of a client to the revision of the server that has asked. Older ones allow one content block in a sampling result.
 * Returns undefined if the result has no older form. Other members are not checked.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function downgradeClientResult(method: string, revision: LegacyRevision, result: string): string | undefined {
  if (method !== 'sampling/createMessage' || featuresOf(revision).samplingTools) return result;
  const answer = RawObject.parse(result);
  const content = answer.raw('content');
  if (content === undefined) return result;
  const block = joinBlocks(isArrayText(content) ? rawItems(content) : [content], revision);
  return block === undefined ? undefined : answer.with('content', block).toString();
}

/**
 * Translates a value of `inputResponses` to the result of the latest legacy revision. Returns undefined if it does not answer such a request.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function downgradeInputResponse(method: string, response: string): string | undefined {
  if (!isObjectText(response)) return undefined;
  const answer = RawObject.parse(response);
  switch (method) {
    case 'elicitation/create':
      return ACTIONS.includes(answer.string('action') ?? '') ? answer.toString() : undefined;
    case 'sampling/createMessage': {
      const hasContent = answer.raw('content') !== undefined;
      const isWhole = hasContent && answer.string('model') !== undefined && answer.string('role') !== undefined;
      return isWhole ? answer.toString() : undefined;
    }
    case 'roots/list':
      return isArrayText(answer.raw('roots')) ? answer.toString() : undefined;
    default:
      return undefined;
  }
}
