import type { ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { type GatewayError, toRpcError } from '../../errors.ts';
import type { Id } from '../../protocol/jsonrpc.ts';

/**
 * The JSON-RPC error that is a whole HTTP answer. Where there is no id to name there is no `id`: `null` is none in the schemas.
 */
export function refusalText(error: GatewayError, id: Id = 'null'): string {
  const member = id === 'null' ? '' : `"id":${id},`;
  return `{"jsonrpc":"2.0",${member}"error":${JSON.stringify(toRpcError(error))}}`;
}

/** Writes what a {@link Response} of ours says, for a request that no router sees. Every one of them has a body, or is written. */
export function writeResponse(outgoing: ServerResponse, response: Response): void {
  if (response !== RESPONSE_ALREADY_SENT) void write(outgoing, response);
}

async function write(outgoing: ServerResponse, response: Response): Promise<void> {
  const text = await response.text();
  const bytes = Buffer.byteLength(text);
  outgoing.writeHead(response.status, [...[...response.headers].flat(), 'content-length', String(bytes)]);
  outgoing.end(text);
}

/** A request that got no further than the edge. */
export function refuse(error: GatewayError, id?: Id, headers: Readonly<Record<string, string>> = {}): Response {
  return new Response(refusalText(error, id), {
    status: error.row.http,
    headers: { 'content-type': 'application/json', 'cache-control': 'no-store', ...headers },
  });
}
