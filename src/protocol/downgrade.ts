/**
 * What a newer upstream says, in words an older client knows. Only what breaks a typed parser is changed: members that an old
 * schema does not name are harmless, so `title`, `icons` and the like stay.
 *
 * Everything here takes apart as little as it can, and leaves alone what is not shaped as it should be: judging is the
 * client's business.
 */

import { arrayText, isArrayText, isObjectText, RawObject, rawItems } from '../json/json.ts';
import { featuresOf } from './revisions.ts';
import type { LegacyRevision, RevisionFeatures } from './revisions.ts';

/** Members that belong to what a block was, where it becomes a block of text. */
const BLOCK_MEMBERS = ['uri', 'name', 'title', 'description', 'mimeType', 'size', 'icons', 'data'];

function toTextBlock(block: RawObject, text: string): string {
  let bare = block;
  for (const member of BLOCK_MEMBERS) bare = bare.with(member, undefined);
  return bare.with('type', '"text"').with('text', JSON.stringify(text)).toString();
}

function linkText(block: RawObject): string {
  const uri = block.string('uri') ?? '';
  const name = block.string('title') ?? block.string('name');
  const description = block.string('description');
  const link = name === undefined ? uri : `${name} (${uri})`;
  return description === undefined ? link : `${link}: ${description}`;
}

/** A content block as the revision knows it. */
export function downgradeBlock(raw: string, quirks: RevisionFeatures): string {
  if (!isObjectText(raw)) return raw;
  const block = RawObject.parse(raw);
  const type = block.string('type');
  if (type === 'resource_link' && !quirks.resourceLinks) return toTextBlock(block, linkText(block));
  if (type === 'audio' && !quirks.audio) {
    const kind = block.string('mimeType') ?? 'audio';
    return toTextBlock(block, `[${kind} left out: the client's revision of the protocol has no audio]`);
  }
  return raw;
}

function hasForeignBlock(text: string, quirks: RevisionFeatures): boolean {
  return (!quirks.resourceLinks && text.includes('"resource_link"')) || (!quirks.audio && text.includes('"audio"'));
}

function isTextBlock(raw: string): boolean {
  return isObjectText(raw) && RawObject.parse(raw).string('type') === 'text';
}

/** The blocks, with the value as JSON behind them where none of them is text. */
export function withTextOf(value: string, blocks: readonly string[]): readonly string[] {
  return blocks.some(isTextBlock) ? blocks : [...blocks, `{"type":"text","text":${JSON.stringify(value)}}`];
}

function lowerToolResult(text: string, quirks: RevisionFeatures): string {
  const maybeStructured = !quirks.structuredContent && text.includes('"structuredContent"');
  const foreign = hasForeignBlock(text, quirks);
  if (!maybeStructured && !foreign) return text;

  const result = RawObject.parse(text);
  const value = maybeStructured ? result.raw('structuredContent') : undefined;
  const content = result.raw('content') ?? '[]';
  if ((value === undefined && !foreign) || !isArrayText(content)) return text;
  const blocks = rawItems(content).map((block) => downgradeBlock(block, quirks));
  if (value === undefined) return result.with('content', arrayText(blocks)).toString();
  return result
    .with('content', arrayText(withTextOf(value, blocks)))
    .with('structuredContent', undefined)
    .toString();
}

function lowerPromptResult(text: string, quirks: RevisionFeatures): string {
  if (!hasForeignBlock(text, quirks)) return text;
  const result = RawObject.parse(text);
  const messages = result.raw('messages');
  if (!isArrayText(messages)) return text;
  const lowered = rawItems(messages).map((raw) => {
    if (!isObjectText(raw)) return raw;
    const message = RawObject.parse(raw);
    const content = message.raw('content');
    return content === undefined ? raw : message.with('content', downgradeBlock(content, quirks)).toString();
  });
  return result.with('messages', arrayText(lowered)).toString();
}

/**
 * The text of a result as a client of this revision can read it; the same text where there is nothing to change.
 *
 * @throws {JsonTextError} when the text is not JSON after all.
 */
export function downgradeResult(method: string, revision: LegacyRevision, result: string): string {
  if (method === 'tools/call') return lowerToolResult(result, featuresOf(revision));
  if (method === 'prompts/get') return lowerPromptResult(result, featuresOf(revision));
  return result;
}

/**
 * The text of one item of a list, likewise.
 *
 * @throws {JsonTextError} when the text is not JSON after all.
 */
export function downgradeListItem(
  kind: 'tools' | 'prompts' | 'resources' | 'templates',
  revision: LegacyRevision,
  item: string,
): string {
  // A client that is told of an output schema waits for structured content.
  const foreign = kind === 'tools' && !featuresOf(revision).structuredContent && item.includes('"outputSchema"');
  return foreign ? RawObject.parse(item).with('outputSchema', undefined).toString() : item;
}

const TOOL_BLOCKS = new Set(['tool_use', 'tool_result']);

/** One message per content block, since an older message holds exactly one; undefined where a block cannot be said. */
function splitMessage(raw: string, quirks: RevisionFeatures): string[] | undefined {
  if (!isObjectText(raw)) return [raw];
  const message = RawObject.parse(raw);
  const content = message.raw('content');
  if (content === undefined) return [raw];
  const split: string[] = [];
  for (const block of isArrayText(content) ? rawItems(content) : [content]) {
    const type = isObjectText(block) ? RawObject.parse(block).string('type') : undefined;
    if (type !== undefined && TOOL_BLOCKS.has(type)) return undefined;
    split.push(message.with('content', downgradeBlock(block, quirks)).toString());
  }
  return split;
}

function lowerSampling(params: RawObject, quirks: RevisionFeatures): RawObject | undefined {
  if (quirks.samplingTools) return params;
  if (params.raw('tools') !== undefined) return undefined;
  const messages = params.raw('messages');
  if (!isArrayText(messages)) return params;
  const lowered: string[] = [];
  for (const message of rawItems(messages)) {
    const split = splitMessage(message, quirks);
    if (split === undefined) return undefined;
    lowered.push(...split);
  }
  return params.with('messages', arrayText(lowered));
}

/** `oneOf: [{const, title}]` as `enum` + `enumNames`; undefined where the property has no older form. */
function lowerProperty(raw: string): string | undefined {
  if (!isObjectText(raw)) return raw;
  const property = RawObject.parse(raw);
  if (property.string('type') === 'array') return undefined;
  const oneOf = property.raw('oneOf');
  if (oneOf === undefined) return raw;
  if (!isArrayText(oneOf)) return undefined;
  const values: string[] = [];
  const names: string[] = [];
  for (const item of rawItems(oneOf)) {
    const option = isObjectText(item) ? RawObject.parse(item) : undefined;
    const value = option?.string('const') === undefined ? undefined : option.raw('const');
    if (option === undefined || value === undefined) return undefined;
    values.push(value);
    names.push(option.string('title') === undefined ? value : (option.raw('title') ?? value));
  }
  return property
    .with('oneOf', undefined)
    .with('enum', arrayText(values))
    .with('enumNames', arrayText(names))
    .toString();
}

function lowerElicitation(params: RawObject, revision: LegacyRevision): RawObject | undefined {
  if (revision < '2025-06-18') return undefined;
  if (featuresOf(revision).urlElicitation) return params;
  if (params.raw('mode') !== undefined && params.string('mode') !== 'form') return undefined;
  const schema = params.object('requestedSchema');
  const properties = schema?.object('properties');
  if (schema === undefined || properties === undefined) return params;
  let lowered = properties;
  for (const name of properties.keys()) {
    const property = lowerProperty(properties.raw(name) ?? '');
    if (property === undefined) return undefined;
    lowered = lowered.with(name, property);
  }
  if (lowered === properties) return params;
  return params.with('requestedSchema', schema.with('properties', lowered.toString()).toString());
}

/**
 * The parameters of a request from an upstream as a client of this revision can read them; undefined when the revision has no
 * way to say it, so that the client must not be asked.
 *
 * @throws {JsonTextError} when the text is not JSON after all.
 */
export function downgradeServerRequest(
  method: string,
  revision: LegacyRevision,
  params: RawObject,
): RawObject | undefined {
  switch (method) {
    case 'sampling/createMessage':
      return lowerSampling(params, featuresOf(revision));
    case 'elicitation/create':
      return lowerElicitation(params, revision);
    default:
      return params;
  }
}
