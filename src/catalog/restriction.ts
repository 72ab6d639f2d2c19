import type { Source, Target } from './names/named-items.ts';

/** The items of a catalog that its clients may use, also with scopes that they lack and may get. All answers but that of `allowsUpdateNow` depend on the item alone, and on nothing that changes with time. */
export interface Restriction {
  /** Equal for restrictions that allow the same. */
  readonly content: string;
  /** Returns whether the clients may use anything of an upstream, whatever it offers. */
  readonly shows: (upstream: string) => boolean;
  /** Like {@link shows}, without what the clients may use only with scopes that they lack: they get no messages of such an upstream. */
  readonly serves: (upstream: string) => boolean;
  /** Returns whether the clients may use everything of an upstream, whatever it offers. */
  readonly isWhole: (upstream: string) => boolean;
  /** Returns whether the clients may name what an upstream does not list: the answer tells them of nothing that is denied. */
  readonly passesUnlisted: (upstream: string) => boolean;
  /** @param source the item as its upstream lists it; undefined if it does not list it. */
  readonly allowsCallable: (kind: 'tool' | 'prompt', target: Target, source: Source | undefined) => boolean;
  /** @param uri in the upstream's own form. */
  readonly allowsUri: (upstream: string, uri: string) => boolean;
  /** Like {@link allowsUri}, without what the clients may use only with scopes that they lack. */
  readonly allowsUpdates: (upstream: string, uri: string) => boolean;
  /** Like {@link allowsUpdates}, at this moment: a condition may read the time. */
  readonly allowsUpdateNow: (upstream: string, uri: string) => boolean;
  /** @param template in the upstream's own form. */
  readonly allowsTemplate: (upstream: string, template: string) => boolean;
  /** Like {@link allowsTemplate}, without what the clients may use only with scopes that they lack. */
  readonly allowsCompletion: (upstream: string, template: string) => boolean;
}

/** Returns whether two restrictions allow the same. Undefined allows everything. */
export function isSameRestriction(one: Restriction | undefined, other: Restriction | undefined): boolean {
  return one === other || (one !== undefined && one.content === other?.content);
}
