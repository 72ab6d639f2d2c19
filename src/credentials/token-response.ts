import { jsonOf } from '../json/record.ts';

const FORM = /^application\/x-www-form-urlencoded\b/i;
const JSON_TYPE = /^application\/(?:\w+\+)?json\b/i;

/** The members that the gateway reads. Others would be checked, as an ID token. */
const READ = ['error', 'error_description', 'access_token', 'token_type', 'expires_in', 'scope'];

/**
 * Returns the response of a token endpoint in the form of RFC 6749. Some servers answer with a form, write an error with status 200, give
 * scopes as a list, or leave out `token_type`. Some write `null` or '' for what they do not give.
 */
export async function normalizedTokenResponse(response: Response): Promise<Response> {
  const type = response.headers.get('content-type') ?? '';
  const text = await response.text();
  const members = membersOf(text, type);
  if (members === undefined)
    return new Response(text === '' ? null : text, { status: response.status, headers: response.headers });
  // An empty scope says that the token has none.
  const isThere = (name: string) => (members[name] ?? '') !== '' || (name === 'scope' && members[name] === '');
  const read = Object.fromEntries(READ.filter(isThere).map((name) => [name, members[name]]));
  const { error, scope } = read;
  const isHiddenError = response.status === 200 && typeof error === 'string';
  const body = {
    ...(response.status === 200 ? { token_type: 'bearer' } : {}),
    ...read,
    ...(Array.isArray(scope) ? { scope: scope.join(' ') } : {}),
  };
  return Response.json(body, { status: isHiddenError ? 400 : response.status });
}

function membersOf(text: string, type: string): Readonly<Record<string, unknown>> | undefined {
  if (FORM.test(type)) return Object.fromEntries(new URLSearchParams(text));
  if (!JSON_TYPE.test(type)) return undefined;
  const document = jsonOf(text);
  // The caller reports another text as what it is.
  return typeof document === 'object' && document !== null ? { ...document } : undefined;
}
