import { oneLine, type RawObject } from '../json/json.ts';
import type { Revision } from '../protocol/revisions.ts';
import type { ItemKind } from './items/kind.ts';
import { toolTextAt } from './items/revision-text.ts';
import { itemToClient } from './rewrite.ts';
import type { ViewUpstream } from './view.ts';

/** The texts of an item by the form it is shown in. Views, catalogs and sessions share them. */
const texts = new WeakMap<RawObject, Map<string, string>>();

function formOf(upstream: ViewUpstream, name: string | undefined): string {
  return `${upstream.rawUris ? '' : upstream.id} ${name ?? ''}`;
}

/**
 * Returns the JSON text, on one line, of a repaired item as a view shows it.
 *
 * @param name that a tool or prompt is published under.
 */
export function publishedText(kind: ItemKind, upstream: ViewUpstream, item: RawObject, name?: string): string {
  const known = texts.get(item) ?? new Map<string, string>();
  texts.set(item, known);
  const form = formOf(upstream, name);
  let text = known.get(form);
  if (text === undefined) {
    let published = itemToClient(kind, upstream, item);
    if (name !== undefined && name !== item.string('name')) published = published.with('name', JSON.stringify(name));
    text = oneLine(published.toString());
    known.set(form, text);
  }
  return text;
}

/**
 * Returns the text of a published tool in the words of a revision; undefined where it has none.
 *
 * @param isModern whether its upstream speaks 2026-07-28.
 */
export function toolTextFor(
  revision: Revision,
  upstream: ViewUpstream,
  item: RawObject,
  name: string,
  isModern: boolean,
): string | undefined {
  const general = publishedText('tool', upstream, item, name);
  const form = `${revision} ${formOf(upstream, name)}`;
  const known = texts.get(item);
  const made = known?.get(form) ?? toolTextAt(revision, general, isModern);
  if (made !== undefined && made !== general) known?.set(form, made);
  return made;
}
