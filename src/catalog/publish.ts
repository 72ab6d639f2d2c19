import { oneLine, type RawObject } from '../json/json.ts';
import { type ItemKind, readItem } from './item.ts';
import { itemToClient } from './rewrite.ts';
import type { ViewUpstream } from './view.ts';

/**
 * Every revision demands `"type": "object"`, and TypeScript clients drop the whole list over one tool that leaves it out.
 * Arguments are an object anyway, so saying so changes nothing.
 */
function withSchemaType(tool: RawObject): RawObject {
  const schema = tool.object('inputSchema');
  return schema === undefined ? tool : tool.with('inputSchema', schema.with('type', '"object"').toString());
}

/** The same text for the same item in every view that shows it alike, and from one catalog to the next. */
const texts = new WeakMap<RawObject, Map<string, string>>();

/** JSON text, on one line, of a sound item as a view shows it. `name` is what a tool or prompt is published as. */
export function publishedText(kind: ItemKind, upstream: ViewUpstream, item: RawObject, name?: string): string {
  const known = texts.get(item) ?? new Map<string, string>();
  texts.set(item, known);
  const shownAs = `${upstream.rawUris ? '' : upstream.id} ${name ?? ''}`;
  let text = known.get(shownAs);
  if (text === undefined) {
    let published = itemToClient(kind, upstream, readItem(kind, item).typeless ? withSchemaType(item) : item);
    if (name !== undefined && name !== item.string('name')) published = published.with('name', JSON.stringify(name));
    text = oneLine(published.toString());
    known.set(shownAs, text);
  }
  return text;
}
