import { type Catalog, buildCatalog } from '../../src/catalog/catalog.ts';
import { EMPTY_OFFER, type Offer } from '../../src/catalog/offer.ts';
import type { View, ViewUpstream } from '../../src/catalog/view.ts';
import { RawObject } from '../../src/json/json.ts';

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
  return buildCatalog(shown, new Map(Object.entries(offers).map(([id, some]) => [id, offer(some)])), LIMITS);
}

export function member(texts: readonly string[], key: string): unknown[] {
  return texts.map((text) => RawObject.parse(text).value(key));
}
