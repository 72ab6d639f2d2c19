import { ERRORS } from '../errors.ts';
import type { ErrorCode } from '../errors.ts';
import type { Answer, RpcError } from '../protocol/jsonrpc.ts';

/** `tool_error`: the tool ran and said it failed (`isError`). `rpc_error`: the upstream answered with an error of its own. */
export type ErrorType = ErrorCode | 'tool_error' | 'rpc_error';

/** One request and how it ended, as the duration histograms label it. */
export interface Operation {
  readonly method: string;
  /** Published name of a tool found in the catalog, never text a client merely sent. */
  readonly tool?: string | undefined;
  /** Undefined for success. */
  readonly error?: ErrorType | undefined;
  /** Revision spoken on this side. */
  readonly revision: string;
  /** In OpenTelemetry's words: `tcp` for HTTP, `pipe` for stdio. */
  readonly transport: 'tcp' | 'pipe';
}

const IS_ERROR = /"isError"\s*:\s*true/;

function isErrorCode(text: unknown): text is ErrorCode {
  return typeof text === 'string' && Object.hasOwn(ERRORS, text);
}

function rowOf({ data }: RpcError): ErrorCode | undefined {
  return typeof data === 'object' && data !== null && 'code' in data && isErrorCode(data.code) ? data.code : undefined;
}

/**
 * How an answer counts. A tool that failed answers with a result, which looks like success to whoever counts statuses.
 *
 * A text search, since a result is not taken apart for a metric. Text that quotes `"isError": true` has its quotes escaped
 * and does not match; a result that carries the member deeper, in structured content, counts as a failed tool.
 */
export function errorTypeOf(method: string, answer: Answer): ErrorType | undefined {
  if (answer.kind === 'error') return rowOf(answer.error) ?? 'rpc_error';
  if (method !== 'tools/call') return undefined;
  const { result, parsedResult } = answer;
  const isError =
    parsedResult === undefined
      ? result.includes('isError"') && IS_ERROR.test(result)
      : parsedResult.raw('isError') === 'true';
  return isError ? 'tool_error' : undefined;
}
