import { RawObject } from '../json/json.ts';
import { unlessMalformed } from '../json/malformed.ts';
import { memberOf } from '../json/record.ts';
import { type ErrorCode, isErrorCode } from '../errors.ts';
import type { Answer, RpcError } from '../protocol/jsonrpc.ts';

/**
 * `tool_error`: the tool ran and failed (`isError`). `rpc_error`: the upstream answered with a JSON-RPC error of its
 * own.
 */
export type ErrorType = ErrorCode | 'tool_error' | 'rpc_error';

/** One request and its outcome, with the labels of the duration histograms. */
export interface Operation {
  readonly method: string;
  /** Published name of a tool in the catalog; never text that a client sent. */
  readonly tool?: string | undefined;
  /** Undefined for success. */
  readonly error?: ErrorType | undefined;
  /** Revision used with this peer. */
  readonly revision: string;
  /** OpenTelemetry's names: `tcp` for HTTP, `pipe` for stdio. */
  readonly transport: 'tcp' | 'pipe';
}

const IS_ERROR = /"isError"\s*:\s*true/;

function rowOf({ data }: RpcError): ErrorCode | undefined {
  const code = memberOf(data, 'code');
  return isErrorCode(code) ? code : undefined;
}

/** Returns the error label of an upstream's own answer. The data of its errors may look like that of the gateway. */
export function upstreamErrorTypeOf(method: string, answer: Answer): ErrorType | undefined {
  return answer.kind === 'error' ? 'rpc_error' : errorTypeOf(method, answer);
}

/**
 * Returns the error label of an answer, or undefined for success. A failed tool answers with a result, and counts as
 * `tool_error`.
 *
 * Searches the text, so that most results need not be parsed for a metric. Quoted text such as `\"isError\": true` has
 * escaped quotes and does not match.
 */
export function errorTypeOf(method: string, answer: Answer): ErrorType | undefined {
  if (answer.kind === 'error') return rowOf(answer.error) ?? 'rpc_error';
  if (method !== 'tools/call') return undefined;
  const { result, parsedResult } = answer;
  const isError =
    parsedResult === undefined
      ? result.includes('"isError"') && IS_ERROR.test(result) && hasFailed(result)
      : parsedResult.raw('isError') === 'true';
  return isError ? 'tool_error' : undefined;
}

/** Returns whether a result says itself that the tool has failed, and not only something inside it. */
function hasFailed(result: string): boolean {
  return unlessMalformed(() => RawObject.parse(result).raw('isError') === 'true', true);
}
