import { type GatewayError, toRpcError } from '../errors.ts';
import type { Id } from '../protocol/jsonrpc.ts';

/**
 * The JSON-RPC error that is a whole HTTP answer. Where there is no id to name there is no `id`: `null` is none in the schemas.
 */
export function refusalText(error: GatewayError, id: Id = 'null'): string {
  const member = id === 'null' ? '' : `"id":${id},`;
  return `{"jsonrpc":"2.0",${member}"error":${JSON.stringify(toRpcError(error))}}`;
}

/** A request that got no further than the edge. */
export function refuse(error: GatewayError, id?: Id, headers: Readonly<Record<string, string>> = {}): Response {
  return new Response(refusalText(error, id), {
    status: error.row.http,
    headers: { 'content-type': 'application/json', 'cache-control': 'no-store', ...headers },
  });
}
