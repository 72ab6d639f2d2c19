/**
 * Requests that take several rounds: a 2026-07-28 server answers with questions, and the client sends its request again with
 * the answers.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
 */

import { RawObject } from '../json/json.ts';

/** The only methods a server may answer with questions. */
const ASKING = new Set(['tools/call', 'prompts/get', 'resources/read']);

/** One entry of `inputRequests`. `key` is the server's, and the answer's too. */
export interface InputRequest {
  readonly key: string;
  readonly method: string;
  readonly params: RawObject | undefined;
}

export interface InputRequired {
  /** In the server's order; may be empty, where the server only wants to be asked again. */
  readonly inputRequests: readonly InputRequest[];
  /** Raw JSON text of a string, to be given back as it is; absent where none was given, and then none may be given back. */
  readonly requestState: string | undefined;
}

/**
 * How a server ended a request.
 *
 * - `complete`, `absent`: its result. Servers of older revisions name no type, and neither do some that should.
 * - `task`: it goes on in a task.
 * - `unknown`: a type of result that nobody declared, which is no valid answer. `resultType` is raw JSON text.
 * - `malformed`: questions that cannot be read or asked; `why` completes "the result …".
 */
export type ResultReading =
  | { readonly kind: 'complete' | 'absent' | 'task'; readonly result: RawObject }
  | { readonly kind: 'input-required'; readonly asked: InputRequired }
  | { readonly kind: 'unknown'; readonly resultType: string }
  | { readonly kind: 'malformed'; readonly why: string };

/** Whether a server may answer this method with questions. */
export function mayAsk(method: string): boolean {
  return ASKING.has(method);
}

/** Whether there is anything in it for the client to come back with; without, it would come back as it went. */
export function isAnswerable({ inputRequests, requestState }: InputRequired): boolean {
  return inputRequests.length > 0 || requestState !== undefined;
}

/** The entries of `inputRequests`; undefined where one of them is no request. @throws {JsonTextError} */
export function readRequests(requests: RawObject): InputRequest[] | undefined {
  const read: InputRequest[] = [];
  for (const key of requests.keys()) {
    const request = requests.object(key);
    const method = request?.string('method');
    const params = request?.object('params');
    if (method === undefined || (params === undefined && request?.raw('params') !== undefined)) return undefined;
    read.push({ key, method, params });
  }
  return read;
}

function readAsked(result: RawObject): ResultReading {
  const requests = result.object('inputRequests');
  if (requests === undefined && result.raw('inputRequests') !== undefined) {
    return { kind: 'malformed', why: 'has "inputRequests" that are no object' };
  }
  const inputRequests = requests === undefined ? [] : readRequests(requests);
  if (inputRequests === undefined)
    return { kind: 'malformed', why: 'has an entry of "inputRequests" that is no request' };
  const requestState = result.raw('requestState');
  if (requestState !== undefined && result.string('requestState') === undefined) {
    return { kind: 'malformed', why: 'has a "requestState" that is no string' };
  }
  const asked = { inputRequests, requestState };
  if (!isAnswerable(asked))
    return { kind: 'malformed', why: 'asks for nothing: no "inputRequests", no "requestState"' };
  return { kind: 'input-required', asked };
}

/** Whether a result that is cut open says in the plainest words that it is what was asked for: then there is nothing to read. */
export function isPlain(result: RawObject | undefined): boolean {
  return result?.raw('resultType') === '"complete"';
}

/** @throws {JsonTextError} when something in it is not JSON after all. */
export function readResult(result: RawObject): ResultReading {
  const resultType = result.raw('resultType');
  if (resultType === undefined) return { kind: 'absent', result };
  const type = result.string('resultType');
  if (type === 'complete' || type === 'task') return { kind: type, result };
  return type === 'input_required' ? readAsked(result) : { kind: 'unknown', resultType };
}

function requestText({ method, params }: InputRequest): string {
  const head = `{"method":${JSON.stringify(method)}`;
  return params === undefined ? `${head}}` : `${head},"params":${params.toString()}}`;
}

/** The member `inputRequests`, as JSON text. Its keys are told apart by the caller. */
export function inputRequestsText(inputRequests: readonly InputRequest[]): string {
  let requests = RawObject.EMPTY;
  for (const request of inputRequests) requests = requests.with(request.key, requestText(request));
  return requests.toString();
}

/** The result that puts questions to a client. Its keys are told apart by the caller. */
export function inputRequiredResult({ inputRequests, requestState }: InputRequired): RawObject {
  return RawObject.EMPTY.with('resultType', '"input_required"')
    .with('inputRequests', inputRequests.length === 0 ? undefined : inputRequestsText(inputRequests))
    .with('requestState', requestState);
}

/** What a client comes back with: raw answers by key, and the raw state it was given. */
export interface Retry {
  readonly inputResponses: RawObject | undefined;
  readonly requestState: string | undefined;
}

/**
 * What the parameters of a request bring back; undefined when it is none, or not as it should be.
 *
 * @throws {JsonTextError} when the text is not JSON after all.
 */
export function readRetry(params: RawObject): Retry | undefined {
  const inputResponses = params.object('inputResponses');
  const requestState = params.raw('requestState');
  if (inputResponses === undefined && params.raw('inputResponses') !== undefined) return undefined;
  if (requestState !== undefined && params.string('requestState') === undefined) return undefined;
  return { inputResponses, requestState };
}

/** The parameters of a request that brings this back, in place of anything it brought before. */
export function withRetry(params: RawObject, { inputResponses, requestState }: Retry): RawObject {
  return params.with('inputResponses', inputResponses?.toString()).with('requestState', requestState);
}
