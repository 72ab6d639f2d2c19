import type { ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { type GatewayError, toRpcError } from '../../errors.ts';
import type { Id } from '../../protocol/jsonrpc.ts';

/**
 * Returns the JSON-RPC error that is a whole HTTP answer. Without a known id it has no `id` member: the schemas allow no `null`.
 */
export function refusalText(error: GatewayError, id: Id = 'null'): string {
  const member = id === 'null' ? '' : `"id":${id},`;
  return `{"jsonrpc":"2.0",${member}"error":${JSON.stringify(toRpcError(error))}}`;
}

/** Writes a {@link Response} for a request that passed the router by. It has a body, or is written already. */
export function writeResponse(outgoing: ServerResponse, response: Response): void {
  if (response !== RESPONSE_ALREADY_SENT) void write(outgoing, response);
}

async function write(outgoing: ServerResponse, response: Response): Promise<void> {
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
