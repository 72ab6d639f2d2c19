import { RawObject } from '../../json/json.ts';
import { downgradeTool } from '../../protocol/translation/downgrade.ts';
import { downgradeModernTool, downgradeProperties } from '../../protocol/translation/downgrade-modern.ts';
import { upgradeTool } from '../../protocol/translation/upgrade.ts';
import { isModernRevision, type Revision } from '../../protocol/revisions.ts';
import { unlessMalformed } from '../../json/malformed.ts';
import { isCompilable } from './compilable.ts';

/**
 * Returns the output schema without its `$id`, which some clients would use to look up another tool's schema. Returns
 * undefined if some clients could not compile it.
 */
function readableOutput(schema: RawObject): RawObject | undefined {
  const anonymous = downgradeProperties(schema.with('$id', undefined));
  return isCompilable(JSON.parse(anonymous.toString())) ? anonymous : undefined;
}

/** Matches tools of legacy upstreams that may need a change, also with member names that are spelled with escapes. */
const MAY_CHANGE = /"outputSchema"|:\s*(?:true|false)|\\u00/;

/** Returns the JSON text of a tool as all clients before 2026-07-28 can read it. */
function legacyTool(text: string, isModern: boolean): string {
  if (!isModern && !MAY_CHANGE.test(text)) return text;
  let tool = RawObject.parse(isModern ? downgradeModernTool(text) : text);
  const input = tool.object('inputSchema');
  if (input !== undefined) tool = tool.with('inputSchema', downgradeProperties(input).toString());
  const output = tool.object('outputSchema');
  return (output === undefined ? tool : tool.with('outputSchema', readableOutput(output)?.toString())).toString();
}

/**
 * Returns the JSON text of a published tool in the form of a revision, the same text if nothing changes. Returns undefined if clients of
 * the revision cannot read it in any form.
 *
 * @param isModern whether the tool's upstream speaks 2026-07-28.
 */
export function toolTextAt(revision: Revision, text: string, isModern: boolean): string | undefined {
  const read = () =>
    isModernRevision(revision) ? upgradeTool(text) : downgradeTool(revision, legacyTool(text, isModern));
  return unlessMalformed(read, undefined);
}

/** Returns whether clients before 2026-07-28 get the tool without its output schema. */
export function losesOutputSchema(tool: RawObject, isModern: boolean): boolean {
  return (
    tool.raw('outputSchema') !== undefined &&
    RawObject.parse(legacyTool(tool.toString(), isModern)).raw('outputSchema') === undefined
  );
}
