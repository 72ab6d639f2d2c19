import type { HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { GatewayError } from '../errors.ts';
import { isJson } from './accept.ts';
import { readBody, turnAway } from './body.ts';
import type { RequestHeaders } from './headers.ts';
import { refusalText, refuse } from './refusal.ts';

/** The text of a POST, or the answer to one that has none we take. */
export async function receiveText(
  { incoming, outgoing }: HttpBindings,
  { contentType, contentEncoding, contentLength }: RequestHeaders,
  limitBytes: number,
): Promise<string | Response> {
  if (!isJson(contentType)) {
    return refuse(new GatewayError('unsupported-media-type', { say: 'send Content-Type: application/json' }));
  }
  if (contentEncoding !== undefined && contentEncoding.toLowerCase() !== 'identity') {
    return refuse(new GatewayError('unsupported-media-type', { say: 'send the body without Content-Encoding' }));
  }
  const body = await readBody(incoming, limitBytes, contentLength);
  switch (body.kind) {
    case 'text':
      return body.text;
    case 'not-text':
      return refuse(new GatewayError('parse-error', { say: 'the body is not UTF-8' }));
    case 'too-large': {
      const say = `a message may have ${limitBytes} bytes`;
      turnAway(incoming, outgoing, refusalText(new GatewayError('body-too-large', { say })));
      return RESPONSE_ALREADY_SENT;
    }
    case 'gone':
      return RESPONSE_ALREADY_SENT;
  }
}
