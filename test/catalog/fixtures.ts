import { type Catalog, buildCatalog, listTexts } from '../../src/catalog/catalog.ts';
import { EMPTY_OFFER, type Offer } from '../../src/catalog/offer.ts';
import { LIST_NAMES, type ListName } from '../../src/catalog/page.ts';
import { restrictCatalog } from '../../src/catalog/restricted.ts';
import type { View, ViewUpstream } from '../../src/catalog/view.ts';
import { restrictionOf } from '../../src/gateway/exchange/rights-restriction.ts';
import { RawObject } from '../../src/json/json.ts';
import type { ListRights } from '../../src/policy/rights.ts';

export const LIMITS = { maxNameChars: 48, instructionsMaxChars: 1000 };

export function upstream(id: string, more: Partial<ViewUpstream> = {}): ViewUpstream {
  return {
    id,
    title: id,
    prefix: `${id}__`,
    rawUris: false,
    isRemote: false,
    includeTools: undefined,
    excludeTools: [],
    ...more,
  };
}

/** An upstream that is published as it is. */
export function bare(id: string, more: Partial<ViewUpstream> = {}): ViewUpstream {
  return upstream(id, { prefix: '', rawUris: true, ...more });
}

export function view(upstreams: readonly ViewUpstream[], more: Partial<View> = {}): View {
  return { id: '', upstreams, includeTools: undefined, excludeTools: [], renames: {}, ...more };
}

export function tool(name: string, more: object = {}): RawObject {
  return RawObject.of({ name, inputSchema: { type: 'object' }, ...more });
}

export function resource(uri: string): RawObject {
  return RawObject.of({ uri, name: 'r' });
}

export function template(uriTemplate: string): RawObject {
  return RawObject.of({ uriTemplate, name: 't' });
}

export function offer(more: Partial<Offer>): Offer {
  return { ...EMPTY_OFFER, revision: '2025-11-25', ...more };
}

export function catalogOf(shown: View, offers: Readonly<Record<string, Partial<Offer>>>): Catalog {
  return buildCatalog(shown, offersOf(offers), LIMITS);
}

/** Returns a function that makes the catalog of clients with certain rights. */
export function catalogsOf(shown: View, some: Readonly<Record<string, Partial<Offer>>>) {
  const offers = offersOf(some);
  const whole = buildCatalog(shown, offers, LIMITS);
  return (rights: ListRights | undefined): Catalog =>
    rights === undefined ? whole : restrictCatalog(whole, offers, restrictionOf(rights), LIMITS);
}

function offersOf(some: Readonly<Record<string, Partial<Offer>>>): ReadonlyMap<string, Offer> {
  return new Map(Object.entries(some).map(([id, members]) => [id, offer(members)]));
}

export function member(texts: readonly string[], key: string): unknown[] {
  return texts.map((text) => RawObject.parse(text).value(key));
}

/** Returns a list as clients of the last legacy revision get it. */
export function listOf(catalog: Catalog, list: ListName): readonly string[] {
  return listTexts(catalog, list, '2025-11-25');
}

/** Returns all lists as these clients get them. */
export function listsOf(catalog: Catalog): readonly (readonly string[])[] {
  return LIST_NAMES.map((list) => listOf(catalog, list));
}
