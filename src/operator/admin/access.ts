import { hash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { ApiKeys } from '../../auth/api-key.ts';
import { credentialsOf } from '../../auth/bearer.ts';
import type { RefusalCode } from './answers.ts';

/** The reason to refuse a request whatever it asks for. */
export type SenderFault = Extract<RefusalCode, 'unauthorized' | 'forbidden' | 'invalid-request'>;

/** Counts and records a refused request. @param incoming undefined if it has not come over HTTP. */
export type OnRefused = (error: SenderFault, incoming: IncomingMessage | undefined) => void;

/** The operator of a request, or the reason to refuse it. */
export type Access =
  | { readonly kind: 'operator'; readonly name: string }
  | { readonly kind: 'refused'; readonly error: SenderFault; readonly message: string };

const HOW =
  'Send "Authorization: Bearer <key>" with a key of gateway.operatorKeys. The CLI on the machine of the gateway reads its key from the state directory.';

/**
 * Decides whether a request may use the admin API. A browser never sends the key by itself, so a page cannot forge a
 * request; requests of other origins are refused nevertheless.
 */
export function admitOperator(headers: Pick<Headers, 'get'>, operators: ApiKeys): Access {
  // `Host` was checked already.
  const [host, origin, site] = [headers.get('host'), headers.get('origin'), headers.get('sec-fetch-site')];
  const isForeign = origin !== null && origin !== `http://${host}` && origin !== `https://${host}`;
  const isCrossSite = site !== null && site !== 'same-origin' && site !== 'none';
  if (isForeign || isCrossSite) {
    const message = 'Requests of web pages of other origins are not allowed.';
    return { kind: 'refused', error: 'forbidden', message };
  }
  // Several headers arrive joined by a comma, which no token contains.
  const authorization = headers.get('authorization') ?? '';
  const credentials = credentialsOf(authorization === '' ? [] : [authorization]);
  if (credentials.kind === 'malformed' || credentials.kind === 'none') {
    const error = credentials.kind === 'none' ? 'unauthorized' : 'invalid-request';
    return { kind: 'refused', error, message: `${credentials.why}. ${HOW}` };
  }
  const principal = operators.find(hash('sha256', credentials.token));
  if (principal === undefined) {
    const message = `This key is not one of an operator; keys of clients are not accepted here. ${HOW}`;
    return { kind: 'refused', error: 'unauthorized', message };
  }
  return { kind: 'operator', name: principal.label };
}
