import { hash } from 'node:crypto';
import type { LimitName } from '../limits.ts';
import type { RawObject } from '../json/json.ts';
import { featuresOf, isModernRevision, type Revision } from '../protocol/revisions.ts';
import type { Restriction } from './restriction.ts';
import { type Callables, callFallbackOf, fallbackOf, nameCallables } from './callable.ts';
import { type Caching, combineCaching, UNCACHED } from './caching.ts';
import { isRead, quarantine, type Quarantined, readItem, type Repaired } from './item.ts';
import { mergeCapabilities, mergeInstructions } from './merge.ts';
import {
  hasTexts,
  nameItems,
  type NamedItems,
  partEnd,
  type Source,
  type Target,
  textsOf,
  toolTextsOf,
} from './names/named-items.ts';
import { publishedName } from './names/name.ts';
import { prefixesOf, reservedFor } from './names/prefixes.ts';
import type { ListKind, Offer } from './offer.ts';
import type { ListName } from './page.ts';
import { publishedText } from './publish.ts';
import { idOf, WeakCache } from './weak-cache.ts';
import {
  isListedBy,
  publishResources,
  locateResource,
  locateTemplate,
  type Resolution,
  type Resources,
  toResolution,
  isHiddenAt,
  templateUpstreams,
} from './resources/resources.ts';
import { uriToClient } from './uri.ts';
import { upstreamIn, type View } from './view.ts';
import { getOrMake } from '../map-entries.ts';

/** The merged offers of one endpoint. An immutable snapshot: a changed offer leads to a new catalog. */
export interface Catalog {
  readonly view: View;
  /** By published name, in list order: config order, then the upstream's order. {@link listTexts} has the lists. */
  readonly tools: ReadonlyMap<string, Target>;
  readonly prompts: ReadonlyMap<string, Target>;
  /** The capabilities that `initialize` declares; see {@link mergeCapabilities}. */
  readonly capabilities: RawObject;
  readonly instructions: string | undefined;
  /** The time for which clients may cache the lists, and the clients that share them. */
  readonly caching: Caching;
  /** Pseudonyms of the endpoints of other gateways that the lists have come through. */
  readonly endpoints: readonly string[];
  readonly quarantined: readonly Quarantined[];
  readonly repaired: readonly Repaired[];
  /** Digests of the lists. Two processes have equal digests exactly when their lists are equal. */
  readonly digest: Readonly<Record<ListKind, string>>;
  /** The upstream that gets requests with URIs that no upstream lists. */
  readonly fallback: string | undefined;
  /** The upstream that gets requests with names that no upstream lists; none if its definitions are pinned. */
  readonly callFallback: string | undefined;
  /** True if the lists of an upstream without a prefix are unknown, so that any bare name might be one of its own. */
  readonly bareNamesUnknown: boolean;
  readonly callables: { readonly tools: Callables; readonly prompts: Callables };
  readonly resources: Resources;
  /** The rules that the catalog is restricted by; undefined if it has everything. */
  readonly restriction: Restriction | undefined;
  /** The catalog with everything that a restricted one is made of. */
  readonly whole: Catalog | undefined;
  /** Lists in the form of a revision, by list name and revision. Made on first use. */
  readonly texts: Map<string, readonly string[]>;
}

export interface CatalogLimits {
  readonly maxNameChars: number;
  readonly instructionsMaxChars: number;
  /** Runs when a fixed bound is reached. */
  readonly onLimit?: (limit: LimitName) => void;
}

const DIGEST_CHARS = 16;

/**
 * Returns one digest of several lists of texts, or of the digests of texts. Neither contain line breaks, so that the
 * separator between two lists cannot be mistaken for an item.
 */
function digest(...lists: readonly (readonly string[])[]): string {
  return hash('sha256', lists.map((list) => list.join('\n')).join('\n\n'), 'base64url').slice(0, DIGEST_CHARS);
}

/**
 * Merges the offers of the view's upstreams. Never throws: an item that cannot be published is quarantined and
 * recorded.
 *
 * @param offers by upstream id; of an upstream that is down, its last good offer. No names can be reserved for an
 *   upstream that has none.
 */
export function buildCatalog(view: View, offers: ReadonlyMap<string, Offer>, limits: CatalogLimits): Catalog {
  const known = getOrMake(catalogs, view, () => new WeakCache());
  const parts = view.upstreams.map(({ id }) => idOf(offers.get(id)));
  return known.get(`${parts.join(' ')} ${idOf(limits)}`, () => build(view, offers, limits));
}

/** Catalogs by view, so that sessions with the same offers share one. */
const catalogs = new WeakMap<View, WeakCache<Catalog>>();

/**
 * Reads the items of one upstream and makes their texts for a view, and caches both for later catalogs. Yields after each part of the work,
 * so that the caller can spread it over turns of the event loop. Does not yield for parts that were made before.
 */
export function* prepareOffer(
  view: View,
  upstream: string,
  offer: Offer,
  { maxNameChars }: CatalogLimits,
): Generator<undefined, void> {
  const viewed = upstreamIn(view, upstream);
  if (viewed === undefined) return;
  for (const kind of ['tool', 'prompt'] as const) {
    for (const named of nameItems(kind, view, viewed, offer, maxNameChars)) {
      if (hasTexts(named)) continue;
      textsOf(named);
      yield;
    }
  }
  const isModern = isModernRevision(offer.revision);
  const unread = offer.resources.filter((resource) => !isRead(resource, isModern));
  for (let start = 0; start < unread.length;) {
    const end = partEnd(unread, start);
    for (const resource of unread.slice(start, end)) {
      const { fault, item } = readItem('resource', resource, isModern);
      if (fault === undefined) publishedText('resource', viewed, item);
    }
    start = end;
    yield;
  }
}

/** The items of an endpoint, by kind. */
interface PublishedItems {
  readonly tools: Callables;
  readonly prompts: Callables;
  readonly resources: Resources;
}

/** Returns the parts of a catalog that its clients can see. They follow from the upstreams and items alone. */
export function publishedParts(
  view: View,
  offers: ReadonlyMap<string, Offer>,
  { tools, prompts, resources }: PublishedItems,
  limits: CatalogLimits,
): Pick<
  Catalog,
  'view' | 'tools' | 'prompts' | 'capabilities' | 'instructions' | 'caching' | 'endpoints' | 'digest' | 'callables'
> {
  return {
    view,
    tools: tools.targets,
    prompts: prompts.targets,
    capabilities: mergeCapabilities(view, offers),
    instructions: mergeInstructions(view, offers, limits.instructionsMaxChars),
    caching: cachingOf(view, offers),
    endpoints: [...new Set(view.upstreams.flatMap(({ id }) => offers.get(id)?.endpoints ?? []))],
    digest: {
      tools: digest(ofPublished(tools, (part) => textsOf(part).digests)),
      prompts: digest(ofPublished(prompts, (part) => textsOf(part).digests)),
      resources: digest(resources.texts, resources.templateTexts),
    },
    callables: { tools, prompts },
  };
}

function build(view: View, offers: ReadonlyMap<string, Offer>, limits: CatalogLimits): Catalog {
  const tools = nameCallables('tool', view, offers, limits.maxNameChars);
  const prompts = nameCallables('prompt', view, offers, limits.maxNameChars);
  const resources = publishResources(view, offers, limits.onLimit);
  const unreadable = view.upstreams.flatMap(({ id }) =>
    (offers.get(id)?.unreadable ?? []).map(({ kind, position, name, why, limit }) => ({
      ...quarantine(id, kind, name ?? '', position, why),
      ...(limit === undefined ? {} : { limit }),
    })),
  );
  const withheld = view.upstreams.flatMap((upstream) =>
    (offers.get(upstream.id)?.withheld ?? []).map(({ kind, key, why }, position) => ({
      ...quarantine(upstream.id, kind, key, position, why),
      published:
        kind === 'tool' || kind === 'prompt'
          ? publishedName(upstream, key, limits.maxNameChars)
          : uriToClient(upstream, key),
      isWithheld: true,
    })),
  );
  const refused = view.upstreams.flatMap(({ id }) => {
    const refusal = offers.get(id)?.refusal;
    if (refusal === undefined) return [];
    return [{ ...quarantine(id, 'tool', 'tools/list', 0, refusal.why), limit: refusal.limit, isRefusal: true }];
  });
  // A refused upstream that leads back here would be asked by the calls that it gets, again and again.
  const unlessRefused = (id: string | undefined) => (refused.some((one) => one.upstream === id) ? undefined : id);
  return {
    ...publishedParts(view, offers, { tools, prompts, resources }, limits),
    quarantined: [
      ...tools.quarantined,
      ...prompts.quarantined,
      ...resources.quarantined,
      ...unreadable,
      ...withheld,
      ...refused,
    ],
    repaired: [...tools.repaired, ...prompts.repaired, ...resources.repaired],
    fallback: unlessRefused(fallbackOf(view)),
    callFallback: unlessRefused(callFallbackOf(view)),
    bareNamesUnknown: view.upstreams.some(({ id, prefix }) => prefix === '' && !offers.has(id)),
    resources,
    restriction: undefined,
    whole: undefined,
    texts: new Map(),
  };
}

/** Returns a list in the form of a revision, without items that its clients cannot read: the same array on each call. */
export function listTexts(catalog: Catalog, list: ListName, revision: Revision): readonly string[] {
  const key = `${list} ${revision}`;
  return getOrMake(catalog.texts, key, () => textsAt(catalog, list, revision));
}

function textsAt({ callables, resources }: Catalog, list: ListName, revision: Revision): readonly string[] {
  switch (list) {
    case 'tools':
      return ofPublished(callables.tools, (part) => toolTextsOf(part, revision));
    case 'prompts':
      return ofPublished(callables.prompts, (part) => textsOf(part).texts);
    case 'resources':
      return resourceTextsAt(resources, revision);
    case 'resourceTemplates':
      return resources.templateTexts;
  }
}

/** Returns the values of published items in list order. @param valuesOf returns a value for each item of a part; undefined for none. */
function ofPublished(
  { parts, targets }: Callables,
  valuesOf: (part: NamedItems) => readonly (string | undefined)[],
): readonly string[] {
  return parts.flatMap((part) => {
    const values = valuesOf(part);
    return part.items.flatMap(({ published }, position) => {
      // Of two items with one name, only the first is published.
      const isPublished = published !== undefined && targets.get(published.name) === published.target;
      return isPublished ? (values[position] ?? []) : [];
    });
  });
}

/** Returns the parts of a list. {@link toolTextsOf} makes the texts of one, so that the work can be split. */
export function partsOf(catalog: Catalog, list: ListName): readonly NamedItems[] {
  return list === 'tools' ? catalog.callables.tools.parts : [];
}

function resourceTextsAt({ texts, modernTexts }: Resources, revision: Revision): readonly string[] {
  if (featuresOf(revision).anyUris || modernTexts.size === 0) return texts;
  return texts.filter((text) => !modernTexts.has(text));
}

/** Returns the tool as its upstream lists it; undefined if the upstream does not list it. */
export function sourceOf(catalog: Catalog, tool: Target): Source | undefined {
  return catalog.callables.tools.sources.get(tool);
}

/** Returns whether clients of this catalog may get messages of an upstream. */
export function isShown({ restriction, view }: Catalog, upstream: string): boolean {
  if (restriction === undefined) return true;
  return restriction.serves(upstream) && upstreamIn(view, upstream) !== undefined;
}

/** Returns a tool by its upstream and the upstream's own name; undefined if it is not in the catalog. */
export function sourceByName({ callables: { tools } }: Catalog, upstream: string, name: string): Source | undefined {
  for (const [target, source] of tools.sources) if (target.upstream === upstream && target.name === name) return source;
  return undefined;
}

function cachingOf(view: View, offers: ReadonlyMap<string, Offer>): Caching {
  const all = view.upstreams.map(({ id }) => offers.get(id)?.caching ?? UNCACHED);
  return all.length === 0 ? UNCACHED : all.reduce(combineCaching);
}

/** Finds the target of a published name. An unlisted one goes to the fallback, unless it may belong to another upstream. */
function resolveName(catalog: Catalog, callables: Callables, name: string): Target | undefined {
  const target = callables.targets.get(name);
  if (target !== undefined) return target;
  if (isTaken(catalog, callables, name)) return undefined;
  return catalog.callFallback === undefined ? undefined : { upstream: catalog.callFallback, name };
}

/** Returns whether no unlisted item may have a name, since it is that of an item that is left out, or of another upstream. */
function isTaken({ view }: Catalog, { hidden }: Callables, name: string): boolean {
  return hidden.has(name) || reservedFor(prefixesOf(view), '', name) !== undefined;
}

/**
 * Returns the published name of the tool that a client calls by some name. A tool with a user interface may be called by the upstream's
 * own name too, if no other upstream has such a tool. The HTML of MCP Apps calls tools so.
 */
export function publishedToolName(catalog: Catalog, name: string): string {
  const { tools } = catalog.callables;
  const published = tools.apps.get(name);
  if (published === undefined || tools.targets.has(name)) return name;
  return catalog.bareNamesUnknown || isTaken(catalog, tools, name) ? name : published;
}

/** Finds the tool that a client calls by a name, as {@link publishedToolName} understands it. */
export function resolveTool(catalog: Catalog, name: string): Target | undefined {
  return resolveName(catalog, catalog.callables.tools, publishedToolName(catalog, name));
}

/** Finds the prompt of a published name. */
export function resolvePrompt(catalog: Catalog, name: string): Target | undefined {
  return resolveName(catalog, catalog.callables.prompts, name);
}

/** Returns whether an upstream lists the prompt of a published name. Other names go to an upstream because the view has a fallback. */
export function isListedPrompt(catalog: Catalog, name: string): boolean {
  const target = resolvePrompt(catalog, name);
  return target !== undefined && catalog.callables.prompts.sources.has(target);
}

/** Finds the upstream of a resource, for read, subscribe and unsubscribe. */
export function resolveResource(catalog: Catalog, uri: string): Resolution {
  const { resources, fallback, view, restriction } = catalog;
  const found = locateResource(resources, fallback, view.upstreams.length === 1, uri);
  const allowed =
    restriction === undefined
      ? asPublished(view, found, uri)
      : permitted(view, found, uri, restriction.allowsUri, restriction.allowsUpdates);
  // Of several upstreams that have the URI, one may be left.
  if (allowed.kind === 'one' && isHiddenAt(resources, allowed.upstream, allowed.uri)) return { kind: 'none' };
  if (restriction === undefined || found.kind === 'none') return allowed;
  // The URI contains the id of its upstream.
  if (found.kind === 'one' && found.uri !== uri) return allowed;
  const isUsable = (upstream: string) => restriction.allowsUpdates(upstream, uri);
  if (upstreamsOf(allowed).some((id) => isUsable(id) || isPublishedAs(view, id, uri))) return allowed;
  // A listed resource that the client may not use hides no template that it may use.
  const byTemplate = templateUpstreams(resources, uri).filter(isUsable);
  return byTemplate.length > 0 ? asPublished(view, toResolution(byTemplate, uri), uri) : allowed;
}

function upstreamsOf(found: Resolution): readonly string[] {
  return found.kind === 'one' ? [found.upstream] : found.kind === 'many' ? found.upstreams : [];
}

/**
 * Returns the resolution of a URI or template that several upstreams have: those whose lists have it in this form, if there are any. It then names
 * what the client sees, though a text of another upstream may contain it too.
 */
function asPublished(view: View, found: Resolution, uri: string): Resolution {
  if (found.kind !== 'many') return found;
  const publishers = found.upstreams.filter((id) => isPublishedAs(view, id, uri));
  return publishers.length === 0 ? found : toResolution(publishers, uri);
}

/** Returns whether the lists of a view have the resources of an upstream by its own URIs. */
export function isPublishedAs(view: View, id: string, uri: string): boolean {
  const upstream = upstreamIn(view, id);
  return upstream !== undefined && uriToClient(upstream, uri) === uri;
}

type IsAllowed = (upstream: string, own: string) => boolean;

/**
 * Returns the part of a resolution that a restriction allows.
 *
 * @param isUsable also without further scopes: what a client may not use yet makes nothing ambiguous that it may use.
 */
function permitted(view: View, found: Resolution, uri: string, isAllowed: IsAllowed, isUsable: IsAllowed): Resolution {
  const own = found.kind === 'one' ? found.uri : uri;
  const remaining = upstreamsOf(found).filter((upstream) => isAllowed(upstream, own));
  // A URI names the upstream whose list has it in this form, also if only further scopes open it.
  const allowed = upstreamsOf(asPublished(view, toResolution(remaining, own), own));
  const usable = allowed.length > 1 ? allowed.filter((upstream) => isUsable(upstream, own)) : [];
  return toResolution(usable.length > 0 ? usable : allowed, own);
}

/**
 * Returns whether exactly one upstream has the resource, and lists it or a template that its URI matches. Other URIs go
 * to an upstream because they contain its id, or because the view has a fallback.
 */
export function isListedResource(catalog: Catalog, uri: string): boolean {
  const resolution = resolveResource(catalog, uri);
  return resolution.kind === 'one' && isListedBy(catalog.resources, resolution.upstream, resolution.uri);
}

/** Finds the upstream that completes a `ref/resource`, whose `uri` is a template or a URI. */
export function resolveTemplate(catalog: Catalog, uriTemplate: string): Resolution {
  const { resources, restriction, view } = catalog;
  const located = locateTemplate(resources, uriTemplate);
  if (located === undefined) return resolveResource(catalog, uriTemplate);
  if (restriction === undefined) return asPublished(view, located, uriTemplate);
  return permitted(view, located, uriTemplate, restriction.allowsTemplate, restriction.allowsCompletion);
}
