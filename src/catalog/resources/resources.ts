import { type LimitName, LIMITS } from '../../limits.ts';
import { isModernRevision } from '../../protocol/revisions.ts';
import { quarantine, readItem, repairOf, type Quarantined, type Repaired } from '../item.ts';
import type { Offer } from '../offer.ts';
import { shownText } from '../../peer-text.ts';
import type { RawObject } from '../../json/json.ts';
import { publishedText } from '../publish.ts';
import { disguisedUri, hasScheme, isWeb, unpublishUri, uriToClient } from '../uri.ts';
import type { View, ViewUpstream } from '../view.ts';
import { TemplateIndex } from './template-index.ts';
import { hasLongHost } from './uri-form.ts';
import { WithheldUris } from './withheld-uris.ts';
import { getOrMake } from '../../map-entries.ts';

/** The upstreams that have the resource of a URI. If there are several, the request fails. */
export type Resolution =
  | { readonly kind: 'one'; readonly upstream: string; readonly uri: string }
  | { readonly kind: 'many'; readonly upstreams: readonly string[] }
  | { readonly kind: 'none' };

/** A listed resource or template: its upstream, and its URI or template in the upstream's own form. */
interface Origin {
  readonly upstream: string;
  readonly uri: string;
}

/** The resources and resource templates of a view. */
export interface Resources {
  readonly texts: readonly string[];
  readonly templateTexts: readonly string[];
  /** Texts of resources that clients before 2026-07-28 cannot read. */
  readonly modernTexts: ReadonlySet<string>;
  /** The upstream and its own form of the URI or template of each text, at the same positions. */
  readonly origins: readonly Origin[];
  readonly templateOrigins: readonly Origin[];
  /** Ids of the upstreams whose URIs are published with their id. */
  readonly prefixed: ReadonlySet<string>;
  /** Ids of upstreams by the URIs and templates that they list, in the upstream's own form. */
  readonly listed: ReadonlyMap<string, readonly string[]>;
  readonly templates: ReadonlyMap<string, readonly string[]>;
  readonly index: TemplateIndex;
  /** Keys of quarantined items, made by {@link resourceKey}. */
  readonly hidden: ReadonlySet<string>;
  /** What the lock withholds, by the id of its upstream. */
  readonly withheld: ReadonlyMap<string, WithheldUris>;
  /** Ids of upstreams that the lock refuses, or that must be listed before it can judge them. */
  readonly refused: ReadonlySet<string>;
  readonly quarantined: readonly Quarantined[];
  readonly repaired: readonly Repaired[];
}

/** Returns the key of a URI at one upstream, since two upstreams may have the same URI. */
function resourceKey(upstream: string, uri: string): string {
  return `${upstream} ${uri}`;
}

function addUpstream(upstreamsByKey: Map<string, string[]>, key: string, upstream: string): void {
  const known = getOrMake(upstreamsByKey, key, () => []);
  if (!known.includes(upstream)) known.push(upstream);
}

/** Returns the reason why a valid item cannot be published in this view, whether or not other upstreams list it too. */
function viewFault(
  kind: 'resource' | 'template',
  view: View,
  prefixed: ReadonlySet<string>,
  upstream: ViewUpstream,
  key: string,
): string | undefined {
  if (!upstream.rawUris && disguisedUri(key) !== undefined) {
    return 'has blanks or unseen characters before the end of its scheme, which readers leave out';
  }
  const named = unpublishUri(uriToClient(upstream, key));
  if (named !== undefined && named.id !== upstream.id && prefixed.has(named.id)) {
    return `reads like a resource of upstream "${named.id}"; rename that one, or give this one's URIs its id`;
  }
  if (kind === 'template' && view.upstreams.length > 1 && !hasScheme(key)) {
    return 'does not start with a scheme, so it would match the resources of others; use the endpoint of this upstream';
  }
  return undefined;
}

/** Returns whether clients before 2026-07-28 can read a URI in a list. */
function isReadableUrl(uri: string): boolean {
  return !hasLongHost(uri) && URL.canParse(uri);
}

/** Returns the record of a resource that is left out for clients before 2026-07-28. */
function urlRepair(upstream: string, uri: string): Repaired {
  const leftOut = ['the whole resource (for clients before 2026-07-28, which read URLs only)'];
  return { upstream, kind: 'resource', name: shownText(uri), leftOut, cleanedTexts: 0 };
}

/**
 * Publishes the resources and templates of a view.
 *
 * A template whose scheme is an expression, such as `{+url}`, cannot contain an id and would match resources of other
 * upstreams. It is quarantined unless its upstream is the only one of the view.
 */
export function publishResources(
  view: View,
  offers: ReadonlyMap<string, Offer>,
  onLimit?: (limit: LimitName) => void,
): Resources {
  const prefixed = new Set(view.upstreams.filter((upstream) => !upstream.rawUris).map(({ id }) => id));
  const listed = new Map<string, string[]>();
  const templates = new Map<string, string[]>();
  const indexed: { upstream: string; template: string }[] = [];
  const modernTexts = new Set<string>();
  const hidden = new Set<string>();
  const quarantined: Quarantined[] = [];
  const repaired: Repaired[] = [];

  function firstTemplates(id: string, all: readonly RawObject[]): readonly RawObject[] {
    const most = LIMITS.templatesPerUpstream;
    if (all.length <= most) return all;
    const why = `and ${all.length - most - 1} more are beyond the ${most} templates that one upstream may have`;
    quarantined.push({ ...quarantine(id, 'template', '', most, why), limit: 'templatesPerUpstream' });
    return all.slice(0, most);
  }

  function publish(
    kind: 'resource' | 'template',
    upstreamsByKey: Map<string, string[]>,
  ): { readonly texts: string[]; readonly origins: Origin[] } {
    const texts: string[] = [];
    const origins: Origin[] = [];
    const publisherByUri = new Map<string, string>();
    for (const upstream of view.upstreams) {
      const { id } = upstream;
      const offer = offers.get(id);
      const isModern = isModernRevision(offer?.revision);
      const items = kind === 'resource' ? (offer?.resources ?? []) : firstTemplates(id, offer?.templates ?? []);
      for (const [position, raw] of items.entries()) {
        const reading = readItem(kind, raw, isModern);
        const { key, fault, item } = reading;
        const why = fault ?? viewFault(kind, view, prefixed, upstream, key);
        if (why !== undefined) {
          quarantined.push({ ...quarantine(id, kind, key, position, why), published: uriToClient(upstream, key) });
          hidden.add(resourceKey(id, key));
          continue;
        }
        // Added even if another upstream has the URI already: it is then ambiguous, and requests for it fail.
        addUpstream(upstreamsByKey, key, id);
        if (kind === 'template') indexed.push({ upstream: id, template: key });
        const published = uriToClient(upstream, key);
        const publisher = publisherByUri.get(published);
        if (publisher !== undefined) {
          const shared = `is listed by upstream "${publisher}" too, so neither can be read by it here`;
          const clash = publisher === id ? 'is listed twice' : shared;
          quarantined.push(quarantine(id, kind, key, position, clash));
          continue;
        }
        publisherByUri.set(published, id);
        const text = publishedText(kind, upstream, item);
        texts.push(text);
        origins.push({ upstream: id, uri: key });
        const repair = repairOf(id, kind, reading);
        if (repair !== undefined) repaired.push(repair);
        if (kind === 'resource' && !isReadableUrl(published)) {
          modernTexts.add(text);
          repaired.push(urlRepair(id, key));
        }
      }
    }
    return { texts, origins };
  }

  const { texts, origins } = publish('resource', listed);
  const { texts: templateTexts, origins: templateOrigins } = publish('template', templates);
  // A wrong entry does not hide another one with its URI.
  if (hidden.size > 0) {
    for (const { upstream, uri } of [...origins, ...templateOrigins]) hidden.delete(resourceKey(upstream, uri));
  }
  const index = new TemplateIndex(indexed, onLimit);
  return {
    texts,
    templateTexts,
    modernTexts,
    origins,
    templateOrigins,
    prefixed,
    listed,
    templates,
    index,
    hidden,
    ...withheldResources(view, offers, onLimit),
    quarantined,
    repaired,
  };
}

/** Returns what the lock withholds. */
function withheldResources(
  view: View,
  offers: ReadonlyMap<string, Offer>,
  onLimit?: (limit: LimitName) => void,
): Pick<Resources, 'withheld' | 'refused'> {
  const withheld = new Map<string, WithheldUris>();
  const refused = new Set<string>();
  for (const { id, onChange } of view.upstreams) {
    const offer = offers.get(id);
    if (onChange === 'refuse' && (offer === undefined || offer.isRefused === true)) refused.add(id);
    const keysOf = (wanted: 'resource' | 'template') =>
      (offer?.withheld ?? []).filter(({ kind }) => kind === wanted).map(({ key }) => key);
    const [uris, templates] = [keysOf('resource'), keysOf('template')];
    if (uris.length + templates.length > 0) withheld.set(id, new WithheldUris(uris, templates, onLimit));
  }
  return { withheld, refused };
}

/**
 * Returns whether the lock withholds a resource: its upstream is refused, or its URI may be a withheld one and is not listed itself. If
 * another template matches too, the server alone knows by which of them it reads the resource.
 */
function isWithheld(resources: Resources, upstream: string, uri: string): boolean {
  if (resources.refused.has(upstream)) return true;
  const withheld = resources.withheld.get(upstream);
  if (withheld === undefined) return false;
  if (withheld.has(uri)) return true;
  return resources.listed.get(uri)?.includes(upstream) !== true && withheld.mayContain(uri);
}

/** Returns whether the lock withholds the resource of a published URI, or of a URI as an upstream of the view lists it. */
export function isWithheldUri(resources: Resources, upstreams: readonly ViewUpstream[], uri: string): boolean {
  const named = resolveById(resources, uri);
  if (named?.kind === 'one') {
    const { upstream, uri: own } = named;
    return isWithheld(resources, upstream, own);
  }
  return upstreams.some(({ id }) => resources.withheld.get(id)?.has(uri) === true);
}

export function toResolution(upstreams: readonly string[], uri: string): Resolution {
  const [upstream, ...others] = upstreams;
  if (upstream === undefined) return { kind: 'none' };
  return others.length === 0 ? { kind: 'one', upstream, uri } : { kind: 'many', upstreams };
}

function resolveById(resources: Resources, uri: string): Resolution | undefined {
  const named = unpublishUri(uri);
  if (named === undefined || !resources.prefixed.has(named.id)) return undefined;
  return { kind: 'one', upstream: named.id, uri: named.uri };
}

/** Returns the upstreams with a template that a URI matches, unless the resource is hidden there. */
export function templateUpstreams(resources: Resources, uri: string): readonly string[] {
  return [...resources.index.find(uri)].filter((upstream) => !isHiddenAt(resources, upstream, uri));
}

/** Returns the upstreams that list this URI, in the upstream's own form, or else those with a matching template. */
function upstreamsOf(resources: Resources, uri: string): readonly string[] {
  const listed = resources.listed.get(uri);
  if (listed !== undefined) return listed;
  return [...resources.index.find(uri)];
}

/** Returns whether the upstream lists this URI, in its own form, or a template that the URI matches. */
export function isListedBy(resources: Resources, upstream: string, uri: string): boolean {
  return resources.listed.get(uri)?.includes(upstream) === true || resources.index.find(uri).has(upstream);
}

/**
 * Finds the upstream of a URI. The first rule that applies decides:
 *
 * 1. the id in the URI;
 * 2. the upstreams that list the URI in their own form, since models copy URIs from free text;
 * 3. the upstreams with a template that matches;
 * 4. `fallback`, but a web URI only if that is the only upstream.
 */
export function locateResource(
  resources: Resources,
  fallback: string | undefined,
  isOnlyUpstream: boolean,
  uri: string,
): Resolution {
  let found = resolveById(resources, uri) ?? toResolution(upstreamsOf(resources, uri), uri);
  if (found.kind === 'none' && fallback !== undefined && (isOnlyUpstream || !isWeb(uri))) {
    found = { kind: 'one', upstream: fallback, uri };
  }
  if (found.kind !== 'one') return found;
  return isHiddenAt(resources, found.upstream, found.uri) ? { kind: 'none' } : found;
}

/** Returns whether clients must not use a resource of an upstream, by its own URI: it is quarantined, or the lock withholds it. */
export function isHiddenAt(resources: Resources, upstream: string, own: string): boolean {
  return resources.hidden.has(resourceKey(upstream, own)) || isWithheld(resources, upstream, own);
}

/** Finds the upstream that lists a URI template, by the id in it if it contains one. Returns undefined if no upstream lists it. */
export function locateTemplate(resources: Resources, template: string): Resolution | undefined {
  const named = resolveById(resources, template);
  if (named?.kind === 'one') {
    const { upstream, uri } = named;
    const isListed = resources.templates.get(uri)?.includes(upstream) === true && !resources.refused.has(upstream);
    return isListed ? named : undefined;
  }
  const upstreams = resources.templates.get(template);
  return upstreams === undefined ? undefined : toResolution(upstreams, template);
}
