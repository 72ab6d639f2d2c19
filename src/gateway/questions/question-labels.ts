import type { RawObject } from '../../json/json.ts';
import type { Client } from '../exchange/exchange.ts';

/**
 * Returns the client's id of an elicitation, with the upstream's id if the view has several: two upstreams may choose
 * the same one.
 */
export function elicitationIdToClient(client: Client, upstream: string, id: string): string {
  return client.catalog.view.upstreams.length > 1 ? `${upstream}:${id}` : id;
}

/**
 * Returns the params of an elicitation with the upstream's title in the message, if the client sees several upstreams
 * as one server.
 */
export function labelled(client: Client, upstream: string, params: RawObject): RawObject {
  const { upstreams } = client.catalog.view;
  const viewed = upstreams.find(({ id }) => id === upstream);
  if (viewed === undefined || upstreams.length === 1) return params;
  const message = params.string('message') ?? '';
  const id = params.string('elicitationId');
  const named = params.with('message', JSON.stringify(`[${viewed.title}] ${message}`));
  return id === undefined
    ? named
    : named.with('elicitationId', JSON.stringify(elicitationIdToClient(client, upstream, id)));
}
