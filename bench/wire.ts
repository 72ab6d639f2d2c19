import { messagesOf, type Message } from './mcp-client.ts';

/** An endpoint and the credentials of a client. */
export interface Place {
  readonly url: string;
  readonly authorization: string;
}

/** The answer to one message. */
export interface WireAnswer {
  readonly status: number;
  readonly session: string | undefined;
  /** The last message of the body; undefined if there is none. */
  readonly message: Message | undefined;
}

const LEGACY = '2025-11-25';
const MODERN = '2026-07-28';
const CLIENT_INFO = { name: 'soak', version: '1.0.0' };
const META = 'io.modelcontextprotocol/';
const ENVELOPE = {
  [`${META}protocolVersion`]: MODERN,
  [`${META}clientInfo`]: CLIENT_INFO,
  [`${META}clientCapabilities`]: {},
};

type Params = Readonly<Record<string, unknown>>;

/** Posts a body and returns the response once its headers are there. */
export function postBody(
  place: Place,
  body: object,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Response> {
  return fetch(place.url, {
    method: 'POST',
    headers: {
      authorization: place.authorization,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...headers,
    },
    body: JSON.stringify(body),
    signal,
  });
}

async function answerOf(response: Response): Promise<WireAnswer> {
  const text = await response.text();
  const session = response.headers.get('mcp-session-id') ?? undefined;
  const message = messagesOf(text, response.headers.get('content-type') ?? '').at(-1);
  return { status: response.status, session, message };
}

function sessionHeaders(session: string | undefined): Readonly<Record<string, string>> {
  return session === undefined ? {} : { 'mcp-session-id': session, 'mcp-protocol-version': LEGACY };
}

let lastId = 0;

/** Sends a message of 2025-11-25; a request unless its method is that of a notification. @throws {Error} if the connection fails. */
export async function legacy(
  place: Place,
  session: string | undefined,
  method: string,
  params: Params,
  { signal, id = ++lastId }: { readonly signal: AbortSignal; readonly id?: number },
): Promise<WireAnswer> {
  const message = { jsonrpc: '2.0', ...(method.startsWith('notifications/') ? {} : { id }), method, params };
  return await answerOf(await postBody(place, message, sessionHeaders(session), signal));
}

/** Opens a session. @param isWhole false leaves out the notification that ends the handshake. @returns undefined if it is refused. */
export async function openSession(place: Place, signal: AbortSignal, isWhole = true): Promise<string | undefined> {
  const params = { protocolVersion: LEGACY, capabilities: {}, clientInfo: CLIENT_INFO };
  const { session } = await legacy(place, undefined, 'initialize', params, { signal });
  if (session !== undefined && isWhole) await legacy(place, session, 'notifications/initialized', {}, { signal });
  return session;
}

/** Ends a session. Returns the HTTP status. */
export async function deleteSession(place: Place, session: string, signal: AbortSignal): Promise<number> {
  const headers = { authorization: place.authorization, ...sessionHeaders(session) };
  const response = await fetch(place.url, { method: 'DELETE', headers, signal });
  await response.text();
  return response.status;
}

/** Opens the event stream of a session, or of 2024-11-05 if there is none. */
export function openStream(place: Place, session: string | undefined, signal: AbortSignal): Promise<Response> {
  const headers = { authorization: place.authorization, accept: 'text/event-stream', ...sessionHeaders(session) };
  return fetch(place.url, { headers, signal });
}

/** Returns a request of 2026-07-28 with its headers, for names that need no encoding. */
export function modernRequest(
  id: number,
  method: string,
  params: Params,
): { readonly message: object; readonly headers: Readonly<Record<string, string>> } {
  const name = params['name'];
  const headers = {
    'mcp-protocol-version': MODERN,
    'mcp-method': method,
    ...(typeof name === 'string' ? { 'mcp-name': name } : {}),
  };
  return { message: { jsonrpc: '2.0', id, method, params: { ...params, _meta: ENVELOPE } }, headers };
}

/** Sends a request of 2026-07-28, and returns the response once its headers are there. */
export function beginModern(place: Place, method: string, params: Params, signal: AbortSignal): Promise<Response> {
  const { message, headers } = modernRequest(++lastId, method, params);
  return postBody(place, message, headers, signal);
}

/** Sends a request of 2026-07-28 and reads its answer. @throws {Error} if the connection fails. */
export async function modern(place: Place, method: string, params: Params, signal: AbortSignal): Promise<WireAnswer> {
  return await answerOf(await beginModern(place, method, params, signal));
}
