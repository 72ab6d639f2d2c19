import { oneLine, type RawObject } from '../json/json.ts';
import { withoutTaskSupport } from '../protocol/tasks.ts';
import type { Revision } from '../protocol/revisions.ts';
import type { ItemKind } from './items/kind.ts';
import { toolTextAt } from './items/revision-text.ts';
import { itemToClient } from './rewrite.ts';
import type { ViewUpstream } from './view.ts';
import { getOrMake } from '../map-entries.ts';

/** Published texts by item and form. Views, catalogs and sessions share them. */
const texts = new WeakMap<RawObject, Map<string, string>>();

/** Returns the key of a form: equal for views that publish an item with the same text. */
function formOf({ id, rawUris, isPerCall }: ViewUpstream, name: string | undefined): string {
  return `${isPerCall === true ? '*' : ''}${rawUris ? '' : id} ${name ?? ''}`;
}

/**
 * Returns the JSON text of a repaired item, on one line, as a view publishes it.
 *
 * @param name the published name of a tool or prompt.
 */
export function publishedText(kind: ItemKind, upstream: ViewUpstream, item: RawObject, name?: string): string {
  const known = getOrMake(texts, item, () => new Map());
  const form = formOf(upstream, name);
  return getOrMake(known, form, () => {
    let published = itemToClient(kind, upstream, item);
    if (kind === 'tool' && upstream.isPerCall === true) published = withoutTaskSupport(published);
    if (name !== undefined && name !== item.string('name')) published = published.with('name', JSON.stringify(name));
    return oneLine(published.toString());
  });
}

/**
 * Returns the JSON text of a published tool in the form of a revision. Returns undefined if clients of the revision
 * cannot read it in any form.
 *
 * @param isModern whether the tool's upstream speaks 2026-07-28.
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
