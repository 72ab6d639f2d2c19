import { type Catalog, resolveResource, resolveTemplate } from '../../catalog/catalog.ts';
import type { Callables } from '../../catalog/callable.ts';
import { isIncluded } from '../../catalog/names/glob.ts';
import { RawObject } from '../../json/json.ts';
import { shownText } from '../../peer-text.ts';
import type { CatalogQuery } from '../../operator/admin/admin-port.ts';
import type { CatalogAnswer } from '../../operator/admin/answers.ts';

/** Items in one answer. */
const MAX_ITEMS = 10_000;

type Item = CatalogAnswer['items'][number];

/**
 * Returns every item of a catalog with its origin. Items that the config leaves out, and those that clients could not read, have the
 * reason.
 */
export function catalogAnswerOf(catalog: Catalog, { view, era, upstream }: CatalogQuery): CatalogAnswer {
  const repairs = new Map(catalog.repaired.map((one) => [`${one.kind} ${one.upstream} ${one.name}`, one]));
  const withRepair = (item: Item): Item => {
    const repair = repairs.get(`${item.kind} ${item.upstream} ${shownText(item.upstreamName ?? item.name)}`);
    if (repair === undefined) return item;
    const changes = repair.leftOut.map((path) => `left out: ${path}`);
    if (repair.cleanedTexts > 0) changes.push(`hidden characters taken out of ${repair.cleanedTexts} of its texts`);
    return { ...item, status: 'repaired', why: changes.join('; ') };
  };
  const published = [
    ...callables(catalog, catalog.callables.tools),
    ...callables(catalog, catalog.callables.prompts),
    ...resources(catalog, 'resource'),
    ...resources(catalog, 'template'),
  ].map((item) => (item.status === 'published' ? withRepair(item) : item));
  const quarantined = catalog.quarantined.map(({ upstream: id, kind, name, why, isWithheld }): Item => {
    const status = isWithheld === true ? 'withheld' : 'quarantined';
    return { kind, name, upstream: id, status, why: `The ${kind} ${why}.` };
  });
  const items = [...published, ...quarantined].filter((item) => upstream === undefined || item.upstream === upstream);
  return {
    view,
    era,
    items: items.slice(0, MAX_ITEMS),
    isCut: items.length > MAX_ITEMS,
  };
}

/** Returns the tools or prompts that are published or filtered. */
function callables(catalog: Catalog, { parts, targets }: Callables): Item[] {
  return parts.flatMap(({ kind, upstream, items }) =>
    items.flatMap(({ reading, prefixedName, published, quarantined }): Item[] => {
      const { key } = reading;
      const origin = { kind, upstream: upstream.id, upstreamName: shownText(key) };
      if (published !== undefined) {
        // Of two items with one name, only the first is published; the other is quarantined.
        const isShown = targets.get(published.name) === published.target;
        return isShown ? [{ ...origin, name: shownText(published.name), status: 'published' }] : [];
      }
      if (quarantined !== undefined) return [];
      const place = isIncluded(upstream, key) ? `profile "${catalog.view.id}"` : `upstream "${upstream.id}"`;
      const why = `Left out by includeTools or excludeTools of ${place}.`;
      return [{ ...origin, name: shownText(prefixedName), status: 'filtered', why }];
    }),
  );
}

function resources(catalog: Catalog, kind: 'resource' | 'template'): Item[] {
  const { texts, templateTexts } = catalog.resources;
  const [listed, key] = kind === 'resource' ? [texts, 'uri'] : [templateTexts, 'uriTemplate'];
  return listed.flatMap((text): Item[] => {
    const name = RawObject.parse(text).string(key) ?? '';
    const found = kind === 'resource' ? resolveResource(catalog, name) : resolveTemplate(catalog, name);
    if (found.kind === 'none') return [];
    const shown = shownText(name);
    if (found.kind === 'many') {
      const why = `Upstreams ${found.upstreams.join(', ')} have it, so it cannot be read here; use the endpoint of one.`;
      return [{ kind, name: shown, upstream: found.upstreams[0] ?? '', status: 'repaired', why }];
    }
    return [{ kind, name: shown, upstream: found.upstream, upstreamName: shownText(found.uri), status: 'published' }];
  });
}
