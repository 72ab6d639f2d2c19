import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { GatewayError, toRpcError } from '../../errors.ts';
import type { ClientResponse } from '../../gateway/front/client-http.ts';
import type { Id } from '../../protocol/jsonrpc.ts';

/** Returns a JSON-RPC error as the whole response. Without a known id it has no `id`: the schemas allow no `null`. */
export function refusalText(error: GatewayError, id: Id = 'null'): string {
  const member = id === 'null' ? '' : `"id":${id},`;
  return `{"jsonrpc":"2.0",${member}"error":${JSON.stringify(toRpcError(error))}}`;
}

/** Writes a {@link Response} for a request that bypassed the router, unless the response is written already. */
export function writeResponse(outgoing: ClientResponse, response: Response): void {
  if (response !== RESPONSE_ALREADY_SENT) void write(outgoing, response);
}

async function write(outgoing: ClientResponse, response: Response): Promise<void> {
  const text = await response.text();
  const bytes = Buffer.byteLength(text);
  outgoing.writeHead(response.status, [...[...response.headers].flat(), 'content-length', String(bytes)]);
  outgoing.end(text);
}

/** Returns the response to a request that the edge refuses. */
export function refuse(error: GatewayError, id?: Id, headers: Readonly<Record<string, string>> = {}): Response {
  return new Response(refusalText(error, id), {
    status: error.row.http,
    headers: { 'content-type': 'application/json', 'cache-control': 'no-store', ...headers },
  });
}

/** Returns the response to a request to an endpoint that does not exist, or that a reload of the config has removed. */
export function refuseUnknownEndpoint(): Response {
  const message =
    'no such endpoint: the configuration of the gateway has no upstream or profile of this name (any more). ' +
    'Ids are in lower case, with "-" for other characters than a to z and digits';
  return refuse(new GatewayError('not-found', { message }));
}

/** Returns the response to a request whose credentials were revoked while it was received. @param challenge value of `WWW-Authenticate`. */
export function refuseOver(challenge: string, id?: Id): Response {
  const error = new GatewayError('unauthorized', { message: 'the credentials have just expired or been revoked' });
  return refuse(error, id, { 'www-authenticate': challenge });
}

/** Answers a notification or a response with 202 and no body. */
export function writeAccepted(outgoing: ClientResponse): Response {
  outgoing.writeHead(202, { 'content-length': 0 });
  outgoing.end();
  return RESPONSE_ALREADY_SENT;
}
