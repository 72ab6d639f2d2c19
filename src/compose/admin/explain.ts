import { type Catalog, resolveResource, sourceByName } from '../../catalog/catalog.ts';
import type { View } from '../../catalog/view.ts';
import { ownerByPrefix } from '../../gateway/calls/availability.ts';
import { type Gate, hintsOf } from '../../gateway/exchange/gate.ts';
import type { ExplainRequest } from '../../operator/admin/admin-port.ts';
import type { ExplainAnswer } from '../../operator/admin/answers.ts';
import { type Item, NO_HINTS, type Reason } from '../../policy/decide.ts';
import type { Principal } from '../../policy/principal.ts';
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
}

type Found = Pick<ExplainAnswer, 'upstream' | 'upstreamName'> & { readonly left?: string | undefined };

/** Explains a decision, in the order in which a request meets its reasons. The decision is that of {@link Gate}. */
export function explain(parts: ExplainParts, query: ExplainQuery): ExplainAnswer {
  const { view, gate, lifecycleOf } = parts;
  const { principal, kind, name, args } = query;
  const reasons: ExplainAnswer['reasons'] = [];
  const found = find(parts, query);
  if (!gate.isOpen && !gate.mayEnter(view, principal)) {
    reasons.push({ about: 'endpoint', text: `it may use nothing at /mcp/${view.id}, which answers 404` });
  }
  const asked = { principal: principal.label, view: view.id, kind, name };
  if (found === undefined) {
    const owner = ownerByPrefix(view, name, kind === 'resource');
    const lifecycle = owner === undefined ? undefined : lifecycleOf(owner);
    if (lifecycle !== undefined && !isUp(lifecycle)) {
      const text = `it has the prefix of upstream "${owner}", which is ${stateText(lifecycle)}: its items may be unknown`;
      reasons.push({ about: 'upstream', text });
    }
    reasons.push({ about: 'list', text: 'no upstream of this endpoint lists it' });
    return { ...asked, effect: 'unknown', isListed: false, reasons };
  }
  const { upstream = '', upstreamName = '', left } = found;
  const lifecycle = lifecycleOf(upstream);
  if (lifecycle !== undefined) {
    reasons.push({ about: 'upstream', text: `upstream "${upstream}" is ${stateText(lifecycle)}` });
  }
  reasons.push({ about: 'list', text: left ?? `upstream "${upstream}" lists it as "${upstreamName}"` });
  const { decision, listed, rules } = decided(parts, query, { upstream, upstreamName });
  for (const { rule, file, line, effect, outcome } of rules) {
    const about = outcome === 'other' ? 'is about other items' : `its condition: ${outcome}`;
    reasons.push({ about: 'rule', text: `${effect} rule "${rule}" ${about}`, place: `${file}:${line}` });
  }
  reasons.push({ about: 'decision', text: left === undefined ? decision.why : 'the config leaves it out' });
  const effect = left === undefined ? decision.effect : 'deny';
  const isListed = left === undefined && listed;
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

function stateText({ phase, reason }: Lifecycle): string {
  return reason === undefined ? phase : `${phase} (${reason})`;
}

/** Returns where an item is; undefined if no upstream lists it. */
function find({ catalog }: ExplainParts, { kind, name, view }: ExplainQuery): Found | undefined {
  if (kind === 'resource') {
    const resource = resolveResource(catalog, name);
    return resource.kind === 'one' ? { upstream: resource.upstream, upstreamName: resource.uri } : undefined;
  }
  const { items } = catalogAnswerOf(catalog, { view, era: 'legacy', upstream: undefined });
  const item = items.find((one) => one.kind === kind && one.name === name);
  if (item === undefined) return undefined;
  const isLeftOut = item.status === 'filtered' || item.status === 'quarantined';
  const { upstream, upstreamName = name, why } = item;
  return { upstream, upstreamName, left: isLeftOut ? `${item.status}: ${why ?? ''}` : undefined };
}

function decided(
  { catalog, gate }: ExplainParts,
  { principal, view, kind, args }: ExplainQuery,
  { upstream, upstreamName }: { readonly upstream: string; readonly upstreamName: string },
) {
  const rules: Reason[] = [];
  const hints = kind === 'tool' ? hintsOf(sourceByName(catalog, upstream, upstreamName)) : NO_HINTS;
  const item: Item = { kind, upstream, name: upstreamName, hints };
  const rights = gate.rightsOf(principal, view);
  if (rights === undefined) {
    const why = 'there is no access policy, so everything is allowed';
    return { decision: { effect: 'allow', why } as const, listed: true, rules };
  }
  const text = args === undefined ? undefined : JSON.stringify(args);
  const decision = text === undefined ? rights.decide(item, rules) : rights.decideCall(item, text, new Date(), rules);
  return { decision, listed: rights.decide(item).effect !== 'deny', rules };
}
