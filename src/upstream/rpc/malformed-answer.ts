import { type GatewayError, upstreamError } from '../../errors.ts';
import type { MessageError } from '../../protocol/jsonrpc.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { sentBackId } from './request-ids.ts';

/** Returns whether a malformed text on the stream of a request was most likely its answer. A message with another id, or none, was not. */
export function wasAnswerTo(id: number, { id: sentBack, code, refused }: MessageError): boolean {
  const isText = code === RPC.parseError || (refused !== undefined && refused !== 'requestIdChars');
  return isText || sentBackId(sentBack) === id;
}

/**
 * Returns the error of a request whose answer is no JSON-RPC message. Names the exceeded bound. Other reasons may quote the
 * answer, so they are only in the cause, for the log.
 */
export function malformedAnswer(upstream: string, error: MessageError): GatewayError {
  const problem =
    error.limit === undefined
      ? 'answered with something that is not JSON-RPC'
      : `sent an answer that was ${error.message}`;
  return upstreamError('upstream-protocol', upstream, problem, {}, error);
}

/** Returns the error of a request whose answer is larger than the limit. */
export function oversizedAnswer(upstream: string, limitBytes: number): GatewayError {
  return upstreamError('too-large', upstream, `answered with more than ${limitBytes} bytes`);
}
