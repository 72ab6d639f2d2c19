import { type Events, type Got, messagesOf, post, postForEvents } from '../downstream/client.ts';
import type { ModernReply } from './modern-client.ts';
import { isRecord } from '../../src/json/record.ts';

export const MODERN = '2026-07-28';

const KEY = 'io.modelcontextprotocol/';

export interface WireOptions {
  readonly id?: number | string;
  readonly capabilities?: object;
  /** Further members of `params._meta`. Undefined removes a default one. */
  readonly meta?: Readonly<Record<string, unknown>>;
  /** Further headers. Undefined removes a default one. */
  readonly headers?: Readonly<Record<string, string | undefined>>;
}

type Params = Readonly<Record<string, unknown>>;

/** Returns the text of one request of 2026-07-28. */
export function modernText(method: string, params: Params = {}, options: WireOptions = {}): string {
  const { id = 1, capabilities = {}, meta = {} } = options;
  const _meta = {
    [`${KEY}protocolVersion`]: MODERN,
    [`${KEY}clientInfo`]: { name: 'test', version: '1' },
    [`${KEY}clientCapabilities`]: capabilities,
    ...meta,
  };
  return JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta } });
}

/** Returns the headers of a request, for names and URIs that need no encoding. */
export function modernHeaders(
  method: string,
  params: Params = {},
  { headers = {} }: WireOptions = {},
): Record<string, string | undefined> {
  const name = params['name'] ?? params['uri'] ?? params['taskId'];
  return {
    'mcp-protocol-version': MODERN,
    'mcp-method': method,
    'mcp-name': typeof name === 'string' ? name : undefined,
    ...headers,
  };
}

export function modernPost(url: string, method: string, params?: Params, options?: WireOptions): Promise<Got> {
  return post(url, modernText(method, params, options), undefined, modernHeaders(method, params, options));
}

/** Sends a request, and reads its response event by event. */
export function modernEvents(url: string, method: string, params?: Params, options?: WireOptions): Promise<Events> {
  return postForEvents(url, modernText(method, params, options), undefined, modernHeaders(method, params, options));
}

/** Returns the answer: the last message of the response, JSON or events. */
export function answerOf(got: Got): ModernReply & { readonly id?: unknown } {
  const { id, result, error } = messagesOf(got).at(-1) ?? {};
  return { id, result: isRecord(result) ? result : undefined, error: isFailure(error) ? error : undefined };
}

function isFailure(value: unknown): value is NonNullable<ModernReply['error']> {
  return isRecord(value) && typeof value['code'] === 'number' && typeof value['message'] === 'string';
}

/** Returns the result of a request that must succeed. */
export async function modernResult(
  url: string,
  method: string,
  params?: Params,
  options?: WireOptions,
): Promise<NonNullable<ModernReply['result']>> {
  const got = await modernPost(url, method, params, options);
  const { result } = answerOf(got);
  if (result === undefined) throw new Error(`${method}: ${got.status} ${got.text}`);
  return result;
}
