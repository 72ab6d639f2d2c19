import { upstreamIn, type View } from '../../catalog/view.ts';
import type { RawObject } from '../../json/json.ts';

/** Returns the client's id of an elicitation, with the upstream's if the view has several: they may choose the same. */
export function elicitationIdToClient({ upstreams }: View, upstream: string, id: string): string {
  return upstreams.length > 1 ? `${upstream}:${id}` : id;
}

/** Returns an elicitation with the upstream's title, if the client sees several upstreams as one server. */
export function labelled(view: View, upstream: string, params: RawObject): RawObject {
  const viewed = upstreamIn(view, upstream);
  if (viewed === undefined || view.upstreams.length === 1) return params;
  const message = params.string('message') ?? '';
  const id = params.string('elicitationId');
  const named = params.with('message', JSON.stringify(`[${viewed.title}] ${message}`));
  return id === undefined
    ? named
    : named.with('elicitationId', JSON.stringify(elicitationIdToClient(view, upstream, id)));
}
