import type { CustomFetchOptions, IntrospectionResponse } from 'oauth4webapi';
import type { IntrospectionConfig } from '../config/config.ts';
import { clientBasic } from '../egress/client-basic.ts';
import { EgressError } from '../egress/egress-error.ts';
import type { Egress } from '../egress/egress.ts';

/**
 * Asks an issuer about a token. Redirects are not followed, and the response must be JSON.
 *
 * @throws if the issuer does not answer within 5 s and 256 KiB, or refuses the request, such as for a wrong secret.
 * @see https://www.rfc-editor.org/rfc/rfc7662
 */
export async function introspect(
  { issuer, endpoint, clientId, clientSecret }: IntrospectionConfig,
  token: string,
  egress: Egress,
): Promise<IntrospectionResponse> {
  // Loaded only here, since most gateways need none of it.
  const oauth = await import('oauth4webapi');
  const server = { issuer, introspection_endpoint: endpoint };
  const client = { client_id: clientId };
  const response = await oauth.introspectionRequest(server, client, clientBasic(clientSecret), token, {
    additionalParameters: { token_type_hint: 'access_token' },
    // The config allows http to this machine only.
    [oauth.allowInsecureRequests]: true,
    [oauth.customFetch]: (url: string, init: CustomFetchOptions<'POST', URLSearchParams>) => send(egress, url, init),
    requestJwtResponse: false,
  });
  return await oauth.processIntrospectionResponse(server, client, response);
}

/** Sends the request. @throws {EgressError} if the endpoint answers with no JSON. */
async function send(egress: Egress, url: string, init: CustomFetchOptions<'POST', URLSearchParams>): Promise<Response> {
  const { headers, body } = init;
  const request = { method: 'POST', headers, body: body.toString(), keepsConnection: true } as const;
  const response = await egress.fetch(url, 'configured', request);
  const type = response.headers.get('content-type') ?? '';
  if (response.status === 200 && !/^application\/json\b/i.test(type)) {
    throw new EgressError('the introspection endpoint did not answer with JSON');
  }
  return response;
}
