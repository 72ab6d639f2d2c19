import type { Source } from '../../catalog/names/named-items.ts';
import type { View } from '../../catalog/view.ts';
import { GatewayError } from '../../errors.ts';
import type { AccessConfig, Hints, RuleConfig } from '../../policy/access-config.ts';
import { ArgumentReader, hasOddSpelling } from '../../policy/conditions/arguments.ts';
import { type Decision, type Item, NO_HINTS, plainItem } from '../../policy/decide.ts';
import { groupsUnder, type ReceivedClaim, receivedClaims } from '../../policy/identity.ts';
import { Policy } from '../../policy/policy.ts';
import { isOperator, type Principal } from '../../policy/principal.ts';
import type { FailureObserver, ItemRights, ListRights, Rights } from '../../policy/rights.ts';
import { type IssuerScopes, ScopesOnDemand } from '../../policy/scopes-on-demand.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import type { Caller } from '../front/caller.ts';
import type { PrincipalShares } from './principal-shares.ts';
import type { Client } from './exchange.ts';
import { findHidden, unknownResource, type UpstreamResource, type UpstreamRoute } from './route.ts';
import { getOrMake } from '../../map-entries.ts';

interface LackingScopes {
  /** As in `scope "write" would allow it`. */
  readonly text: string;
  /** All scopes of such a token, as clients request them. */
  readonly requested: readonly string[];
}

/** A decision about one request, for audit records, metrics and logs. Clients never see it. */
export interface Verdict {
  readonly principal: Principal;
  /** Id of the view. */
  readonly endpoint: string;
  readonly method: string;
  /** Undefined if the gateway asks for itself, such as for a stored subscription. */
  readonly request: Request | undefined;
  /** The item that was decided about. `upstream` is empty for an endpoint of several upstreams. */
  readonly item: Item | Pick<Item, 'upstream'>;
  readonly effect: 'allow' | 'deny';
  /** Set if a decision point denies what the rules allow, or if it must not be asked about the arguments. Records have it as the rule. */
  readonly external?: 'external' | 'external-arguments';
  /** The rule that decided, with its place; undefined if no rule allows the item. */
  readonly rule: RuleConfig | undefined;
  readonly why: string;
  readonly failed: readonly RuleConfig[];
  /** Set if the principal may get a token that would allow what is denied. */
  readonly lacking?: LackingScopes;
}

/** A request, or the method that the gateway asks about for itself. */
export type Asked = Request | Pick<Request, 'method'>;

/** Receives the verdict of every request that the access policy decides about. */
export type VerdictObserver = (verdict: Verdict) => void;

/** The arguments and the time of one request, for several decisions about it. */
interface ReadOnce {
  readonly args: ArgumentReader;
  readonly now: Date;
}

/** The only place where requests are decided about: before a call, a read, a completion, a subscription and a request about a task. */
export class Gate {
  readonly #observers: readonly VerdictObserver[];
  readonly #shares: Pick<PrincipalShares, 'setWeight'> | undefined;
  readonly #onFailed: FailureObserver | undefined;
  /** Time of the last change of the policy. Monotonic ms. */
  changedMs = -Infinity;
  #config: AccessConfig | undefined;
  #policy: Policy | undefined;
  #onDemand: ScopesOnDemand | undefined;
  #quiet: Gate | undefined;
  /** The issuers of {@link #onDemand}. */
  #issuers: readonly IssuerScopes[] = [];
  /** The text of the settings that the policy was made from. */
  #source = JSON.stringify([undefined, []]);
  /** Rights to listed tools. They depend on the listed tool alone, so that a call costs a lookup and the conditions about its tool. */
  #tools = new WeakMap<Rights, WeakMap<Source, ItemRights>>();

  /**
   * @param config undefined allows everything.
   * @param shares gets the weights of principals.
   * @param onFailed gets the rules whose conditions fail in lists, which have no verdicts.
   * @param onDemand the issuers whose clients may get scopes when a request needs them.
   */
  constructor(
    config: AccessConfig | undefined,
    observers: readonly VerdictObserver[],
    shares?: Pick<PrincipalShares, 'setWeight'>,
    onFailed?: FailureObserver,
    onDemand?: readonly IssuerScopes[],
  ) {
    this.#onFailed = onFailed;
    this.#observers = observers;
    this.#shares = shares;
    this.setConfig(config, onDemand);
  }

  /** Applies another policy. It holds for the next decision; catalogs are made again by their owners. */
  setConfig(config: AccessConfig | undefined, onDemand: readonly IssuerScopes[] = []): void {
    const source = JSON.stringify([config, onDemand]);
    // An equal policy keeps what is compiled and cached.
    if (source === this.#source) return;
    this.#source = source;
    this.changedMs = performance.now();
    this.#config = config;
    this.#quiet = undefined;
    this.#issuers = onDemand;
    this.#onDemand = onDemand.length === 0 ? undefined : new ScopesOnDemand(onDemand);
    this.#policy = config === undefined ? undefined : new Policy(config, this.#onFailed, this.#onDemand);
    this.#tools = new WeakMap();
  }

  /** A gate with the same policy that reports nothing, for decisions that no client has asked for. */
  get quiet(): Gate {
    return (this.#quiet ??= new Gate(this.#config, [], undefined, undefined, this.#issuers));
  }

  /** True if there is no policy, so that everything is allowed. */
  get isOpen(): boolean {
    return this.#policy === undefined;
  }

  /** Returns the groups and declared claims of a principal; undefined without a policy. */
  identityOf(
    principal: Principal,
  ): { readonly groups: readonly string[]; readonly claims: readonly ReceivedClaim[] } | undefined {
    const config = this.#config;
    if (config === undefined) return undefined;
    return { groups: groupsUnder(config, principal), claims: receivedClaims(principal, config.claims) };
  }

  /** Returns the rights of a principal at a view; undefined if it may use everything: without a policy, and for operators. */
  rightsOf(principal: Principal, view: string): Rights | undefined {
    if (this.#policy === undefined || isOperator(principal)) return undefined;
    if (this.#policy.hasWeights) this.#shares?.setWeight(principal.key, this.#policy.weightOf(principal));
    return this.#policy.rightsOf(principal, view);
  }

  /** Returns the rights by which lists for a principal at a view are made; undefined if it may use everything. */
  shownRightsOf(principal: Principal, view: string): ListRights | undefined {
    const own = this.rightsOf(principal, view);
    return own === undefined ? undefined : this.#policy?.shownRights(own, principal);
  }

  /**
   * Returns whether a token of the same principal has all scopes of another one and more. Also true for one on demand that would widen the
   * other's rights.
   */
  hasFurtherScopes({ principal: before, view }: Caller, { scopes }: Principal): boolean {
    const all = new Set(scopes);
    const has = (scope: string) => all.has(scope);
    if (scopes.length > before.scopes.length && before.scopes.every(has)) return true;
    const contentOf = (principal: Principal) => this.#policy?.rightsOf(principal, view).content;
    // A new token may lack others, such as `offline_access`.
    const further = this.#onDemand?.widened(before).filter((one) => one.scopes.every(has)) ?? [];
    return further.some(({ principal }) => contentOf(principal) !== contentOf(before));
  }

  /** See {@link Policy.lackingScopes}. */
  lackingScopes(
    principal: Principal,
    view: string,
    decide: (rights: Rights) => Decision,
  ): readonly string[] | undefined {
    return this.#policy?.lackingScopes(principal, view, decide);
  }

  /**
   * Returns whether an endpoint is there for a principal. The merged one always is, others if a rule may allow something of one of their
   * upstreams.
   */
  mayEnter(view: View, principal: Principal): boolean {
    const rights = view.id === '' ? undefined : this.shownRightsOf(principal, view.id);
    return rights === undefined || view.upstreams.some(({ id }) => rights.mayShow(id));
  }

  /**
   * Decides whether a request may go where its route says; undefined if there is no policy. What is judged are the parameters that are sent.
   * The caller reports the verdict.
   */
  judge(caller: Caller, request: Request, to: UpstreamRoute): Verdict | undefined {
    const { method } = request;
    const rights = this.rightsOf(caller.principal, caller.view);
    if (rights === undefined) return undefined;
    const item = itemOf(method, to);
    if (hasOddSpelling(to.params)) return verdictOf(caller, request, item, ODD);
    const decision = this.#decide(rights, method, item, to);
    const verdict = verdictOf(caller, request, item, decision);
    return decision.effect === 'deny' ? this.#withScopesForCall(verdict, caller, item, to) : verdict;
  }

  #decide(rights: Rights, method: string, item: Item, to: UpstreamRoute, once?: ReadOnce): Decision {
    const itemRights = this.#rightsTo(rights, item, to);
    const before = itemRights.listed;
    // A completion carries no arguments of the call that it prepares, so an item that may be callable now may be completed.
    if (method === 'completion/complete') return itemRights.decideAt(once?.now ?? new Date());
    if (before.effect !== 'depends') return before;
    return itemRights.decideCall(once?.args ?? argumentsOf(method, to), once?.now ?? new Date());
  }

  /** Apart from {@link judge}, where the closure would cost each call an object. */
  #withScopesForCall(verdict: Verdict, caller: Caller, item: Item, to: UpstreamRoute): Verdict {
    const { method } = verdict;
    const once = { args: new ArgumentReader(argumentsOf(method, to)), now: new Date() };
    return this.#withScopes(verdict, caller, (rights) => this.#decide(rights, method, item, to, once));
  }

  /** Returns a denial with the scopes that would change it. */
  #withScopes(verdict: Verdict, { principal, view }: Caller, decide: (rights: Rights) => Decision): Verdict {
    const scopes = this.lackingScopes(principal, view, decide);
    if (scopes === undefined) return verdict;
    const text = lackingText(scopes);
    const requested = this.#onDemand?.requested(principal, scopes) ?? scopes;
    return { ...verdict, why: `${verdict.why}; ${text}`, lacking: { text, requested } };
  }

  /**
   * Returns the resource of a subscription, or the error that answers it. A resource that the policy denies is unknown to the client.
   *
   * @param found where the catalog of the client has it.
   */
  judgeSubscription(
    { caller, catalog }: Pick<Client, 'caller' | 'catalog'>,
    asked: Asked,
    uri: string,
    found: UpstreamResource | GatewayError,
  ): UpstreamResource | GatewayError {
    if (!(found instanceof GatewayError)) return this.refusalOfSubscription(caller, asked, uri, found) ?? found;
    const verdict = this.judgeHiddenResource({ caller, catalog }, asked, uri);
    if (verdict !== undefined) this.report(verdict);
    return found;
  }

  /** Returns the verdict about a resource that the client cannot see; undefined unless the policy hides it at each upstream that has it. */
  judgeHiddenResource(
    { caller, catalog }: Pick<Client, 'caller' | 'catalog'>,
    asked: Asked,
    uri: string,
  ): Verdict | undefined {
    if (this.rightsOf(caller.principal, caller.view) === undefined) return undefined;
    const verdicts = findHidden(catalog, uri).map((one) =>
      this.#judgeHidden(caller, asked, plainItem('resource', one.upstream, one.uri)),
    );
    return verdicts.includes(undefined) ? undefined : verdicts[0];
  }

  /**
   * Returns the error that answers a subscription to a resource; undefined if the client may have it.
   *
   * @param uri as the client names it.
   * @param isAgain whether the request was allowed before it waited; then only a denial is reported.
   */
  refusalOfSubscription(
    caller: Caller,
    asked: Asked,
    uri: string,
    found: UpstreamResource,
    isAgain = false,
  ): GatewayError | undefined {
    const item = plainItem('resource', found.upstream, found.uri);
    const now = new Date();
    const decide = (rights: Rights) => rights.to(item).decideCall(undefined, now);
    return this.#refusal({ caller, asked, item, isAgain }, decide, () => unknownResource(uri));
  }

  /**
   * Returns the error that answers a request about a task of a tool; undefined if the client may use it. Its call was judged with the arguments, which
   * are not known any more.
   *
   * @param isAgain as in {@link refusalOfSubscription}.
   */
  refusalOfTask(caller: Caller, asked: Asked, item: Item, isAgain = false): GatewayError | undefined {
    const now = new Date();
    const decide = (rights: Rights) => rights.to(item).decideAt(now);
    return this.#refusal({ caller, asked, item, isAgain }, decide, () => new GatewayError('unknown-task'));
  }

  #refusal(
    { caller, asked, item, isAgain }: { caller: Caller; asked: Asked; item: Item; isAgain: boolean },
    decide: (rights: Rights) => Decision,
    unknown: () => GatewayError,
  ): GatewayError | undefined {
    const rights = this.rightsOf(caller.principal, caller.view);
    if (rights === undefined) return undefined;
    const own = verdictOf(caller, asked, item, decide(rights));
    const verdict = own.effect === 'deny' ? this.#withScopes(own, caller, decide) : own;
    const isDenied = verdict.effect === 'deny';
    if (isDenied || !isAgain) this.report(verdict);
    return isDenied ? (insufficientScope(verdict) ?? unknown()) : undefined;
  }

  /** Returns the verdict about a request that names an item which its client cannot see; undefined if the policy does not hide it. */
  judgeHidden(caller: Caller, request: Request, hidden: UpstreamRoute): Verdict | undefined {
    return this.#judgeHidden(caller, request, itemOf(request.method, hidden));
  }

  #judgeHidden(caller: Caller, asked: Asked, item: Item): Verdict | undefined {
    const decision = this.rightsOf(caller.principal, caller.view)?.decide(item);
    return decision?.effect === 'deny' ? verdictOf(caller, asked, item, decision) : undefined;
  }

  /** Reports a request to an endpoint that {@link mayEnter} hides. */
  reportHiddenView({ id, upstreams }: View, principal: Principal): void {
    const [only, ...others] = upstreams;
    const upstream = only !== undefined && others.length === 0 ? only.id : '';
    const decision = {
      effect: 'deny',
      rule: undefined,
      why: 'nothing of the endpoint may be used',
      failed: [],
    } as const;
    this.report({ principal, endpoint: id, method: '', request: undefined, item: { upstream }, ...decision });
  }

  /** Tells the observers of a verdict, once for each request. */
  report(verdict: Verdict): void {
    for (const observe of this.#observers) observe(verdict);
  }

  #rightsTo(rights: Rights, item: Item, { source }: UpstreamRoute): ItemRights {
    if (item.kind !== 'tool' || source === undefined) return rights.to(item);
    const ofRights = getOrMake(this.#tools, rights, () => new WeakMap());
    return getOrMake(ofRights, source, () => rights.to(item));
  }
}

/** Returns the error of a denied request that a token with more scopes would allow; undefined for another one, which is answered as unknown. */
export function insufficientScope({ lacking }: Verdict): GatewayError | undefined {
  if (lacking === undefined) return undefined;
  const { requested: scopes } = lacking;
  const advice = 'sign in again with these scopes';
  return new GatewayError('insufficient-scope', { message: scopes.join(' '), advice, scopes });
}

export function lackingText(scopes: readonly string[]): string {
  return `${scopes.length === 1 ? 'scope' : 'scopes'} ${scopes.map((scope) => `"${scope}"`).join(' and ')} would allow it`;
}

/** Methods whose `arguments` an upstream reads. Others must not satisfy a condition with a member of that name. */
export const HAS_ARGUMENTS: ReadonlySet<string> = new Set(['tools/call', 'prompts/get']);

/** Returns the arguments that decide about a request, as they are sent. */
function argumentsOf(method: string, { params }: UpstreamRoute): string | undefined {
  return HAS_ARGUMENTS.has(method) ? params.raw('arguments') : undefined;
}

/** The decision about params that an upstream may read in another way. */
const ODD: Decision = { effect: 'deny', rule: undefined, why: 'a member can be read in two ways', failed: [] };

function verdictOf({ principal, view }: Caller, asked: Asked, item: Item, decision: Decision): Verdict {
  const { method } = asked;
  const request = 'kind' in asked ? asked : undefined;
  const { effect, rule, why, failed } = decision;
  const decided = effect === 'deny' ? 'deny' : 'allow';
  return { principal, endpoint: view, method, request, item, effect: decided, rule, why, failed };
}

/** Returns the item that a request is about, by the names that the upstream gets. */
function itemOf(method: string, { upstream, params, upstreamTool, source }: UpstreamRoute): Item {
  const item = (kind: Item['kind'], name = '') => plainItem(kind, upstream, name);
  switch (method) {
    case 'tools/call':
      return { ...item('tool', upstreamTool ?? params.string('name')), hints: hintsOf(source) };
    case 'prompts/get':
      return item('prompt', params.string('name'));
    case 'resources/read':
      return item('resource', params.string('uri'));
    default: {
      const ref = params.object('ref');
      if (ref?.string('type') === 'ref/prompt') return item('prompt', ref.string('name'));
      const uri = ref?.string('uri');
      return item(uri?.includes('{') === true ? 'template' : 'resource', uri);
    }
  }
}

/** Returns the hints of a tool, with the defaults of the specification. Its upstream has written them. */
export function hintsOf(source: Source | undefined): Hints {
  const annotations = source?.item.object('annotations');
  if (annotations === undefined) return NO_HINTS;
  const hint = (name: string, fallback: boolean): boolean => {
    const raw = annotations.raw(name);
    return raw === 'true' || (raw !== 'false' && fallback);
  };
  return {
    readOnly: hint('readOnlyHint', NO_HINTS.readOnly),
    destructive: hint('destructiveHint', NO_HINTS.destructive),
    idempotent: hint('idempotentHint', NO_HINTS.idempotent),
    openWorld: hint('openWorldHint', NO_HINTS.openWorld),
  };
}
