import type { Callables } from './callable.ts';
import { type Catalog, type CatalogLimits, publishedParts } from './catalog.ts';
import { LIST_MEMBERS, type Offer } from './offer.ts';
import type { Resources } from './resources/resources.ts';
import type { Restriction } from './restriction.ts';

/**
 * Returns a catalog with the items that a restriction allows. The other items are unknown in it. Names, errors, capabilities and
 * instructions are those of a gateway without them, but published names stay those of the whole catalog.
 *
 * @param offers those that the whole catalog is made of.
 */
export function restrictCatalog(
  whole: Catalog,
  offers: ReadonlyMap<string, Offer>,
  restriction: Restriction,
  limits: CatalogLimits,
): Catalog {
  const tools = restrictCallables('tool', whole.callables.tools, restriction);
  const prompts = restrictCallables('prompt', whole.callables.prompts, restriction);
  const resources = restrictResources(whole.resources, restriction);
  const used = new Set([
    ...[...tools.targets.values(), ...prompts.targets.values()].map(({ upstream }) => upstream),
    ...[...resources.origins, ...resources.templateOrigins].map(({ upstream }) => upstream),
  ]);
  const view = {
    ...whole.view,
    // One that was never listed is shown, because its items are not known.
    upstreams: whole.view.upstreams.filter(
      ({ id }) => restriction.shows(id) && (used.has(id) || isEmpty(offers.get(id)) || restriction.isWhole(id)),
    ),
  };
  const shown = new Set(view.upstreams.map(({ id }) => id));
  const passesUnlisted = whole.view.upstreams.every(({ id }) => restriction.passesUnlisted(id));
  return {
    ...whole,
    ...publishedParts(view, offers, { tools, prompts, resources }, limits),
    // Else the answer of the fallback would tell an unknown name from a hidden one.
    fallback: passesUnlisted ? whole.fallback : undefined,
    callFallback: passesUnlisted ? whole.callFallback : undefined,
    resources: { ...resources, prefixed: new Set([...resources.prefixed].filter((id) => shown.has(id))) },
    restriction,
    whole,
    texts: new Map(),
  };
}

/** Returns whether an upstream lists nothing, or was never listed. */
function isEmpty(offer: Offer | undefined): boolean {
  return offer === undefined || LIST_MEMBERS.every((list) => offer[list].length === 0);
}

function restrictCallables(kind: 'tool' | 'prompt', all: Callables, restriction: Restriction): Callables {
  const targets = new Map(
    [...all.targets].filter(([, target]) => restriction.allowsCallable(kind, target, all.sources.get(target))),
  );
  const apps = new Map([...all.apps].filter(([, published]) => targets.has(published)));
  return { ...all, targets, apps };
}

function restrictResources(all: Resources, restriction: Restriction): Resources {
  const { allowsUri, allowsTemplate } = restriction;
  const { origins, templateOrigins } = all;
  const shown = <T>(items: readonly T[], of: Resources['origins'], isAllowed: typeof allowsUri) =>
    items.filter((_, position) => {
      const origin = of[position];
      return origin !== undefined && isAllowed(origin.upstream, origin.uri);
    });
  return {
    ...all,
    texts: shown(all.texts, origins, allowsUri),
    templateTexts: shown(all.templateTexts, templateOrigins, allowsTemplate),
    origins: shown(origins, origins, allowsUri),
    templateOrigins: shown(templateOrigins, templateOrigins, allowsTemplate),
    listed: allowedKeys(all.listed, allowsUri),
    templates: allowedKeys(all.templates, allowsTemplate),
  };
}

/** Returns the upstreams of each URI or template that are allowed. */
function allowedKeys(
  upstreamsByKey: ReadonlyMap<string, readonly string[]>,
  isAllowed: (upstream: string, uri: string) => boolean,
): ReadonlyMap<string, readonly string[]> {
  const allowed = new Map<string, readonly string[]>();
  for (const [key, upstreams] of upstreamsByKey) {
    const kept = upstreams.filter((upstream) => isAllowed(upstream, key));
    if (kept.length > 0) allowed.set(key, kept);
  }
  return allowed;
}
