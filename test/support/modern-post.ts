import { META } from '../../src/protocol/meta.ts';
import { MODERN } from '../../src/protocol/revisions.ts';
import { type Events, messagesOf, post, postForEvents } from '../downstream/client.ts';
import type { ModernReply } from './modern-client.ts';

export interface PostOptions {
  readonly capabilities?: object;
  readonly headers?: Readonly<Record<string, string>>;
  readonly logLevel?: string;
  readonly progressToken?: string | number;
  readonly id?: string | number;
}

/** What 2026-07-28 repeats of a request in `Mcp-Name`. */
function nameOf(params: object): string | undefined {
  const named = Object.entries(params).find(([key]) => key === 'name' || key === 'uri');
  return named === undefined ? undefined : String(named[1]);
}

let lastId = 0;

function written(method: string, params: object, options: PostOptions) {
  const { capabilities = {}, headers = {}, logLevel, progressToken, id = ++lastId } = options;
  const _meta = {
    [META.protocolVersion]: MODERN,
    [META.clientInfo]: { name: 'test', version: '1' },
    [META.clientCapabilities]: capabilities,
    ...(logLevel === undefined ? {} : { [META.logLevel]: logLevel }),
    ...(progressToken === undefined ? {} : { progressToken }),
  };
  const name = nameOf(params);
  return {
    body: JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta } }),
    headers: {
      'mcp-protocol-version': MODERN,
      'mcp-method': method,
      ...(name === undefined ? {} : { 'mcp-name': name }),
      ...headers,
    },
  };
}

/** One request of 2026-07-28 over HTTP, and everything it is answered with. */
export async function modernPost(url: string, method: string, params: object = {}, options: PostOptions = {}) {
  const { body, headers } = written(method, params, options);
  const got = await post(url, body, undefined, headers);
  const messages = messagesOf(got);
  const last = messages.at(-1) ?? {};
  return { status: got.status, said: messages.slice(0, -1), reply: replyOf(last) };
}

/** The same, read as it comes. */
export async function modernEvents(
  url: string,
  method: string,
  params: object = {},
  options: PostOptions = {},
): Promise<Events> {
  const { body, headers } = written(method, params, options);
  return await postForEvents(url, body, undefined, headers);
}

function replyOf({ result, error }: { readonly result?: unknown; readonly error?: unknown }): ModernReply {
  return { result: JSON.parse(JSON.stringify(result ?? null)) ?? undefined, error: errorIn(error) };
}

function errorIn(error: unknown): ModernReply['error'] {
  return error === undefined ? undefined : JSON.parse(JSON.stringify(error));
}
