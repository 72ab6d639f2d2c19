import { RawObject } from '../../json/json.ts';
import { downgradeListItem } from '../../protocol/downgrade.ts';
import { downgradeModernTool } from '../../protocol/downgrade-modern.ts';
import { upgradeListItem } from '../../protocol/upgrade.ts';
import { MODERN, type Revision } from '../../protocol/revisions.ts';
import { isMalformed } from '../malformed.ts';
import { isCompilable } from './compilable.ts';

/** `true` and `false` are schemas too, which clients before 2026-07-28 do not read as a property's. */
function withObjectProperties(schema: RawObject): RawObject {
  const properties = schema.object('properties');
  if (properties === undefined) return schema;
  const lowered = properties.map((raw) => {
    if (raw === 'true') return '{}';
    return raw === 'false' ? '{"not":{}}' : raw;
  });
  return schema.with('properties', lowered.toString());
}

/** The output schema without its own id, under which some clients would find that of another tool; undefined where not every client reads it. */
function readableOutput(schema: RawObject): RawObject | undefined {
  const anonymous = withObjectProperties(schema.with('$id', undefined));
  return isCompilable(JSON.parse(anonymous.toString())) ? anonymous : undefined;
}

/** Whether a legacy upstream's tool may need a change, also one whose members are spelled with escapes. */
const MAY_CHANGE = /"outputSchema"|:\s*(?:true|false)|\\u00/;

function legacyTool(text: string, isModern: boolean): string {
  if (!isModern && !MAY_CHANGE.test(text)) return text;
  let tool = RawObject.parse(isModern ? downgradeModernTool(text) : text);
  const input = tool.object('inputSchema');
  if (input !== undefined) tool = tool.with('inputSchema', withObjectProperties(input).toString());
  const output = tool.object('outputSchema');
  return (output === undefined ? tool : tool.with('outputSchema', readableOutput(output)?.toString())).toString();
}

/**
 * The text of a published tool as clients of a revision read it: the same text where nothing changes, undefined where the
 * tool has no form that they read.
 *
 * @param isModern whether its upstream speaks 2026-07-28.
 */
export function toolTextAt(revision: Revision, text: string, isModern: boolean): string | undefined {
  try {
    if (revision === MODERN) return upgradeListItem('tools', text);
    return downgradeListItem('tools', revision, legacyTool(text, isModern));
  } catch (thrown) {
    if (isMalformed(thrown)) return undefined;
    throw thrown;
  }
}

/** Whether older clients are shown the tool without the output schema that it has. */
export function losesOutputSchema(tool: RawObject, isModern: boolean): boolean {
  return (
    tool.raw('outputSchema') !== undefined &&
    RawObject.parse(legacyTool(tool.toString(), isModern)).raw('outputSchema') === undefined
  );
}

/** Whether clients of a revision read a URI. Python clients before 2026-07-28 refuse a whole list over what is no URL. */
export function isUriAt(revision: Revision, uri: string): boolean {
  return revision === MODERN || URL.canParse(uri);
}
