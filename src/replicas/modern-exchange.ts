import { jsonOf } from '../json/record.ts';
import { z } from 'zod';
import { RawObject } from '../json/json.ts';
import { answerText, readAnswer } from '../gateway/exchange/answer-text.ts';
import { MAX_HOPS } from '../gateway/exchange/owners.ts';
import type { ModernCaller } from '../gateway/front/front.ts';
import type { Principal } from '../policy/principal.ts';
import type { Answer, Request } from '../protocol/jsonrpc.ts';
import { isRevision } from '../protocol/revisions.ts';
import { SEVERITIES } from '../protocol/severity.ts';

const REQUEST = z.strictObject({
  id: z.string(),
  method: z.string(),
  params: z.string().exactOptional(),
  view: z.string(),
  revision: z.string(),
  capabilities: z.string(),
  logLevel: z.enum(SEVERITIES).exactOptional(),
  clientInfo: z.string().exactOptional(),
  hops: z
    .int()
    .min(1)
    .max(MAX_HOPS + 1),
});

const MESSAGE = z.strictObject({ message: z.string() });

/** Returns a modern request with its caller, except the principal, as text. */
export function requestBody({ id, method, params }: Request, caller: ModernCaller): string {
  const { view, revision, capabilities, logLevel, clientInfo, hops = 0 } = caller;
  // A member without a value is not written.
  return JSON.stringify({
    id,
    method,
    params: params?.toString(),
    view,
    revision,
    capabilities: capabilities.toString(),
    logLevel,
    clientInfo: clientInfo?.toString(),
    hops: hops + 1,
  });
}

/** Returns the headers of a request on the way to another replica. One of an older version reads only the first two. */
export function requestHeaders(text: string, { allowedItem }: ModernCaller): readonly string[] {
  const headers = ['content-type', 'application/json', 'content-length', String(Buffer.byteLength(text))];
  return allowedItem === undefined ? headers : [...headers, ALLOWED_ITEM, allowedItem];
}

/** Names the item about which an external decision has allowed the request. One that is missing or not understood costs a second question. */
const ALLOWED_ITEM = 'linkspan-allowed-item';

/** Parses the text of {@link requestBody} with {@link requestHeaders}. Returns undefined if it is of another version. */
export function parseRequestBody(
  text: string,
  principal: Principal,
  headers: readonly string[],
): { readonly request: Request; readonly caller: ModernCaller } | undefined {
  const { data } = REQUEST.safeParse(jsonOf(text));
  if (data === undefined || !isRevision(data.revision)) return undefined;
  const { id, method, params, view, revision, capabilities, logLevel, clientInfo, hops } = data;
  return {
    request: { kind: 'request', id, method, params: params === undefined ? undefined : RawObject.parse(params) },
    caller: {
      principal,
      view,
      revision,
      capabilities: RawObject.parse(capabilities),
      logLevel,
      hops,
      allowedItem: valueOf(headers, ALLOWED_ITEM),
      ...(clientInfo === undefined ? {} : { clientInfo: RawObject.parse(clientInfo) }),
    },
  };
}

/** Returns the value of a header in a list of names and values. */
function valueOf(headers: readonly string[], name: string): string | undefined {
  return headers.find((_, at) => at % 2 === 1 && headers[at - 1] === name);
}

/** Returns a message on the way to the answer as a line. */
export function messageLine(message: string): string {
  return `${JSON.stringify({ message })}\n`;
}

/** Returns an answer as the last line. */
export function answerLine(answer: Answer): string {
  return `${answerText(answer)}\n`;
}

/** A line of the answer to a modern request. */
export type Line =
  | { readonly kind: 'message'; readonly message: string }
  | { readonly kind: 'answer'; readonly answer: Answer };

/** Parses a line. Returns undefined if it is of another version. */
export function parseLine(text: string): Line | undefined {
  const line = jsonOf(text);
  const { data } = MESSAGE.safeParse(line);
  if (data !== undefined) return { kind: 'message', message: data.message };
  const read = readAnswer(line);
  return read === undefined ? undefined : { kind: 'answer', answer: read.answer };
}
