import { quarantine, readItem, type Quarantined } from './item.ts';
import type { Offer } from './offer.ts';
import { publishedText } from './publish.ts';
import { matchesTemplate, parseTemplate, type Matcher } from './template.ts';
import { hasScheme, isWeb, unpublishUri, uriToClient } from './uri.ts';
import type { View, ViewUpstream } from './view.ts';

/** Who has the resource of a URI. With several, none may be picked. */
export type Resolution =
  | { readonly kind: 'one'; readonly upstream: string; readonly uri: string }
  | { readonly kind: 'many'; readonly upstreams: readonly string[] }
  | { readonly kind: 'none' };

/** The resources and resource templates of a view: what is reached by a URI. */
export interface Resources {
  readonly texts: readonly string[];
  readonly templateTexts: readonly string[];
  /** Upstreams whose URIs are published with their id. */
  readonly prefixed: ReadonlySet<string>;
  /** Upstreams by the URIs, and by the templates, they list, both in the upstream's own form. */
  readonly listed: ReadonlyMap<string, readonly string[]>;
  readonly templates: ReadonlyMap<string, readonly string[]>;
  readonly matchers: readonly { readonly upstream: string; readonly matcher: Matcher }[];
  /** What is quarantined, as {@link spot}s. */
  readonly hidden: ReadonlySet<string>;
  readonly quarantined: readonly Quarantined[];
}

/** One upstream's URI: two may have the same. */
function spot(upstream: string, uri: string): string {
  return `${upstream} ${uri}`;
}

function addOwner(owners: Map<string, string[]>, key: string, upstream: string): void {
  const known = owners.get(key);
  if (known === undefined) owners.set(key, [upstream]);
  else if (!known.includes(upstream)) known.push(upstream);
}

/** Why an item with a sound URI or template cannot be shown in this view, whoever else lists the same. */
function misfit(
  kind: 'resource' | 'template',
  view: View,
  prefixed: ReadonlySet<string>,
  upstream: ViewUpstream,
  key: string,
): string | undefined {
  const named = unpublishUri(uriToClient(upstream, key));
  if (named !== undefined && named.id !== upstream.id && prefixed.has(named.id)) {
    return `reads like a resource of upstream "${named.id}"; rename that one, or give this one's URIs its id`;
  }
  if (kind === 'template' && view.upstreams.length > 1 && !hasScheme(key)) {
    return 'does not start with a scheme, so it would match the resources of others; use the endpoint of this upstream';
  }
  return undefined;
}

/**
 * Publishes every resource and template of a view.
 *
 * A template whose scheme is an expression, such as `{+url}`, cannot carry an id and would match what other upstreams
 * have: it is quarantined unless its upstream is the only one.
 */
export function locateAll(view: View, offers: ReadonlyMap<string, Offer>): Resources {
  const prefixed = new Set(view.upstreams.filter((upstream) => !upstream.rawUris).map(({ id }) => id));
  const listed = new Map<string, string[]>();
  const templates = new Map<string, string[]>();
  const matchers: { upstream: string; matcher: Matcher }[] = [];
  const hidden = new Set<string>();
  const quarantined: Quarantined[] = [];

  function locate(kind: 'resource' | 'template', owners: Map<string, string[]>): string[] {
    const texts: string[] = [];
    const holders = new Map<string, string>();
    for (const upstream of view.upstreams) {
      const { id } = upstream;
      const offer = offers.get(id);
      const items = (kind === 'resource' ? offer?.resources : offer?.templates) ?? [];
      for (const [position, item] of items.entries()) {
        const { key, fault } = readItem(kind, item);
        const why = fault ?? misfit(kind, view, prefixed, upstream, key);
        if (why !== undefined) {
          quarantined.push(quarantine(id, kind, key, position, why));
          hidden.add(spot(id, key));
          continue;
        }
        // Also when another upstream has the URI already: it is then ambiguous, and neither is picked.
        addOwner(owners, key, id);
        const matcher = kind === 'template' ? parseTemplate(key) : undefined;
        if (matcher !== undefined) matchers.push({ upstream: id, matcher });
        const published = uriToClient(upstream, key);
        const holder = holders.get(published);
        if (holder === undefined) {
          holders.set(published, id);
          texts.push(publishedText(kind, upstream, item));
        } else {
          const clash =
            holder === id
              ? 'is listed twice'
              : `is listed by upstream "${holder}" too, so neither can be read by it here`;
          quarantined.push(quarantine(id, kind, key, position, clash));
        }
      }
    }
    return texts;
  }

  const texts = locate('resource', listed);
  const templateTexts = locate('template', templates);
  return { texts, templateTexts, prefixed, listed, templates, matchers, hidden, quarantined };
}

function toResolution(upstreams: readonly string[], uri: string): Resolution {
  const [upstream, ...others] = upstreams;
  if (upstream === undefined) return { kind: 'none' };
  return others.length === 0 ? { kind: 'one', upstream, uri } : { kind: 'many', upstreams };
}

function byId(resources: Resources, uri: string): Resolution | undefined {
  const named = unpublishUri(uri);
  if (named === undefined || !resources.prefixed.has(named.id)) return undefined;
  return { kind: 'one', upstream: named.id, uri: named.uri };
}

/** Everyone whose listed URIs, or else whose templates, have this URI in the upstream's own form. */
function ownersOf(resources: Resources, uri: string): readonly string[] {
  const listed = resources.listed.get(uri);
  if (listed !== undefined) return listed;
  const fitting = new Set<string>();
  for (const { upstream, matcher } of resources.matchers) {
    if (!fitting.has(upstream) && matchesTemplate(matcher, uri)) fitting.add(upstream);
  }
  return [...fitting];
}

/**
 * By the id in the URI; else by who lists this URI as its own, which models copy from free text; else by whose templates
 * it fits; else by `fallback`, except that a web URI of one upstream is never shown to another.
 */
export function locateResource(
  resources: Resources,
  fallback: string | undefined,
  alone: boolean,
  uri: string,
): Resolution {
  let found = byId(resources, uri) ?? toResolution(ownersOf(resources, uri), uri);
  if (found.kind === 'none' && fallback !== undefined && (alone || !isWeb(uri))) {
    found = { kind: 'one', upstream: fallback, uri };
  }
  return found.kind === 'one' && resources.hidden.has(spot(found.upstream, found.uri)) ? { kind: 'none' } : found;
}

export function locateTemplate(resources: Resources, template: string): Resolution | undefined {
  if (byId(resources, template) !== undefined) return undefined;
  const owners = resources.templates.get(template);
  return owners === undefined ? undefined : toResolution(owners, template);
}
