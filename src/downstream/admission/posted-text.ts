import type { HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { GatewayError } from '../../errors.ts';
import { isJson } from './accept.ts';
import { readBody, refuseBody } from './request-body.ts';
import type { RequestHeaders } from './headers.ts';
import { refusalText, refuse } from './refusal.ts';

/** Why a body with these headers is not even read. */
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
 * Hands on the text of a POST, or the answer to one that has none we take.
 *
 * @param contentLength the header, where there is one.
 */
export function receiveText(
  { incoming, outgoing }: HttpBindings,
  contentLength: string | undefined,
  limitBytes: number,
  take: (text: string | Response) => void,
): void {
  readBody(incoming, limitBytes, contentLength, (body) => {
    switch (body.kind) {
      case 'text':
        take(body.text);
        return;
      case 'not-text':
        take(refuse(new GatewayError('parse-error', { message: 'the body is not UTF-8' })));
        return;
      case 'too-large': {
        const message = `a message may have ${limitBytes} bytes`;
        refuseBody(incoming, outgoing, refusalText(new GatewayError('body-too-large', { message })));
        take(RESPONSE_ALREADY_SENT);
        return;
      }
      case 'gone':
        take(RESPONSE_ALREADY_SENT);
    }
  });
}

/** The text of a POST, or the answer to one that has none we take. */
export function postedText(env: HttpBindings, headers: RequestHeaders, limitBytes: number): Promise<string | Response> {
  const refused = refuseMedia(headers);
  if (refused !== undefined) return Promise.resolve(refuse(refused));
  return new Promise((resolve) => receiveText(env, headers.contentLength, limitBytes, resolve));
}
