import { oneLine, type RawObject } from '../json/json.ts';
import { withoutTaskSupport } from '../protocol/tasks.ts';
import type { Revision } from '../protocol/revisions.ts';
import type { ItemKind } from './items/kind.ts';
import { toolTextAt } from './items/revision-text.ts';
import { itemToClient } from './rewrite.ts';
import type { ViewUpstream } from './view.ts';
import { getOrMake } from '../map-entries.ts';

/**
 * Published texts by upstream and item; then by revision, empty for the general form, and name. Views, catalogs and sessions share them. Upstreams with equal lists share their items, so
 * that texts kept by item alone would outlive an upstream that is removed.
 */
const texts = new WeakMap<ViewUpstream, WeakMap<RawObject, Map<string, string>>>();

function textsOfItem(upstream: ViewUpstream, item: RawObject): Map<string, string> {
  const ofUpstream = getOrMake(texts, upstream, () => new WeakMap());
  return getOrMake(ofUpstream, item, () => new Map());
}

/**
 * Returns the JSON text of a repaired item, on one line, as a view publishes it.
 *
 * @param name the published name of a tool or prompt.
 */
export function publishedText(kind: ItemKind, upstream: ViewUpstream, item: RawObject, name?: string): string {
  return getOrMake(textsOfItem(upstream, item), ` ${name ?? ''}`, () => {
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
  const known = textsOfItem(upstream, item);
  const form = `${revision} ${name}`;
  const made = known.get(form) ?? toolTextAt(revision, general, isModern);
  if (made !== undefined && made !== general) known.set(form, made);
  return made;
}
