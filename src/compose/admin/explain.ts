import { type Catalog, resolvePrompt, resolveResource, resolveTool, sourceByName } from '../../catalog/catalog.ts';
import { isListedBy, isWithheldUri, type Resolution } from '../../catalog/resources/resources.ts';
import type { View, ViewUpstream } from '../../catalog/view.ts';
import { ownerByPrefix } from '../../gateway/calls/availability.ts';
import { type Gate, hintsOf, lackingText } from '../../gateway/exchange/gate.ts';
import { restrictionOf } from '../../gateway/exchange/rights-restriction.ts';
import { type ExternalAnswer, type ExternalRequest, isDenial } from '../../policy/external-question.ts';
import type { ExplainRequest } from '../../operator/admin/admin-port.ts';
import type { ExplainAnswer } from '../../operator/admin/answers.ts';
import { type Item, plainItem, type Reason } from '../../policy/decide.ts';
import type { ReceivedClaim } from '../../policy/identity.ts';
import type { Principal } from '../../policy/principal.ts';
import type { Rights } from '../../policy/rights.ts';
import { isUp, type Lifecycle } from '../../upstream/lifecycle/lifecycle.ts';
import { catalogAnswerOf } from './admin-catalog.ts';

/** A question about one item: may this principal use it at this endpoint? */
export interface ExplainQuery extends Omit<ExplainRequest, 'as'> {
  readonly principal: Principal;
}

/** The parts of a gateway that an explanation is made of. */
export interface ExplainParts {
  readonly view: View;
  /** The catalog without restrictions. */
  readonly catalog: Catalog;
  readonly gate: Gate;
  /** Returns the state of an upstream; undefined if no gateway runs. */
  readonly lifecycleOf: (upstream: string) => Lifecycle | undefined;
  /** Returns whether each principal gets lists of its own from an upstream, so that the catalog has none of them. */
  readonly hasCallersLists: (upstream: string) => boolean;
}

/** An item, and the reason why clients do not get it, in detail and in short. */
interface Found extends Pick<ExplainAnswer, 'upstream' | 'upstreamName'> {
  /** True for an item that its upstream gets although it does not list it. */
  readonly isUnlisted?: boolean;
  readonly left?: { readonly text: string; readonly why: string } | undefined;
}

/** Explains a decision, in the order in which a request meets its reasons. The decision is that of {@link Gate}. */
export function explain(parts: ExplainParts, query: ExplainQuery): ExplainAnswer {
  const { view, gate, lifecycleOf } = parts;
  const { principal, kind, name, args } = query;
  const reasons: ExplainAnswer['reasons'] = [];
  const found = find(parts, query);
  if (!gate.isOpen && !gate.mayEnter(view, principal)) {
    reasons.push({ about: 'endpoint', text: `it may use nothing at /mcp/${view.id}, which answers 404` });
  }
  const identity = gate.identityOf(principal);
  const shown =
    identity === undefined ? {} : { groups: [...identity.groups], claims: identity.claims.map((one) => claimOf(one)) };
  const asked = { principal: principal.label, view: view.id, kind, name, ...shown };
  if (found === undefined) {
    const owner = ownerByPrefix(view, name, kind === 'resource');
    const lifecycle = owner === undefined ? undefined : lifecycleOf(owner);
    if (lifecycle !== undefined && !isUp(lifecycle)) {
      const text = `it has the prefix of upstream "${owner}", which is ${stateText(lifecycle)}: its items may be unknown`;
      reasons.push({ about: 'upstream', text });
    }
    const isWithheld = kind === 'resource' && isWithheldUri(parts.catalog.resources, view.upstreams, name);
    const unknown = upstreamsOfCallers(parts, query, owner).map(callersText);
    const texts = isWithheld
      ? [WITHHELD]
      : unknown.length > 0
        ? unknown
        : ['no upstream of this endpoint lists it for all clients'];
    reasons.push(...texts.map((text) => ({ about: 'list' as const, text })));
    return { ...asked, effect: 'unknown', isListed: false, reasons };
  }
  const { upstream = '', upstreamName = '', left, isUnlisted = false } = found;
  const lifecycle = lifecycleOf(upstream);
  if (lifecycle !== undefined) {
    reasons.push({ about: 'upstream', text: `upstream "${upstream}" is ${stateText(lifecycle)}` });
  }
  reasons.push({ about: 'list', text: left?.text ?? listText(parts, found) });
  const { decision, listed, rules, lacking, isAsked } = decided(parts, query, { upstream, upstreamName });
  for (const { rule, file, line, effect, outcome } of rules) {
    const about = outcome === 'other' ? 'is about other items' : `its condition: ${outcome}`;
    reasons.push({ about: 'rule', text: `${effect} rule "${rule}" ${about}`, place: `${file}:${line}` });
  }
  reasons.push({ about: 'decision', text: left?.why ?? decision.why });
  if (left === undefined && lacking !== undefined) {
    reasons.push({ about: 'decision', text: lackingText(lacking) });
    if (isAsked) reasons.push({ about: 'external', text: 'the external decision is asked only then' });
  }
  const effect = left === undefined ? decision.effect : 'deny';
  const isListed = left === undefined && listed && !isUnlisted;
  return {
    ...asked,
    upstream,
    upstreamName,
    effect,
    isListed,
    reasons,
    ...(args === undefined ? {} : { arguments: true }),
  };
}

/** Asks a decision point about a request; undefined if it has no say. `offline`: it would be asked if a gateway ran. */
export type AskExternal = (request: ExternalRequest) => Promise<ExternalAnswer> | 'offline' | undefined;

const METHODS = { tool: 'tools/call', prompt: 'prompts/get', resource: 'resources/read' } as const;

/** Explains a decision with the last reason: the answer of a decision point about what the rules allow. */
export async function explainWith(ask: AskExternal, parts: ExplainParts, query: ExplainQuery): Promise<ExplainAnswer> {
  const answer = explain(parts, query);
  const { upstream, upstreamName, effect, reasons } = answer;
  if (effect === 'deny' || upstream === undefined || upstreamName === undefined) return answer;
  const { principal, view, kind } = query;
  const [item, args] = [itemOf(parts, kind, { upstream, upstreamName }), argumentsText(query)];
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

function listText({ hasCallersLists }: ExplainParts, { upstream = '', upstreamName = '', isUnlisted }: Found): string {
  if (isUnlisted !== true) return `upstream "${upstream}" lists it as "${upstreamName}"`;
  return hasCallersLists(upstream)
    ? callersText(upstream)
    : `upstream "${upstream}" gets it as "${upstreamName}", and does not list it`;
}

const WITHHELD = 'the lock withholds it';

/** Returns where an item is; undefined if no upstream lists it, or gets it unlisted. */
function find(parts: ExplainParts, { principal, kind, name, view }: ExplainQuery): Found | undefined {
  const { catalog } = parts;
  if (kind === 'resource') {
    const resource = locate(parts, principal, name);
    if (resource.kind === 'one') {
      const { upstream, uri } = resource;
      return { upstream, upstreamName: uri, isUnlisted: !isListedBy(catalog.resources, upstream, uri) };
    }
    return resource.kind === 'none' ? findQuarantined(catalog, kind, name) : undefined;
  }
  const { items } = catalogAnswerOf(catalog, { view, era: 'legacy', upstream: undefined });
  const item = items.find((one) => {
    return one.kind === kind && one.name === name && one.status !== 'quarantined' && one.status !== 'withheld';
  });
  if (item === undefined) {
    const target = (kind === 'tool' ? resolveTool : resolvePrompt)(shownTo(parts, principal), name);
    if (target === undefined) return findQuarantined(catalog, kind, name);
    const { sources } = kind === 'tool' ? catalog.callables.tools : catalog.callables.prompts;
    return { upstream: target.upstream, upstreamName: target.name, isUnlisted: !sources.has(target) };
  }
  const { upstream, upstreamName = name, status, why = '' } = item;
  const left = status === 'filtered' ? { text: `filtered: ${why}`, why: 'the config leaves it out' } : undefined;
  return { upstream, upstreamName, left };
}

/** Finds a resource for a principal, as its restricted catalog does; else one that the policy denies. */
function locate(parts: ExplainParts, principal: Principal, uri: string): Resolution {
  const shown = shownTo(parts, principal);
  const rights = parts.gate.shownRightsOf(principal, parts.view.id);
  if (rights === undefined) return resolveResource(shown, uri);
  const allowed = resolveResource({ ...shown, restriction: restrictionOf(rights) }, uri);
  return allowed.kind === 'one' ? allowed : resolveResource(shown, uri);
}

/** Returns the catalog without the fallbacks that a principal lacks: by them it could tell an unknown name from a hidden one. */
function shownTo({ catalog, gate, view }: ExplainParts, principal: Principal): Catalog {
  const rights = gate.shownRightsOf(principal, view.id);
  const passesUnlisted = rights === undefined || view.upstreams.every(({ id }) => rights.passesUnlisted(id));
  return passesUnlisted ? catalog : { ...catalog, fallback: undefined, callFallback: undefined };
}

/** Returns the item that would have a name or URI if it were not quarantined, or withheld by the lock. */
function findQuarantined(catalog: Catalog, kind: ExplainQuery['kind'], name: string): Found | undefined {
  const { renames } = catalog.view;
  const item = catalog.quarantined.find((one) => {
    if (one.kind !== kind || one.published === undefined) return false;
    return one.published === name || (kind === 'tool' && renames[one.published] === name);
  });
  if (item === undefined) return undefined;
  const text = `The ${kind} ${item.why}.`;
  const left =
    item.isWithheld === true
      ? { text: `withheld: ${text}`, why: WITHHELD }
      : { text: `quarantined: ${text}`, why: 'it is quarantined' };
  return { upstream: item.upstream, upstreamName: item.name, left };
}

interface ExplainedTarget {
  readonly upstream: string;
  readonly upstreamName: string;
}

function itemOf(
  { catalog }: ExplainParts,
  kind: ExplainQuery['kind'],
  { upstream, upstreamName: name }: ExplainedTarget,
): Item {
  const item = plainItem(kind, upstream, name);
  return kind === 'tool' ? { ...item, hints: hintsOf(sourceByName(catalog, upstream, name)) } : item;
}

function argumentsText({ args }: ExplainQuery): string | undefined {
  return args === undefined ? undefined : JSON.stringify(args);
}

function decided(parts: ExplainParts, query: ExplainQuery, target: ExplainedTarget) {
  const { gate } = parts;
  const { principal, view } = query;
  const rules: Reason[] = [];
  const item = itemOf(parts, query.kind, target);
  const rights = gate.rightsOf(principal, view);
  if (rights === undefined) {
    const why = 'there is no access policy, so everything is allowed';
    return { decision: { effect: 'allow', why } as const, listed: true, rules, lacking: undefined, isAsked: false };
  }
  const text = argumentsText(query);
  const decide = (by: Rights, trace?: Reason[]) =>
    text === undefined ? by.decide(item, trace) : by.decideCall(item, text, new Date(), trace);
  const decision = decide(rights, rules);
  const lacking = decision.effect === 'deny' ? gate.lackingScopes(principal, view, (by) => decide(by)) : undefined;
  const listed = gate.shownRightsOf(principal, view)?.lists(item) === true;
  return { decision, listed, rules, lacking, isAsked: rights.asksAbout(target.upstream) };
}
