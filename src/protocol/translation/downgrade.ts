/**
 * Translates messages of an upstream for clients of older revisions. Only members that break a typed parser are
 * changed: members unknown to an old schema are harmless, so `title`, `icons` and the like stay.
 *
 * Parses as little as possible, and leaves malformed values alone: the client validates them.
 */

import { arrayText, isArrayText, isObjectText, RawObject, rawItems } from '../../json/json.ts';
import { featuresOf, type LegacyRevision, type RevisionFeatures } from '../revisions.ts';
import { blocksOf, usesTools } from '../sampling.ts';

/** Members that a block loses when it becomes a text block. */
const BLOCK_MEMBERS = ['uri', 'name', 'title', 'description', 'mimeType', 'size', 'icons', 'data'];

function toTextBlock(block: RawObject, text: string): string {
  const bare = block.without(BLOCK_MEMBERS);
  return bare.with('type', '"text"').with('text', JSON.stringify(text)).toString();
}

function linkText(block: RawObject): string {
  const uri = block.string('uri') ?? '';
  const name = block.string('title') ?? block.string('name');
  const description = block.string('description');
  const link = name === undefined ? uri : `${name} (${uri})`;
  return description === undefined ? link : `${link}: ${description}`;
}

/** Translates a content block to a revision with these features. */
export function downgradeBlock(raw: string, features: RevisionFeatures): string {
  if (!isObjectText(raw)) return raw;
  const block = RawObject.parse(raw);
  const type = block.string('type');
  if (type === 'resource_link' && !features.resourceLinks) return toTextBlock(block, linkText(block));
  if (type === 'audio' && !features.audio) {
    const kind = block.string('mimeType') ?? 'audio';
    return toTextBlock(block, `[${kind} left out: the client's revision of the protocol has no audio]`);
  }
  return raw;
}

function hasUnsupportedBlock(text: string, features: RevisionFeatures): boolean {
  return (!features.resourceLinks && text.includes('"resource_link"')) || (!features.audio && text.includes('"audio"'));
}

function isTextBlock(raw: string): boolean {
  return isObjectText(raw) && RawObject.parse(raw).string('type') === 'text';
}

/** Returns the blocks, followed by the value as JSON text if none of them is text. */
export function withTextOf(value: string, blocks: readonly string[]): readonly string[] {
  return blocks.some(isTextBlock) ? blocks : [...blocks, `{"type":"text","text":${JSON.stringify(value)}}`];
}

function downgradeToolResult(text: string, features: RevisionFeatures): string {
  const mayBeStructured = !features.structuredContent && text.includes('"structuredContent"');
  const isUnsupported = hasUnsupportedBlock(text, features);
  if (!mayBeStructured && !isUnsupported) return text;

  const result = RawObject.parse(text);
  const value = mayBeStructured ? result.raw('structuredContent') : undefined;
  const content = result.raw('content') ?? '[]';
  if ((value === undefined && !isUnsupported) || !isArrayText(content)) return text;
  const blocks = rawItems(content).map((block) => downgradeBlock(block, features));
  if (value === undefined) return result.with('content', arrayText(blocks)).toString();
  return result
    .with('content', arrayText(withTextOf(value, blocks)))
    .with('structuredContent', undefined)
    .toString();
}

function downgradePromptResult(text: string, features: RevisionFeatures): string {
  if (!hasUnsupportedBlock(text, features)) return text;
  const result = RawObject.parse(text);
  const messages = result.raw('messages');
  if (!isArrayText(messages)) return text;
  const downgraded = rawItems(messages).map((raw) => {
    if (!isObjectText(raw)) return raw;
    const message = RawObject.parse(raw);
    const content = message.raw('content');
    return content === undefined ? raw : message.with('content', downgradeBlock(content, features)).toString();
  });
  return result.with('messages', arrayText(downgraded)).toString();
}

/**
 * Translates the text of a result for a client of this revision. Returns the same text if nothing changes.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function downgradeResult(method: string, revision: LegacyRevision, result: string): string {
  if (method === 'tools/call') return downgradeToolResult(result, featuresOf(revision));
  if (method === 'prompts/get') return downgradePromptResult(result, featuresOf(revision));
  return result;
}

/**
 * Translates a tool of a list for a client of this revision. Returns the same text if nothing changes.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function downgradeTool(revision: LegacyRevision, tool: string): string {
  // A client that sees an output schema expects structured content.
  const isUnsupported = !featuresOf(revision).structuredContent && tool.includes('"outputSchema"');
  return isUnsupported ? RawObject.parse(tool).with('outputSchema', undefined).toString() : tool;
}

const ROLES: ReadonlySet<string | undefined> = new Set(['user', 'assistant']);

/** Splits a sampling message into one message per content block, since older messages hold exactly one block. */
function splitMessage(raw: string, features: RevisionFeatures): readonly string[] {
  if (!isObjectText(raw)) return [raw];
  const message = RawObject.parse(raw);
  if (message.raw('content') === undefined) return [raw];
  const [first, ...others] = blocksOf(message).map((block) => downgradeBlock(block, features));
  if (first === undefined) return [];
  // The members that each message repeats are short. A large one, repeated for each of many blocks, would fill the memory.
  if (others.length > 0 && !ROLES.has(message.string('role'))) return [raw];
  const bare = RawObject.EMPTY.with('role', message.raw('role'));
  return [message.with('content', first), ...others.map((block) => bare.with('content', block))].map(String);
}

function downgradeSampling(params: RawObject, features: RevisionFeatures): RawObject | undefined {
  if (features.samplingTools) return params;
  if (usesTools(params)) return undefined;
  const messages = params.raw('messages');
  if (!isArrayText(messages)) return params;
  return params.with('messages', arrayText(rawItems(messages).flatMap((message) => splitMessage(message, features))));
}

/**
 * Translates `oneOf: [{const, title}]` to `enum` and `enumNames`. Returns undefined if the property has no older form.
 */
function downgradeProperty(raw: string): string | undefined {
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

function downgradeElicitation(params: RawObject, features: RevisionFeatures): RawObject | undefined {
  if (!features.elicitation) return undefined;
  if (features.urlElicitation) return params;
  if (params.raw('mode') !== undefined && params.string('mode') !== 'form') return undefined;
  const schema = params.object('requestedSchema');
  const properties = schema?.object('properties');
  if (schema === undefined || properties === undefined) return params;
  if (properties.keys().some((name) => downgradeProperty(properties.raw(name) ?? '') === undefined)) return undefined;
  const downgraded = properties.map((raw) => downgradeProperty(raw) ?? raw);
  if (downgraded === properties) return params;
  return params.with('requestedSchema', schema.with('properties', downgraded.toString()).toString());
}

/**
 * Translates the parameters of a server request for a client of this revision. Returns undefined if the revision cannot
 * express the request; then the client must not be asked.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function downgradeServerRequest(
  method: string,
  revision: LegacyRevision,
  params: RawObject,
): RawObject | undefined {
  switch (method) {
    case 'sampling/createMessage':
      return downgradeSampling(params, featuresOf(revision));
    case 'elicitation/create':
      return downgradeElicitation(params, featuresOf(revision));
    default:
      return params;
  }
}
