import type { CustomFetchOptions, IntrospectionResponse } from 'oauth4webapi';
import type { IntrospectionConfig } from '../config/values/config.ts';
import { clientBasic } from '../egress/client-basic.ts';
import { EgressError } from '../egress/egress-error.ts';
import type { Egress } from '../egress/egress.ts';

/** An answer about a token that says nothing about the issuer: it may judge other tokens. */
export class UnjudgedTokenError extends Error {
  override readonly name = 'UnjudgedTokenError';
}

/** Statuses by which an issuer, or a firewall before it, refuses a request for what is in it. */
const ABOUT_TOKEN: ReadonlySet<number> = new Set([400, 403, 413, 414, 422, 431]);
/** Errors that are about the credentials of the gateway. @see https://www.rfc-editor.org/rfc/rfc6749#section-5.2 */
const ABOUT_CLIENT: ReadonlySet<string> = new Set(['invalid_client', 'unauthorized_client']);

/**
 * Asks an issuer about a token. Redirects are not followed, and the response must be JSON.
 *
 * @throws {UnjudgedTokenError} if the issuer refuses the request for its token.
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
  let isAboutToken = false;
  const fetch = async (url: string, init: CustomFetchOptions<'POST', URLSearchParams>): Promise<Response> => {
    const response = await send(egress, url, init);
    // An issuer says in JSON that the gateway may not ask; a firewall answers with a page.
    isAboutToken = ABOUT_TOKEN.has(response.status) && !(response.status === 403 && isJson(response));
    return response;
  };
  try {
    const response = await oauth.introspectionRequest(server, client, clientBasic(clientSecret), token, {
      additionalParameters: { token_type_hint: 'access_token' },
      // The config allows http to this machine only.
      [oauth.allowInsecureRequests]: true,
      [oauth.customFetch]: fetch,
      requestJwtResponse: false,
    });
    return await oauth.processIntrospectionResponse(server, client, response);
  } catch (thrown) {
    const isAboutClient =
      thrown instanceof oauth.WWWAuthenticateChallengeError ||
      (thrown instanceof oauth.ResponseBodyError && ABOUT_CLIENT.has(thrown.error));
    if (!isAboutToken || isAboutClient) throw thrown;
    throw new UnjudgedTokenError('the issuer refuses to judge the token', { cause: thrown });
  }
}

function isJson(response: Response): boolean {
  return /^application\/json\b/i.test(response.headers.get('content-type') ?? '');
}

/** Sends the request. @throws {EgressError} if the endpoint answers with no JSON. */
async function send(egress: Egress, url: string, init: CustomFetchOptions<'POST', URLSearchParams>): Promise<Response> {
  const { headers, body } = init;
  const request = { method: 'POST', headers, body: body.toString(), keepsConnection: true } as const;
  const response = await egress.fetch(url, 'configured', request);
  if (response.status === 200 && !isJson(response)) {
    throw new EgressError('the introspection endpoint did not answer with JSON');
  }
  return response;
}
