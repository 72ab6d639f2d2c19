import { hash } from 'node:crypto';
import {
  decide,
  type Decision,
  type Item,
  itemRules,
  type ItemRules,
  type Reason,
  type Rule,
  type Subject,
} from './decide.ts';
import { type ArgumentReader, type ReadArguments, readArguments } from './conditions/arguments.ts';
import type { ExternalConfig, RuleConfig } from './access-config.ts';
import { decidesAbout } from './external-question.ts';
import { FAILS, TRUE } from './conditions/outcomes.ts';
import { getOrMake } from '../map-entries.ts';

/** The rights of a principal to one item, found once for all calls of it. */
export class ItemRights {
  readonly #rules: ItemRules;
  /** The decision before a call. */
  readonly listed: Decision;

  constructor(rules: ItemRules) {
    this.#rules = rules;
    this.listed = decide(rules);
  }

  /**
   * Decides about a call.
   *
   * @param sent the arguments as they are sent, so that no other text is judged.
   */
  decideCall(sent: string | ArgumentReader | undefined, now: Date, trace?: Reason[]): Decision {
    const { members } = this.#rules;
    // Arguments that decide nothing are not parsed.
    const args = members === undefined ? NO_ARGUMENTS : readOf(sent, members);
    return decide(this.#rules, { arguments: args, now }, trace);
  }

  /** Decides at a time about a request that carries no arguments of the call that it belongs to. `depends`: some arguments are allowed. */
  decideAt(now: Date): Decision {
    return this.listed.effect === 'depends' ? decide(this.#rules, { arguments: undefined, now }) : this.listed;
  }
}

/** Receives rules whose conditions fail before a call, so that they hide items from lists. */
export type FailureObserver = (failed: readonly RuleConfig[]) => void;

function readOf(sent: string | ArgumentReader | undefined, members: ReadonlySet<string>): ReadArguments | string {
  return typeof sent === 'object' ? sent.read(members) : readArguments(sent, members);
}

const NO_ARGUMENTS: ReadArguments = { args: {}, size: { values: 0, chars: 0 } };

/** Hashes of rules. Many principals have the same rules, and a policy may be long. */
const DIGESTS = new WeakMap<Rule, string>();

/** Returns a hash of what a rule says, without its place and name. */
function digestOf(rule: Rule): string {
  return getOrMake(DIGESTS, rule, () => {
    const { name: _name, place: _place, ...config } = rule.config;
    return hash('sha256', JSON.stringify([rule.effect, config]), 'base64url');
  });
}

/** Returns the part of an identity that the conditions of rules may read; null for none. Principals with other scopes share rights if no rule reads scopes. */
export function identityRead(rules: readonly Rule[], identity: Subject['identity']): object | null {
  if (!rules.some(({ when }) => when?.readsIdentity)) return null;
  if (rules.some(({ when }) => when?.readsScopes)) return identity;
  const { scopes: _scopes, ...principal } = identity.principal;
  return { ...identity, principal };
}

/** The rights by which lists are made. They may show more than its clients may use now. */
export interface ListRights {
  /** The rights to use what is shown. */
  readonly own: Rights;
  readonly key: string;
  readonly content: string;
  lists(item: Item): boolean;
  mayShow(upstream: string): boolean;
  isWhole(upstream: string): boolean;
  passesUnlisted(upstream: string): boolean;
}

/** The rules that apply to a principal at an endpoint. */
export class Rights implements Subject, ListRights {
  /** Equal for principals with the same rules. */
  readonly key: string;
  readonly endpoint: string;
  readonly identity: Subject['identity'];
  readonly #rules: readonly Rule[];
  readonly #byUpstream = new Map<string, readonly Rule[]>();
  /** The rules that were reported as failing in lists. */
  readonly #failed = new Set<RuleConfig>();
  readonly #onFailed: FailureObserver | undefined;
  readonly #external: ExternalConfig | undefined;
  #content: string | undefined;
  /** Results of {@link mayShow}. */
  readonly #shown = new Map<string, boolean>();

  /**
   * @param rules deny rules first.
   * @param onFailed gets each rule that fails in lists once.
   * @param external may deny what the rules allow.
   */
  constructor(
    key: string,
    endpoint: string,
    identity: Subject['identity'],
    rules: readonly Rule[],
    onFailed?: FailureObserver,
    external?: ExternalConfig,
  ) {
    this.#external = external;
    this.#onFailed = onFailed;
    this.key = key;
    this.endpoint = endpoint;
    this.identity = identity;
    this.#rules = rules;
  }

  get own(): this {
    return this;
  }

  /** A hash, equal for rights that allow the same, also by another policy. A change of places and names in the config changes nothing. */
  get content(): string {
    if (this.#content !== undefined) return this.#content;
    const read = identityRead(this.#rules, this.identity);
    const text = JSON.stringify([read, this.#rules.map((rule) => digestOf(rule))]);
    this.#content = hash('sha256', text, 'base64url');
    return this.#content;
  }

  /** Returns the rules that apply to an upstream. @param upstream the id of an upstream of the config, so that the map is bounded. */
  #rulesFor(upstream: string): readonly Rule[] {
    return getOrMake(this.#byUpstream, upstream, () =>
      this.#rules.filter(({ config }) => config.upstreams?.includes(upstream) ?? true),
    );
  }

  /** Returns the rights to an item, which the caller keeps as long as the item is the same. */
  to(item: Item): ItemRights {
    return new ItemRights(itemRules(this, item, this.#rulesFor(item.upstream)));
  }

  /** Decides about an item before a call. */
  decide(item: Item, trace?: Reason[]): Decision {
    return decide(itemRules(this, item, this.#rulesFor(item.upstream)), undefined, trace);
  }

  /** Returns whether an item is listed: unless it is denied whatever the call. */
  lists(item: Item): boolean {
    const { effect, failed } = this.decide(item);
    this.#reportFailed(failed);
    return effect !== 'deny';
  }

  /** A list is made for many items and many times, and a rule fails in it for the same reason. */
  #reportFailed(failed: readonly RuleConfig[]): void {
    const fresh = failed.filter((rule) => !this.#failed.has(rule));
    for (const rule of fresh) this.#failed.add(rule);
    if (fresh.length > 0) this.#onFailed?.(fresh);
  }

  /** Returns whether a rule may allow something of an upstream, whatever it offers. */
  mayShow(upstream: string): boolean {
    return getOrMake(this.#shown, upstream, () => this.couldShow(upstream, true));
  }

  /** Like {@link mayShow}, for a principal that does not have these rights: nothing is reported. */
  couldShow(upstream: string, isReported = false): boolean {
    const rules = this.#rulesFor(upstream);
    if (rules.some((rule) => rule.effect === 'deny' && isTotal(rule))) return false;
    return rules.some((rule) => rule.effect === 'allow' && !this.#isNever(rule, upstream, isReported));
  }

  #isNever({ when, config }: Rule, upstream: string, isReported: boolean): boolean {
    // Items differ in `tool`, so a condition that reads it may hold for one that is not known yet.
    if (when === undefined || when.readsTool) return false;
    const { endpoint, identity } = this;
    const outcomes = when.outcomes({ ...identity, endpoint, upstream, tool: {} });
    if (outcomes === FAILS && isReported) this.#reportFailed([config]);
    return (outcomes & TRUE) === 0;
  }

  /** Returns whether everything of an upstream is allowed, whatever it offers. */
  isWhole(upstream: string): boolean {
    const rules = this.#rulesFor(upstream);
    return rules.every(({ effect }) => effect === 'allow') && rules.some(isTotal);
  }

  /** Returns whether requests may name what an upstream does not list: nothing of it is denied, also by no decision point. */
  passesUnlisted(upstream: string): boolean {
    return this.isWhole(upstream) && !this.asksAbout(upstream);
  }

  /** Returns whether a decision point is asked about what these rights allow at an upstream. */
  asksAbout(upstream: string): boolean {
    return this.#external !== undefined && decidesAbout(this.#external, upstream);
  }
}

/** The rights of a principal together with those that it would have with further scopes: lists show what some of them show. */
export class WiderRights implements ListRights {
  readonly own: Rights;
  readonly key: string;
  /** Nobody has these, so that rules which fail in them are not reported. */
  readonly #wider: readonly Rights[];
  /** Results of {@link mayShow}. */
  readonly #shown = new Map<string, boolean>();

  /** @param wider different ones, and not `own`: scopes may also bring deny rules. */
  constructor(key: string, own: Rights, wider: readonly Rights[]) {
    this.key = key;
    this.own = own;
    this.#wider = wider;
  }

  get content(): string {
    return [this.own, ...this.#wider].map(({ content }) => content).join(' ');
  }

  lists(item: Item): boolean {
    return this.own.lists(item) || this.#wider.some((rights) => rights.decide(item).effect !== 'deny');
  }

  mayShow(upstream: string): boolean {
    return getOrMake(
      this.#shown,
      upstream,
      () => this.own.mayShow(upstream) || this.#wider.some((rights) => rights.couldShow(upstream)),
    );
  }

  isWhole(upstream: string): boolean {
    // Nobody should sign in again for a name that no list has: it may be a mistake.
    return this.own.isWhole(upstream);
  }

  passesUnlisted(upstream: string): boolean {
    return this.own.passesUnlisted(upstream);
  }
}

/** Returns whether a rule is about every item, without a condition. */
function isTotal({ config: { tools, prompts, resources, hints }, when }: Rule): boolean {
  const isGeneral = tools === undefined && prompts === undefined && resources === undefined;
  return isGeneral && when === undefined && Object.keys(hints).length === 0;
}
