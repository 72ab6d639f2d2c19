import { hash } from 'node:crypto';
import type { RawObject } from '../json/json.ts';
import { type Callables, fallbackOf, nameAll, type Owner, prefixesOf, reservedFor, type Source } from './callable.ts';
import { type Caching, narrower, UNCACHED } from './caching.ts';
import { quarantine, type Quarantined } from './item.ts';
import { mergeCapabilities, mergeInstructions } from './merge.ts';
import type { ListKind, Offer } from './offer.ts';
import type { ListName } from './page.ts';
import { locateAll, locateResource, locateTemplate, type Resolution, type Resources } from './resources.ts';
import type { View } from './view.ts';

/** All that one endpoint offers, and who owns it. An immutable snapshot: a change makes another one. */
export interface Catalog {
  readonly view: View;
  /** By published name, in the order of `lists.tools`. */
  readonly tools: ReadonlyMap<string, Owner>;
  /** By published name, in the order of `lists.prompts`. */
  readonly prompts: ReadonlyMap<string, Owner>;
  /** JSON text of each item on one line: config order, then the upstream's. */
  readonly lists: Readonly<Record<ListName, readonly string[]>>;
  /** Of `initialize`; see {@link mergeCapabilities}. */
  readonly capabilities: RawObject;
  readonly instructions: string | undefined;
  /** How long what is listed here holds, and whether for everybody. */
  readonly caching: Caching;
  readonly quarantined: readonly Quarantined[];
  /** Equal in every process exactly when the lists are. */
  readonly digest: Readonly<Record<ListKind, string>>;
  /** The upstream that is asked about names and URIs which nobody lists. */
  readonly fallback: string | undefined;
  /** Whether an upstream without a prefix has not been seen yet, so that any bare name might be one of its own. */
  readonly bareNamesUnknown: boolean;
  /** Those texts of tools that are in the words of the modern era. */
  readonly modernTools: ReadonlySet<string>;
  readonly callables: { readonly tools: Callables; readonly prompts: Callables };
  readonly resources: Resources;
}

export interface CatalogLimits {
  readonly maxNameChars: number;
  readonly instructionsMaxChars: number;
}

const DIGEST_CHARS = 16;

/** Items hold no line breaks, so one list's end cannot be mistaken for another item. */
function digest(...lists: readonly (readonly string[])[]): string {
  return hash('sha256', lists.map((list) => list.join('\n')).join('\n\n'), 'base64url').slice(0, DIGEST_CHARS);
}

/**
 * Merges what the view's upstreams offer. Never throws: what cannot be offered is quarantined by name.
 *
 * @param offers by upstream id, the last good one for an upstream that is down; none for one that was never seen, for
 *   which no name can be reserved.
 */
export function buildCatalog(view: View, offers: ReadonlyMap<string, Offer>, limits: CatalogLimits): Catalog {
  const tools = nameAll('tool', view, offers, limits.maxNameChars);
  const prompts = nameAll('prompt', view, offers, limits.maxNameChars);
  const resources = locateAll(view, offers);
  const unreadable = view.upstreams.flatMap(({ id }) =>
    (offers.get(id)?.unreadable ?? []).map(({ kind, position, why }) => quarantine(id, kind, '', position, why)),
  );
  return {
    view,
    tools: tools.owners,
    prompts: prompts.owners,
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
    digest: {
      tools: digest(tools.texts),
      prompts: digest(prompts.texts),
      resources: digest(resources.texts, resources.templateTexts),
    },
    fallback: fallbackOf(view),
    bareNamesUnknown: view.upstreams.some(({ id, prefix }) => prefix === '' && !offers.has(id)),
    modernTools: modernTexts(tools),
    callables: { tools, prompts },
    resources,
  };
}

function modernTexts({ owners, sources, texts }: Callables): ReadonlySet<string> {
  const modern = [...owners.values()].map((owner) => sources.get(owner)?.isModern === true);
  return new Set(texts.filter((_, i) => modern[i]));
}

/** How the upstream lists this tool; undefined for one that it does not list. */
export function sourceOf(catalog: Catalog, tool: Owner): Source | undefined {
  return catalog.callables.tools.sources.get(tool);
}

function cachingOf(view: View, offers: ReadonlyMap<string, Offer>): Caching {
  const all = view.upstreams.map(({ id }) => offers.get(id)?.caching ?? UNCACHED);
  return all.length === 0 ? UNCACHED : all.reduce(narrower);
}

/** A name in nobody's list is guessed only where the guess cannot reach another upstream than the one that was meant. */
function resolveName(catalog: Catalog, callables: Callables, name: string): Owner | undefined {
  const owner = callables.owners.get(name);
  if (owner !== undefined) return owner;
  if (callables.hidden.has(name) || reservedFor(prefixesOf(catalog.view), '', name) !== undefined) return undefined;
  const app = catalog.bareNamesUnknown ? undefined : callables.apps.get(name);
  if (app !== undefined) return app;
  return catalog.fallback === undefined ? undefined : { upstream: catalog.fallback, name };
}

/**
 * Who runs a tool. Besides published names, the bare name of a tool with a user interface is accepted where only one
 * upstream has it: the HTML of MCP Apps calls tools by the names their server knows.
 */
export function resolveTool(catalog: Catalog, name: string): Owner | undefined {
  return resolveName(catalog, catalog.callables.tools, name);
}

export function resolvePrompt(catalog: Catalog, name: string): Owner | undefined {
  return resolveName(catalog, catalog.callables.prompts, name);
}

/** Who has a resource, for read, subscribe and unsubscribe. */
export function resolveResource(catalog: Catalog, uri: string): Resolution {
  return locateResource(catalog.resources, catalog.fallback, catalog.view.upstreams.length === 1, uri);
}

/** Who completes a `ref/resource`, whose `uri` is a template or a URI. */
export function resolveTemplate(catalog: Catalog, uriTemplate: string): Resolution {
  return locateTemplate(catalog.resources, uriTemplate) ?? resolveResource(catalog, uriTemplate);
}
