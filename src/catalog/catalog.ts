import { hash } from 'node:crypto';
import type { LimitName } from '../limits.ts';
import { RawObject } from '../json/json.ts';
import type { Revision } from '../protocol/revisions.ts';
import { type Callables, countNamed, fallbackOf, nameAll } from './callable.ts';
import { type Caching, narrower, UNCACHED } from './caching.ts';
import { quarantine, type Quarantined, type Repaired } from './item.ts';
import { isUriAt } from './items/revision-text.ts';
import { mergeCapabilities, mergeInstructions } from './merge.ts';
import { nameItems, type NamedItems, type Source, type Target, textsOf, toolTextsOf } from './names/named-items.ts';
import { prefixesOf, reservedFor } from './names/prefixes.ts';
import type { ListKind, Offer } from './offer.ts';
import type { ListName } from './page.ts';
import { Shared } from './shared.ts';
import {
  isListedBy,
  locateAll,
  locateResource,
  locateTemplate,
  type Resolution,
  type Resources,
} from './resources/resources.ts';
import type { View } from './view.ts';

/** The merged offers of one endpoint. An immutable snapshot: a change makes another one. */
export interface Catalog {
  readonly view: View;
  /** By published name, in the order of `lists.tools`. */
  readonly tools: ReadonlyMap<string, Target>;
  /** By published name, in the order of `lists.prompts`. */
  readonly prompts: ReadonlyMap<string, Target>;
  /** JSON text of each item on one line: config order, then the upstream's. See {@link listTexts} for the text of a revision. */
  readonly lists: Readonly<Record<ListName, readonly string[]>>;
  /** Of `initialize`; see {@link mergeCapabilities}. */
  readonly capabilities: RawObject;
  readonly instructions: string | undefined;
  /** How long what is listed here holds, and whether for everybody. */
  readonly caching: Caching;
  readonly quarantined: readonly Quarantined[];
  readonly repaired: readonly Repaired[];
  /** Equal in every process exactly when the lists are. */
  readonly digest: Readonly<Record<ListKind, string>>;
  /** The upstream that is asked about names and URIs which nobody lists. */
  readonly fallback: string | undefined;
  /** Whether the lists of an upstream without a prefix are unknown, so that any bare name might be one of its own. */
  readonly bareNamesUnknown: boolean;
  readonly callables: { readonly tools: Callables; readonly prompts: Callables };
  readonly resources: Resources;
  /** Lists by name and revision, made when they are first asked for. */
  readonly texts: Map<string, readonly string[]>;
}

export interface CatalogLimits {
  readonly maxNameChars: number;
  readonly instructionsMaxChars: number;
  /** Is called when a fixed bound is reached. */
  readonly onLimit?: (limit: LimitName) => void;
}

const DIGEST_CHARS = 16;

/** Of lists of texts or of their digests. Neither hold line breaks, so one list's end cannot be mistaken for another item. */
function digest(...lists: readonly (readonly string[])[]): string {
  return hash('sha256', lists.map((list) => list.join('\n')).join('\n\n'), 'base64url').slice(0, DIGEST_CHARS);
}

/**
 * Merges the offers of the view's upstreams. Never throws: an item that cannot be published is quarantined by name.
 *
 * @param offers by upstream id, the last good one for an upstream that is down; none for one that was never seen, for
 *   which no name can be reserved.
 */
export function buildCatalog(view: View, offers: ReadonlyMap<string, Offer>, limits: CatalogLimits): Catalog {
  const known = catalogs.get(view) ?? new Shared<Catalog>();
  catalogs.set(view, known);
  const parts = view.upstreams.map(({ id }) => idOf(offers.get(id)));
  return known.get(`${parts.join(' ')} ${idOf(limits)}`, () => build(view, offers, limits));
}

/** By view: many sessions with the same offers share a catalog. */
const catalogs = new WeakMap<View, Shared<Catalog>>();

const ids = new WeakMap<object, number>();
let lastId = 0;

/** Returns a number that no other object has; 0 for none. */
function idOf(object: object | undefined): number {
  if (object === undefined) return 0;
  const id = ids.get(object) ?? ++lastId;
  ids.set(object, id);
  return id;
}

/** Returns the number of tools that the catalog of these offers has, without making it. */
export function countTools(view: View, offers: ReadonlyMap<string, Offer>, limits: CatalogLimits): number {
  return countNamed(view, offers, limits.maxNameChars);
}

/**
 * Reads the items of one upstream and makes their texts as the view shows them. Catalogs then only collect them, so that the
 * first catalog of many upstreams does not do it all at once.
 */
export function prepareOffer(view: View, upstream: string, offer: Offer, limits: CatalogLimits): void {
  const viewed = view.upstreams.find(({ id }) => id === upstream);
  if (viewed === undefined) return;
  for (const kind of ['tool', 'prompt'] as const) textsOf(nameItems(kind, view, viewed, offer, limits.maxNameChars));
}

function build(view: View, offers: ReadonlyMap<string, Offer>, limits: CatalogLimits): Catalog {
  const tools = nameAll('tool', view, offers, limits.maxNameChars);
  const prompts = nameAll('prompt', view, offers, limits.maxNameChars);
  const resources = locateAll(view, offers, limits.onLimit);
  const unreadable = view.upstreams.flatMap(({ id }) =>
    (offers.get(id)?.unreadable ?? []).map(({ kind, position, name, why, limit }) => ({
      ...quarantine(id, kind, name ?? '', position, why),
      ...(limit === undefined ? {} : { limit }),
    })),
  );
  return {
    view,
    tools: tools.targets,
    prompts: prompts.targets,
    lists: {
      tools: tools.texts,
      prompts: prompts.texts,
      resources: resources.texts,
      resourceTemplates: resources.templateTexts,
    },
    capabilities: mergeCapabilities(view, offers),
    instructions: mergeInstructions(view, offers, limits.instructionsMaxChars),
    caching: cachingOf(view, offers),
    quarantined: [...tools.quarantined, ...prompts.quarantined, ...resources.quarantined, ...unreadable],
    repaired: [...tools.repaired, ...prompts.repaired, ...resources.repaired],
    digest: {
      tools: digest(tools.digests),
      prompts: digest(prompts.digests),
      resources: digest(resources.texts, resources.templateTexts),
    },
    fallback: fallbackOf(view),
    bareNamesUnknown: view.upstreams.some(({ id, prefix }) => prefix === '' && !offers.has(id)),
    callables: { tools, prompts },
    resources,
    texts: new Map(),
  };
}

/**
 * Returns a list in the words of a revision. Items that the clients of the revision cannot read in any form are not in it.
 * The array is the same for each call.
 */
export function listTexts(catalog: Catalog, list: ListName, revision: Revision): readonly string[] {
  const key = `${list} ${revision}`;
  let texts = catalog.texts.get(key);
  if (texts === undefined) {
    texts = textsAt(catalog, list, revision);
    catalog.texts.set(key, texts);
  }
  return texts;
}

function textsAt(catalog: Catalog, list: ListName, revision: Revision): readonly string[] {
  if (list === 'tools') return toolTextsAt(catalog, revision);
  if (list === 'resources') return resourceTextsAt(catalog.lists.resources, revision);
  return catalog.lists[list];
}

function toolTextsAt({ callables: { tools } }: Catalog, revision: Revision): readonly string[] {
  return tools.byUpstream.flatMap((named) => {
    const texts = toolTextsOf(named, revision);
    return named.items.flatMap(({ published }, position) => {
      // Of two items with one name, only the first is published.
      const isShown = published !== undefined && tools.targets.get(published.name) === published.target;
      return isShown ? (texts[position] ?? []) : [];
    });
  });
}

/**
 * Returns the parts of a list whose texts {@link listTexts} collects. {@link prepareTexts} makes those of one part, so that a
 * long list need not be made at once.
 */
export function partsOf(catalog: Catalog, list: ListName): readonly NamedItems[] {
  return list === 'tools' ? catalog.callables.tools.byUpstream : [];
}

export function prepareTexts(part: NamedItems, revision: Revision): void {
  toolTextsOf(part, revision);
}

function resourceTextsAt(texts: readonly string[], revision: Revision): readonly string[] {
  const readable = texts.filter((text) => isUriAt(revision, RawObject.parse(text).string('uri') ?? ''));
  return readable.length === texts.length ? texts : readable;
}

/** Returns the tool as its upstream lists it; undefined for one that it does not list. */
export function sourceOf(catalog: Catalog, tool: Target): Source | undefined {
  return catalog.callables.tools.sources.get(tool);
}

function cachingOf(view: View, offers: ReadonlyMap<string, Offer>): Caching {
  const all = view.upstreams.map(({ id }) => offers.get(id)?.caching ?? UNCACHED);
  return all.length === 0 ? UNCACHED : all.reduce(narrower);
}

/** A name that no upstream lists is guessed only where the guess cannot reach another upstream than the one that was meant. */
function resolveName(catalog: Catalog, callables: Callables, name: string): Target | undefined {
  const target = callables.targets.get(name);
  if (target !== undefined) return target;
  if (callables.hidden.has(name) || reservedFor(prefixesOf(catalog.view), '', name) !== undefined) return undefined;
  const app = catalog.bareNamesUnknown ? undefined : callables.apps.get(name);
  if (app !== undefined) return app;
  return catalog.fallback === undefined ? undefined : { upstream: catalog.fallback, name };
}

/**
 * Finds the tool of a published name. Besides published names, the bare name of a tool with a user interface is accepted where only one
 * upstream has it: the HTML of MCP Apps calls tools by the names their server knows.
 */
export function resolveTool(catalog: Catalog, name: string): Target | undefined {
  return resolveName(catalog, catalog.callables.tools, name);
}

export function resolvePrompt(catalog: Catalog, name: string): Target | undefined {
  return resolveName(catalog, catalog.callables.prompts, name);
}

/** Finds the upstream of a resource, for read, subscribe and unsubscribe. */
export function resolveResource(catalog: Catalog, uri: string): Resolution {
  return locateResource(catalog.resources, catalog.fallback, catalog.view.upstreams.length === 1, uri);
}

/**
 * Whether the one upstream of a resource lists it, or a template that its URI fits. Other URIs go to an upstream because they
 * carry its id, or because the view has a fallback.
 */
export function isListedResource(catalog: Catalog, uri: string): boolean {
  const owner = resolveResource(catalog, uri);
  return owner.kind === 'one' && isListedBy(catalog.resources, owner.upstream, owner.uri);
}

/** Finds the upstream that completes a `ref/resource`, whose `uri` is a template or a URI. */
export function resolveTemplate(catalog: Catalog, uriTemplate: string): Resolution {
  return locateTemplate(catalog.resources, uriTemplate) ?? resolveResource(catalog, uriTemplate);
}
