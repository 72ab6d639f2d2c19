import { type Catalog, sourceByName } from '../../catalog/catalog.ts';
import { isListedBy, isWithheldUri } from '../../catalog/resources/resources.ts';
import { didYouMean, suggest } from '../../config/document/suggest.ts';
import { upstreamIn, type View, type ViewUpstream } from '../../catalog/view.ts';
import { ownerByPrefix } from '../../gateway/calls/availability.ts';
import { judgedRoute, type JudgedRoute } from '../../gateway/calls/judged-route.ts';
import type { Caller } from '../../gateway/front/caller.ts';
import { type Gate, hintsOf, lackingText } from '../../gateway/exchange/gate.ts';
import { route, upstreamItem } from '../../gateway/exchange/route.ts';
import { RawObject } from '../../json/json.ts';
import { type ExternalAnswer, type ExternalRequest, isDenial } from '../../policy/external-question.ts';
import type { ExplainRequest } from '../../operator/admin/admin-port.ts';
import type { ExplainAnswer } from '../../operator/admin/answers.ts';
import { type Item, plainItem, type Reason } from '../../policy/decide.ts';
import type { ReceivedClaim } from '../../policy/identity.ts';
import type { Principal } from '../../policy/principal.ts';
import type { ListRights } from '../../policy/rights.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import { LATEST_LEGACY } from '../../protocol/revisions.ts';
import { isUp, type Lifecycle } from '../../upstream/lifecycle/lifecycle.ts';
import { catalogAnswerOf } from './admin-catalog.ts';

/** A question about one item: may this principal use it at this endpoint? */
export interface ExplainQuery extends Omit<ExplainRequest, 'as'> {
  readonly principal: Principal;
}

/** The parts of a gateway that an explanation is made of. */
export interface ExplainParts {
  readonly view: View;
  /** Returns the catalog of clients with these rights, as their requests use it; the one with everything for undefined. */
  readonly catalogFor: (rights: ListRights | undefined) => Catalog;
  readonly gate: Gate;
  /** Returns the state of an upstream; undefined if no gateway runs. */
  readonly lifecycleOf: (upstream: string) => Lifecycle | undefined;
  /** Returns whether each principal gets lists of its own from an upstream, so that the catalog has none of them. */
  readonly hasCallersLists: (upstream: string) => boolean;
}

/** A question with the catalogs that answer it. */
interface Asked {
  readonly parts: ExplainParts;
  readonly query: ExplainQuery;
  /** The catalog of the principal. */
  readonly shown: Catalog;
  /** The catalog with everything. */
  readonly whole: Catalog;
}

/** An item that a request names. */
interface Found {
  readonly item: Item;
  /** The reason why clients do not get it, in detail and in short. */
  readonly left?: { readonly text: string; readonly why: string } | undefined;
}

/** The answer about a name that leads to no item. */
interface Nowhere extends Pick<ExplainAnswer, 'effect'> {
  readonly texts: readonly string[];
}

const METHODS = { tool: 'tools/call', prompt: 'prompts/get', resource: 'resources/read' } as const;

/** The words for outcomes of rules. Any other outcome is that of a condition, which a rule may lack. */
const OUTCOMES: Partial<Record<Reason['outcome'], string>> = { other: 'is about other items', true: 'applies' };

/**
 * Explains a decision, in the order in which a request meets its reasons. Route and verdict are those of {@link judgedRoute}, as for a
 * request of the principal; this function adds the reasons.
 */
export function explain(given: ExplainParts, query: ExplainQuery): ExplainAnswer {
  const parts = { ...given, gate: given.gate.quiet };
  const { view, gate, lifecycleOf } = parts;
  const { principal, kind, name, args } = query;
  const shown = parts.catalogFor(gate.shownRightsOf(principal, view.id));
  const asked = { parts, query, shown, whole: shown.whole ?? shown };
  const judged = judgedRoute(gate, { caller: callerOf(query), catalog: shown }, requestOf(query));
  const reasons: ExplainAnswer['reasons'] = [];
  if (!gate.isOpen && !gate.mayEnter(view, principal)) {
    reasons.push({ about: 'endpoint', text: `it may use nothing at /mcp/${view.id}, which answers 404` });
  }
  const identity = gate.identityOf(principal);
  const ofPrincipal =
    identity === undefined ? {} : { groups: [...identity.groups], claims: identity.claims.map((one) => claimOf(one)) };
  const answer = { principal: principal.label, view: view.id, kind, name, ...ofPrincipal };
  const found = find(asked, judged);
  if ('effect' in found) {
    const owner = ownerByPrefix(view, name, kind === 'resource');
    const lifecycle = owner === undefined ? undefined : lifecycleOf(owner);
    if (lifecycle !== undefined && !isUp(lifecycle)) {
      const text = `it has the prefix of upstream "${owner}", which is ${stateText(lifecycle)}: its items may be unknown`;
      reasons.push({ about: 'upstream', text });
    }
    reasons.push(...found.texts.map((text) => ({ about: 'list' as const, text })));
    return { ...answer, effect: found.effect, isListed: publishesUri(asked), reasons };
  }
  const { item, left } = found;
  const { upstream } = item;
  const lifecycle = lifecycleOf(upstream);
  if (lifecycle !== undefined) {
    reasons.push({ about: 'upstream', text: `upstream "${upstream}" is ${stateText(lifecycle)}` });
  }
  const isUnlisted = left === undefined && !lists(asked.whole, item);
  reasons.push({ about: 'list', text: left?.text ?? listText(parts, item, isUnlisted) });
  const { decision, isShown, rules, isAsked } = decided(asked, item, judged);
  for (const { rule, file, line, effect, outcome } of rules) {
    const about = OUTCOMES[outcome] ?? `its condition: ${outcome}`;
    reasons.push({ about: 'rule', text: `${effect} rule "${rule}" ${about}`, place: `${file}:${line}` });
  }
  reasons.push({ about: 'decision', text: left?.why ?? decision.why });
  const lacking = decision.effect === 'deny' ? lackingTextOf(asked, item, judged) : undefined;
  if (left === undefined && lacking !== undefined) {
    reasons.push({ about: 'decision', text: lacking });
    if (isAsked) reasons.push({ about: 'external', text: 'the external decision is asked only then' });
  }
  return {
    ...answer,
    upstream,
    upstreamName: item.name,
    effect: left === undefined ? decision.effect : 'deny',
    isListed: left === undefined && isShown && !isUnlisted,
    reasons,
    ...(args === undefined ? {} : { arguments: true }),
  };
}

/** Returns the clause about the scopes that would change a denial. A call whose arguments are not known is judged as its list is. */
function lackingTextOf({ parts, query }: Asked, item: Item, { verdict }: JudgedRoute): string | undefined {
  if (query.args !== undefined) return verdict?.lacking?.text;
  const scopes = parts.gate.lackingScopes(query.principal, query.view, (by) => by.decide(item));
  return scopes && lackingText(scopes);
}

function callerOf({ principal, view }: ExplainQuery): Caller {
  return { principal, view, revision: LATEST_LEGACY, capabilities: RawObject.EMPTY };
}

function requestOf({ kind, name, args }: ExplainQuery): Request {
  const params = RawObject.of(kind === 'resource' ? { uri: name } : { name, arguments: args });
  return { kind: 'request', id: '1', method: METHODS[kind], params };
}

/** Asks a decision point about a request; undefined if it has no say. `offline`: it would be asked if a gateway ran. */
export type AskExternal = (request: ExternalRequest) => Promise<ExternalAnswer> | 'offline' | undefined;

/** Explains a decision with the last reason: the answer of a decision point about what the rules allow. */
export async function explainWith(ask: AskExternal, parts: ExplainParts, query: ExplainQuery): Promise<ExplainAnswer> {
  const answer = explain(parts, query);
  const { upstream, upstreamName, effect, reasons } = answer;
  if (effect === 'deny' || upstream === undefined || upstreamName === undefined) return answer;
  const { principal, view, kind } = query;
  const [item, args] = [itemOf(parts.catalogFor(undefined), kind, upstream, upstreamName), argumentsText(query)];
  const asked = await ask({ principal, view, method: METHODS[kind], item, args });
  if (asked === undefined) return answer;
  const isLeft = asked === 'offline' || asked.outcome === 'allowed';
  const reason = { about: 'external', text: externalText(asked) } as const;
  return { ...answer, effect: isLeft ? effect : 'deny', reasons: [...reasons, reason] };
}

function externalText(asked: ExternalAnswer | 'offline'): string {
  if (asked === 'offline') return 'the external decision is not asked offline';
  const { outcome, why } = asked;
  return outcome === 'allowed' || isDenial(outcome) ? why : `there is no external decision: ${why}`;
}

function claimOf({ name, value, isUsable }: ReceivedClaim): NonNullable<ExplainAnswer['claims']>[number] {
  return value === undefined ? { name, isUsable } : { name, value: JSON.stringify(value), isUsable };
}

function stateText({ phase, reason }: Lifecycle): string {
  return reason === undefined ? phase : `${phase} (${reason})`;
}

/** Returns the upstreams that may list an unknown name for the caller. @param owner the upstream whose prefix the name has. */
function upstreamsOfCallers(
  { view, hasCallersLists }: ExplainParts,
  { kind }: ExplainQuery,
  owner: string | undefined,
): readonly string[] {
  const isBare = ({ prefix, rawUris }: ViewUpstream) => (kind === 'resource' ? rawUris : prefix === '');
  const possible = owner === undefined ? view.upstreams.filter(isBare).map(({ id }) => id) : [owner];
  return possible.filter(hasCallersLists);
}

function callersText(upstream: string): string {
  return `the lists of upstream "${upstream}" depend on the caller, and are not known here`;
}

function listText({ hasCallersLists }: ExplainParts, { upstream, name }: Item, isUnlisted: boolean): string {
  if (!isUnlisted) return `upstream "${upstream}" lists it as "${name}"`;
  return hasCallersLists(upstream)
    ? callersText(upstream)
    : `upstream "${upstream}" gets it as "${name}", and does not list it`;
}

/** Returns whether a catalog has an item in its lists, or a template that the URI of a resource matches. */
function lists(catalog: Catalog, { kind, upstream, name }: Item): boolean {
  if (kind === 'resource') return isListedBy(catalog.resources, upstream, name);
  return [...targetsOf(catalog, kind).values()].some((target) => target.upstream === upstream && target.name === name);
}

/** Returns whether the list of resources has a URI that leads to no single item. */
function publishesUri({ shown, query: { kind, name } }: Asked): boolean {
  return kind === 'resource' && shown.resources.texts.some((text) => RawObject.parse(text).string('uri') === name);
}

const WITHHELD = 'the lock withholds it';

/** Returns the item that a request is about, or the reasons why there is none for the principal. */
function find(asked: Asked, { to, verdict }: JudgedRoute): Found | Nowhere {
  const { query, shown, whole } = asked;
  if (to.kind === 'nowhere' && to.error.code === 'ambiguous-resource') {
    return { effect: 'deny', texts: [to.error.message] };
  }
  const known = to.kind === 'upstream' || whole === shown ? to : route(whole, requestOf(query));
  if (known.kind === 'nowhere' && known.error.code === 'ambiguous-resource') {
    return { effect: 'deny', texts: [known.error.message, 'the principal may use it of none of them'] };
  }
  if (verdict !== undefined && 'kind' in verdict.item) return { item: verdict.item };
  if (to.kind === 'upstream') {
    const own = to.upstreamTool ?? upstreamItem(METHODS[query.kind], to) ?? '';
    return { item: itemOf(whole, query.kind, to.upstream, own) };
  }
  if (known.kind === 'upstream' && upstreamIn(shown.view, known.upstream) === undefined) {
    const text = `upstream "${known.upstream}" has it, and lists nothing that the principal may use: its names are unknown`;
    return { effect: 'unknown', texts: [text] };
  }
  return findLeft(whole, query) ?? { effect: 'unknown', texts: unknownTexts(asked) };
}

/** Returns the reasons why no upstream has an item. */
function unknownTexts({ parts, query, whole }: Asked): readonly string[] {
  const { view } = parts;
  const { kind, name } = query;
  if (kind === 'resource' && isWithheldUri(whole.resources, view.upstreams, name)) return [WITHHELD];
  const owner = ownerByPrefix(view, name, kind === 'resource');
  const callers = upstreamsOfCallers(parts, query, owner);
  if (callers.length > 0) return callers.map(callersText);
  const unlisted =
    owner === undefined ? 'no upstream of this endpoint lists it' : `upstream "${owner}" does not list it`;
  return [`${unlisted} for all clients${didYouMean(suggest(name, namesOf(whole, kind)))}`];
}

/** Returns the names of the items of a kind. URIs are no names that one misspells. */
function namesOf(catalog: Catalog, kind: ExplainQuery['kind']): readonly string[] {
  return kind === 'resource' ? [] : [...targetsOf(catalog, kind).keys()];
}

/** Returns the tools, or else the prompts, of a catalog by their published names. */
function targetsOf({ callables: { tools, prompts } }: Catalog, kind: Item['kind']): Catalog['tools'] {
  return (kind === 'tool' ? tools : prompts).targets;
}

/** Returns the item that would have a name or URI if it were not filtered, quarantined, or withheld by the lock. */
function findLeft(catalog: Catalog, { kind, name, view }: ExplainQuery): Found | undefined {
  const { items } = catalogAnswerOf(catalog, { view, era: 'legacy', upstream: undefined });
  const filtered = items.find((one) => one.kind === kind && one.name === name && one.status === 'filtered');
  if (filtered !== undefined) {
    const left = { text: `filtered: ${filtered.why ?? ''}`, why: 'the config leaves it out' };
    return { item: plainItem(kind, filtered.upstream, filtered.upstreamName ?? name), left };
  }
  const { renames } = catalog.view;
  const hidden = catalog.quarantined.find((one) => {
    if (one.kind !== kind || one.published === undefined) return false;
    return one.published === name || (kind === 'tool' && renames[one.published] === name);
  });
  if (hidden === undefined) return undefined;
  const text = `The ${kind} ${hidden.why}.`;
  const left =
    hidden.isWithheld === true
      ? { text: `withheld: ${text}`, why: WITHHELD }
      : { text: `quarantined: ${text}`, why: 'it is quarantined' };
  return { item: plainItem(kind, hidden.upstream, hidden.name), left };
}

function itemOf(catalog: Catalog, kind: ExplainQuery['kind'], upstream: string, name: string): Item {
  const item = plainItem(kind, upstream, name);
  return kind === 'tool' ? { ...item, hints: hintsOf(sourceByName(catalog, upstream, name)) } : item;
}

function argumentsText({ args }: ExplainQuery): string | undefined {
  return args === undefined ? undefined : JSON.stringify(args);
}

/** Returns the decision about an item, with its rules. That about a call with arguments is the verdict of the gateway. */
function decided({ parts, query }: Asked, item: Item, { verdict }: JudgedRoute) {
  const { gate } = parts;
  const { principal, view } = query;
  const rules: Reason[] = [];
  const rights = gate.rightsOf(principal, view);
  if (rights === undefined) {
    const why = 'there is no access policy, so everything is allowed';
    return { decision: { effect: 'allow', why } as const, isShown: true, rules, isAsked: false };
  }
  const text = argumentsText(query);
  const traced = text === undefined ? rights.decide(item, rules) : rights.to(item).decideCall(text, new Date(), rules);
  const isShown = gate.shownRightsOf(principal, view)?.lists(item) === true;
  const decision = text === undefined || verdict === undefined ? traced : { effect: verdict.effect, why: traced.why };
  return { decision, isShown, rules, isAsked: rights.asksAbout(item.upstream) };
}
