import type { ItemKind } from '../catalog/items/kind.ts';
import { matchesGlob } from '../catalog/names/glob.ts';
import { HINTS, type Hints, type RuleConfig } from './access-config.ts';
import type { ReadArguments } from './conditions/arguments.ts';
import { FAILS, FALSE, type Outcomes, TRUE } from './conditions/outcomes.ts';
import { canonicalUri, spellingsOf } from '../catalog/resources/uri-form.ts';
import type { Variables, When } from './conditions/when.ts';

/** An item of an upstream, by the upstream's own name. */
export interface Item {
  readonly kind: ItemKind;
  readonly upstream: string;
  /** The name of a tool or prompt, a URI, or a URI template. */
  readonly name: string;
  readonly hints: Hints;
}

/** Hints of a tool that declares none, by the specification. */
export const NO_HINTS: Hints = { readOnly: false, destructive: true, idempotent: false, openWorld: true };

/** Returns an item that declares no hints. */
export function plainItem(kind: ItemKind, upstream: string, name: string): Item {
  return { kind, upstream, name, hints: NO_HINTS };
}

/** A rule that is ready to be evaluated. */
export interface Rule {
  readonly config: RuleConfig;
  readonly effect: 'allow' | 'deny';
  readonly when: When | undefined;
  /** Globs over URIs in canonical form. */
  readonly canonicalResources: readonly string[] | undefined;
}

/** The part of a decision that is the same for all items. */
export interface Subject {
  readonly endpoint: string;
  readonly identity: Pick<Variables, 'principal' | 'claims' | 'client'>;
}

/** The rules that can decide about one item for one subject. They are found once for all calls of the item. */
export interface ItemRules {
  readonly subject: Subject;
  readonly item: Item;
  /** The rules that apply to the upstream, deny rules first. */
  readonly all: readonly Rule[];
  /** The rules about the item, in the same order, with the outcomes of their conditions before a call. */
  readonly about: ReadonlyMap<Rule, Outcomes>;
  /** The rules about the item whose conditions some call can make true. */
  readonly deciding: readonly Rule[];
  /** Names of the members of the arguments that the conditions of these rules read; undefined if the arguments decide nothing. */
  readonly members: ReadonlySet<string> | undefined;
}

/** The facts of a call that a list does not know. */
export interface CallFacts {
  /** The arguments, or the reason why they have no single reading. Undefined if they are not known, as of a completion. */
  readonly arguments: ReadArguments | string | undefined;
  readonly now: Date;
}

/** The part of one rule in a decision. */
export interface Reason {
  readonly rule: string;
  readonly file: string;
  readonly line: number;
  readonly effect: 'allow' | 'deny';
  /** `other` if the rule is about other items; else the outcome of its condition. */
  readonly outcome: 'other' | 'true' | 'false' | 'fails' | 'depends on the call';
}

/** A decision. `depends` is possible only where the arguments or the time are not known, which decide then. */
export interface Decision {
  readonly effect: 'allow' | 'deny' | 'depends';
  /** The rule that decides; undefined if none allows the item. */
  readonly rule: RuleConfig | undefined;
  readonly why: string;
  /** Rules whose conditions failed. */
  readonly failed: readonly RuleConfig[];
}

/** Finds the rules about an item. @param all the rules that apply to its upstream, deny rules first. */
export function itemRules(subject: Subject, item: Item, all: readonly Rule[]): ItemRules {
  const { endpoint, identity } = subject;
  const about = new Map<Rule, Outcomes>();
  let members: Set<string> | undefined;
  for (const rule of all) {
    if (!isAbout(rule, item)) continue;
    const { when } = rule;
    const outcomes = when === undefined ? TRUE : when.outcomes(variablesOf(endpoint, identity, item));
    about.set(rule, outcomes);
    if (when?.readsArgs === true && !isKnown(outcomes)) members = new Set([...(members ?? []), ...when.members]);
  }
  const deciding = [...about].filter(([, outcomes]) => outcomes !== FALSE).map(([rule]) => rule);
  return { subject, item, all, about, deciding, members };
}

/**
 * Decides whether a subject may use an item: for lists, for calls and for explanations. A deny rule wins; else one allow rule suffices;
 * else the item is denied. A condition that fails denies: its deny rule applies, and its allow rule does not.
 *
 * @param call undefined for a list.
 * @param trace gets a reason for each rule in the order of evaluation. Then all rules are evaluated.
 */
export function decide(rules: ItemRules, call?: CallFacts, trace?: Reason[]): Decision {
  const failed: RuleConfig[] = [];
  let denying: RuleConfig | undefined;
  let mayBeDenied = false;
  let allowing: RuleConfig | undefined;
  let mayAllow: RuleConfig | undefined;
  for (const rule of trace === undefined ? rules.deciding : rules.all) {
    const { config, effect } = rule;
    const before = rules.about.get(rule);
    if (before === undefined) {
      trace?.push(reasonOf(rule, 'other'));
      continue;
    }
    const outcomes = call === undefined || isKnown(before) ? before : outcomesOf(rule, rules, call);
    if (outcomes === FAILS) failed.push(config);
    trace?.push(reasonOf(rule, named(outcomes)));
    if (effect === 'deny') {
      if ((outcomes & FALSE) === 0) denying ??= config;
      else if (outcomes !== FALSE) mayBeDenied = true;
    } else if (outcomes === TRUE) allowing ??= config;
    else if ((outcomes & TRUE) !== 0) mayAllow ??= config;
    // Deny rules come first.
    if (trace === undefined && (denying ?? allowing) !== undefined) break;
  }
  if (denying !== undefined) return { effect: 'deny', rule: denying, why: `rule "${denying.name}" denies it`, failed };
  const rule = allowing ?? mayAllow;
  if (rule === undefined) return { effect: 'deny', rule: undefined, why: 'no rule allows it', failed };
  if (allowing !== undefined && !mayBeDenied) {
    return { effect: 'allow', rule, why: `rule "${rule.name}" allows it`, failed };
  }
  return { effect: 'depends', rule, why: 'the arguments or the time of the call decide', failed };
}

function reasonOf({ config, effect }: Rule, outcome: Reason['outcome']): Reason {
  return { rule: config.name, file: config.place.file, line: config.place.line, effect, outcome };
}

function named(outcomes: Outcomes): Reason['outcome'] {
  if (outcomes === TRUE) return 'true';
  if (outcomes === FALSE) return 'false';
  return outcomes === FAILS ? 'fails' : 'depends on the call';
}

/** Returns whether a rule is about an item, whatever its condition. */
export function isAbout(rule: Rule, { kind, name, hints }: Item): boolean {
  const { tools, prompts, resources, hints: wanted } = rule.config;
  const isGeneral = tools === undefined && prompts === undefined && resources === undefined;
  switch (kind) {
    case 'tool':
      return (isGeneral || matchesAny(tools, name)) && hasHints(hints, wanted);
    case 'prompt':
      return isGeneral || matchesAny(prompts, name);
    case 'resource':
      return isGeneral || matchesUri(rule, name);
    case 'template':
      return isGeneral || matchesTemplate(rule, name);
  }
}

function matchesAny(globs: readonly string[] | undefined, name: string): boolean {
  return globs?.some((glob) => matchesGlob(glob, name)) ?? false;
}

function hasHints(hints: Hints, wanted: Readonly<Partial<Hints>>): boolean {
  return HINTS.every((name) => wanted[name] === undefined || wanted[name] === hints[name]);
}

/**
 * Returns whether a rule is about a URI. A deny rule is about every spelling of its URIs. An allow rule must match both the spelling that
 * is sent and the canonical one. So an odd spelling slips neither past a deny rule nor into an allow rule.
 */
function matchesUri({ effect, config: { resources = [] }, canonicalResources = [] }: Rule, uri: string): boolean {
  if (effect === 'allow') {
    const canonical = canonicalUri(uri);
    return canonical !== undefined && matchesAny(resources, uri) && matchesAny(canonicalResources, canonical);
  }
  // A slash at the end is not in the canonical form, and may be in the glob.
  const forms = spellingsOf(uri);
  if (forms === undefined) return resources.length > 0;
  // The first segment of a URI is in lower case; a glob with a wildcard there keeps its case.
  const isFolded = (glob: string) => /^(?:[^/:]*:\/)?[^/]*[*?]/.test(glob);
  return (
    matchesAny(resources, uri) ||
    forms.some((form) => matchesAny(canonicalResources, form)) ||
    canonicalResources.some((glob) => {
      return isFolded(glob) && forms.some((form) => matchesGlob(glob.toLowerCase(), form.toLowerCase()));
    })
  );
}

/** Returns the text of a template or glob before its first variable part. */
function literalStart(text: string): string {
  return text.replace(/[{*?].*$/s, '');
}

/**
 * Returns whether a rule is about a template. An allow rule is if it may be about one of its URIs. A deny rule is if it is about all of
 * them, in every spelling.
 */
function matchesTemplate(
  { effect, config: { resources = [] }, canonicalResources = [] }: Rule,
  template: string,
): boolean {
  const start = literalStart(template);
  if (effect === 'deny') {
    const forms = spellingsOf(start)?.filter((form) => form.endsWith('/') === start.endsWith('/')) ?? [];
    const isDenied = (glob: string, text: string) => glob.endsWith('*') && matchesGlob(glob, text);
    return (
      resources.some((glob) => isDenied(glob, start)) ||
      canonicalResources.some((glob) => forms.some((form) => isDenied(glob, form)))
    );
  }
  return resources.some((glob) => {
    const globStart = literalStart(glob);
    return start.startsWith(globStart) || globStart.startsWith(start);
  });
}

/** Returns whether a condition has one possible outcome, so that no call can change it. */
function isKnown(outcomes: Outcomes): boolean {
  return outcomes === TRUE || outcomes === FALSE || outcomes === FAILS;
}

function variablesOf(endpoint: string, identity: Subject['identity'], item: Item): Variables {
  const { kind, name, upstream, hints } = item;
  const variables = { ...identity, endpoint, upstream, tool: { kind, name, ...hints } };
  // A resource is read without arguments, so lists know that there are none.
  return kind === 'resource' || kind === 'template' ? { ...variables, args: {} } : variables;
}

function outcomesOf({ when }: Rule, { subject, item }: ItemRules, { arguments: given, now }: CallFacts): Outcomes {
  if (when === undefined) return TRUE;
  const early = variablesOf(subject.endpoint, subject.identity, item);
  if (given === undefined) return when.outcomes({ ...early, now });
  if (typeof given !== 'string') return when.outcomes({ ...early, args: given.args, now }, given.size);
  return when.readsArgs ? FAILS : when.outcomes({ ...early, args: {}, now });
}
