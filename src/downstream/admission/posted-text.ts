import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { GatewayError } from '../../errors.ts';
import type { ClientHttp } from '../../gateway/front/client-http.ts';
import { isJson } from './accept.ts';
import { type BodyLimits, readBody, refuseBody } from './request-body.ts';
import type { RequestHeaders } from './headers.ts';
import { refusalText, refuse } from './refusal.ts';
import { LIMITS } from '../../limits.ts';

const RETRY_AFTER_S = 1;
const REQUEST_TIMEOUT = 408;

/** Returns the error that refuses a body with these headers unread, or undefined. */
export function refuseMedia({ contentType, contentEncoding }: RequestHeaders): GatewayError | undefined {
  if (!isJson(contentType)) {
    return new GatewayError('unsupported-media-type', { message: 'send Content-Type: application/json' });
  }
  if (contentEncoding !== undefined && contentEncoding.toLowerCase() !== 'identity') {
    return new GatewayError('unsupported-media-type', { message: 'send the body without Content-Encoding' });
  }
  return undefined;
}

/**
 * Calls `take` with the text of a POST, or with the response that refuses it.
 *
 * @param contentLength the Content-Length header, if present.
 */
export function receiveText(
  { incoming, outgoing }: ClientHttp,
  contentLength: string | undefined,
  limits: BodyLimits,
  take: (text: string | Response) => void,
): void {
  const refuseUnfinished = (error: GatewayError, status: number, headers?: Readonly<Record<string, string>>): void => {
    refuseBody(incoming, outgoing, status, refusalText(error), headers);
    take(RESPONSE_ALREADY_SENT);
  };
  readBody(incoming, limits, contentLength, (body) => {
    switch (body.kind) {
      case 'text':
        take(body.text);
        return;
      case 'not-text':
        take(refuse(new GatewayError('parse-error', { message: 'the body is not UTF-8' })));
        return;
      case 'too-large': {
        const mostBytes = Math.min(limits.limitBytes, limits.budget.principalBytes);
        const error = new GatewayError('body-too-large', { message: `a message may have ${mostBytes} bytes` });
        refuseUnfinished(error, error.row.http);
        return;
      }
      case 'no-room': {
        const error = new GatewayError('overloaded', {
          message: 'too many large requests are being received; try again',
        });
        refuseUnfinished(error, error.row.http, { 'retry-after': String(RETRY_AFTER_S) });
        return;
      }
      case 'stalled': {
        const message = `nothing of the body came for ${LIMITS.bodyStallMs / 1_000} s; send it again`;
        refuseUnfinished(new GatewayError('invalid-request', { message }), REQUEST_TIMEOUT);
        return;
      }
      case 'gone':
        take(RESPONSE_ALREADY_SENT);
    }
  });
}

export function postedText(env: ClientHttp, headers: RequestHeaders, limits: BodyLimits): Promise<string | Response> {
  const refused = refuseMedia(headers);
  if (refused !== undefined) return Promise.resolve(refuse(refused));
  return new Promise((resolve) => receiveText(env, headers.contentLength, limits, resolve));
}
