import type { Request } from '../../protocol/jsonrpc.ts';
import type { Client } from '../exchange/exchange.ts';
import { type Gate, insufficientScope, type Verdict } from '../exchange/gate.ts';
import { type Route, route, unknownItem } from '../exchange/route.ts';

/** The route of a request, with the decision about it. */
export interface JudgedRoute {
  readonly to: Route;
  /** Undefined without an access policy, and about a name that is unknown. */
  readonly verdict: Verdict | undefined;
}

/**
 * Returns the route of a request if the access policy allows it, else the answer that an unknown name gets. Reports nothing, so that an
 * explanation may ask too.
 */
export function judgedRoute(
  gate: Gate,
  { caller, catalog }: Pick<Client, 'caller' | 'catalog'>,
  request: Request,
  to: Route = route(catalog, request),
): JudgedRoute {
  if (gate.isOpen) return { to, verdict: undefined };
  if (to.kind === 'upstream') {
    const verdict = gate.judge(caller, request, to);
    return { to: verdict?.effect === 'deny' ? denied(request, verdict) : to, verdict };
  }
  if (request.method === 'resources/read') {
    const uri = request.params?.string('uri') ?? '';
    return { to, verdict: gate.judgeHiddenResource({ caller, catalog }, request, uri) };
  }
  const whole = catalog.whole === undefined ? to : route(catalog.whole, request);
  return { to, verdict: whole.kind === 'upstream' ? gate.judgeHidden(caller, request, whole) : undefined };
}

/** Returns the answer to a denied request: that of an unknown name, unless only a scope is missing that the client may get. */
function denied(request: Request, verdict: Verdict): Route {
  const error = insufficientScope(verdict);
  return error === undefined ? unknownItem(request) : { kind: 'nowhere', error };
}
