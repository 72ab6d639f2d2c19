/**
 * Reads and writes multi-round-trip requests (MRTR): a 2026-07-28 server answers with input requests, and the client
 * sends its request again with the responses.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr
 */

import { isObjectText, RawObject } from '../json/json.ts';
import { LIMITS } from '../limits.ts';
import { isUnambiguous } from './jsonrpc.ts';
import { lookalike, MemberNames } from './member-names.ts';

/** The methods that a server may answer with `input_required`. */
const INPUT_METHODS = new Set(['tools/call', 'prompts/get', 'resources/read']);

/** One entry of `inputRequests`. The server chooses `key`; the response uses the same key. */
export interface InputRequest {
  readonly key: string;
  readonly method: string;
  readonly params: RawObject | undefined;
}

export interface InputRequired {
  /** In the server's order. Empty if the server only wants the request again. */
  readonly inputRequests: readonly InputRequest[];
  /** Raw JSON text of a string that the client returns unchanged; undefined if the server sent none. */
  readonly requestState: string | undefined;
  /** The other members of the result, such as `_meta`; undefined if the gateway asks for itself. */
  readonly rest?: RawObject;
}

/**
 * The outcome of reading a result.
 *
 * - `complete`, `absent`: the result itself. Servers of older revisions send no `resultType`, nor do some modern ones.
 * - `task`: the request continues as a task.
 * - `unknown`: a `resultType` that nobody declared, which is an invalid answer. `resultType` is raw JSON text.
 * - `malformed`: input requests that cannot be read. `why` completes the sentence "the result …".
 */
export type ResultReading =
  | { readonly kind: 'complete' | 'absent' | 'task'; readonly result: RawObject }
  | { readonly kind: 'input-required'; readonly asked: InputRequired }
  | { readonly kind: 'unknown'; readonly resultType: string }
  | { readonly kind: 'malformed'; readonly why: string };

export function mayRequireInput(method: string): boolean {
  return INPUT_METHODS.has(method);
}

/** Returns whether a request with these parameters continues one that was answered with questions. */
export function isRetry(params: RawObject | undefined): boolean {
  return params?.raw('requestState') !== undefined;
}

/**
 * Returns the entries of `inputRequests`, or undefined if one of them is not a request, or has a member twice. Of more than may be
 * asked, one too many is returned.
 */
export function readRequests(raw: string): InputRequest[] | undefined {
  if (!isObjectText(raw) || !isUnambiguous(raw)) return undefined;
  const requests = RawObject.parse(raw);
  const read: InputRequest[] = [];
  for (const key of requests.keys().slice(0, LIMITS.questionsPerCall + 1)) {
    const request = requests.object(key);
    const method = request?.string('method');
    const params = request?.object('params');
    if (method === undefined || (params === undefined && request?.raw('params') !== undefined)) return undefined;
    read.push({ key, method, params });
  }
  return read;
}

function readInputRequired(result: RawObject): ResultReading {
  const inputRequests = readRequests(result.raw('inputRequests') ?? '{}');
  if (inputRequests === undefined) return { kind: 'malformed', why: 'has "inputRequests" that are no requests' };
  const requestState = result.raw('requestState');
  if (requestState !== undefined && result.string('requestState') === undefined) {
    return { kind: 'malformed', why: 'has a "requestState" that is no string' };
  }
  // A retry would equal the first request.
  if (inputRequests.length === 0 && requestState === undefined) {
    return { kind: 'malformed', why: 'asks for nothing: no "inputRequests", no "requestState"' };
  }
  return { kind: 'input-required', asked: { inputRequests, requestState, rest: result.without(NOT_RELAYED) } };
}

/** Members that {@link inputRequiredResult} writes itself, and those about caches: a question is for one caller. */
const NOT_RELAYED = ['resultType', 'inputRequests', 'requestState', 'ttlMs', 'cacheScope'];

/** Members that make a result, or the state of a task, a question. */
const ASKING = new MemberNames(
  ['resultType', 'inputRequests', 'requestState'],
  ['content', 'isError', 'structuredContent', '_meta', 'contents', 'messages', 'description', 'ttlMs', 'cacheScope'],
);

/** Returns the member of a result that a lenient client could take for questions, which nobody has judged; undefined for none. */
export function findHiddenQuestion(result: RawObject): string | undefined {
  return ASKING.findLookalike(result);
}

/** Returns a result or task of a legacy server, whose own questions are never in it, without what {@link findHiddenQuestion} finds. */
export function withoutHiddenQuestions(result: RawObject): RawObject {
  return ASKING.withoutLookalikes(result);
}

/** Reads the `resultType` of a result and what belongs to it. @throws {JsonTextError} if a member is not JSON. */
export function readResult(result: RawObject): ResultReading {
  const odd = findHiddenQuestion(result);
  if (odd !== undefined) return { kind: 'malformed', why: `has a member ${lookalike(odd)}` };
  const resultType = result.raw('resultType');
  if (resultType === undefined) return { kind: 'absent', result };
  const type = result.string('resultType');
  if (type === 'complete' || type === 'task') return { kind: type, result };
  return type === 'input_required' ? readInputRequired(result) : { kind: 'unknown', resultType };
}

function requestText({ method, params }: InputRequest): string {
  const head = `{"method":${JSON.stringify(method)}`;
  return params === undefined ? `${head}}` : `${head},"params":${params.toString()}}`;
}

/** Returns the member `inputRequests` as JSON text. The caller provides unique keys. */
export function inputRequestsText(inputRequests: readonly InputRequest[]): string {
  let requests = RawObject.EMPTY;
  for (const request of inputRequests) requests = requests.with(request.key, requestText(request));
  return requests.toString();
}

/** Returns the `input_required` result for a client. The caller provides unique keys. */
export function inputRequiredResult({ inputRequests, requestState, rest = RawObject.EMPTY }: InputRequired): RawObject {
  return rest
    .with('resultType', '"input_required"')
    .with('inputRequests', inputRequests.length === 0 ? undefined : inputRequestsText(inputRequests))
    .with('requestState', requestState);
}

/** The additions of a retry: raw responses by key, and the raw state that the client received. */
export interface Retry {
  readonly inputResponses: RawObject | undefined;
  readonly requestState: string | undefined;
}

/**
 * Reads a retry from the parameters of a request. Returns undefined if a member is malformed.
 *
 * @throws {JsonTextError} if the text is not JSON.
 */
export function readRetry(params: RawObject): Retry | undefined {
  const inputResponses = params.object('inputResponses');
  const requestState = params.raw('requestState');
  if (inputResponses === undefined && params.raw('inputResponses') !== undefined) return undefined;
  if (requestState !== undefined && params.string('requestState') === undefined) return undefined;
  return { inputResponses, requestState };
}

/** Returns the parameters of a request with this retry in place of any earlier one. */
export function withRetry(params: RawObject, { inputResponses, requestState }: Retry): RawObject {
  return params.with('inputResponses', inputResponses?.toString()).with('requestState', requestState);
}

/** Returns the parameters without a retry, for a server of an older revision. */
export function withoutRetry(params: RawObject): RawObject {
  return params.without(['inputResponses', 'requestState']);
}
