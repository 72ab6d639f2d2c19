import {
  CLIENT_BOUNDS,
  checkJson,
  type JsonBounds,
  JsonTextError,
  type Preparsed,
  quoted,
  RawObject,
  rawItemsStrictly,
  UNAMBIGUOUS_BOUNDS,
  UPSTREAM_BOUNDS,
} from '../json/json.ts';
import { isMalformed, unlessMalformed } from '../json/malformed.ts';
import { jsonOf } from '../json/record.ts';
import { LIMITS, type LimitName } from '../limits.ts';
import { BACKSLASH, CLOSE_OBJECT, OPEN_OBJECT, QUOTE } from '../json/scan.ts';
import { MemberNames } from './member-names.ts';
import { RPC } from './rpc-codes.ts';

/**
 * A request id as raw JSON text (`7`, `"a"`, `1.0`), echoed byte for byte. Ids of requests are compared by {@link idKey}; those of
 * responses are such keys.
 */
export type Id = string;

export interface Request {
  readonly kind: 'request';
  readonly id: Id;
  readonly method: string;
  readonly params: RawObject | undefined;
}

export interface Notification {
  readonly kind: 'notification';
  readonly method: string;
  readonly params: RawObject | undefined;
}

export interface RpcError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
}

export interface Result {
  readonly kind: 'result';
  /** Raw text of an object. */
  readonly result: string;
  /** The parsed `result`, if it was parsed together with its message. */
  readonly parsedResult?: RawObject;
  /** For results that are sent repeatedly: `result` on one line plus the closing brace of a response, in UTF-8, in parts. */
  readonly tail?: readonly Buffer[];
}

export function tailBytes(tail: readonly Buffer[]): number {
  return tail.reduce((bytes, part) => bytes + part.length, 0);
}

/** The outcome of a request: its result, or an error with all its members. */
export type Answer =
  | Result
  | {
      readonly kind: 'error';
      readonly error: RpcError;
      /** The scopes that the challenge of an HTTP response names; undefined for none. It is not in `error`, which a peer may have written. */
      readonly scopes?: readonly string[];
    };

export function errorAnswer(code: number, message: string): Answer {
  return { kind: 'error', error: { code, message } };
}

export const EMPTY_RESULT: Answer = { kind: 'result', result: '{}' };

/** Returns the answer with its result parsed. @throws {JsonTextError} if the text is not JSON. */
export function parsed(answer: Result): Result & { readonly parsedResult: RawObject } {
  const { kind, result, parsedResult } = answer;
  return { kind, result, parsedResult: parsedResult ?? RawObject.parse(result) };
}

/** `id` is `null` when the peer could not read the id of what it answers. */
export type Response = Answer & { readonly id: Id };

export type Message = Request | Notification | Response;

type MessageFault = typeof RPC.parseError | typeof RPC.invalidRequest;

/** Reports a text that is not a JSON-RPC message. `id` is the raw id if it could be read, else `null`. */
export class MessageError extends Error {
  override readonly name = 'MessageError';
  readonly code: MessageFault;
  readonly id: Id;
  /** The bound that the text exceeds, `duplicate` if an object names a member twice, or `no-object` if the text is another value. */
  readonly refused: JsonTextError['refused'] | 'no-object';
  /** True if the message is a response, so that the request with the id has no other answer. */
  readonly isResponse: boolean;

  constructor(
    code: MessageFault,
    message: string,
    id: Id = 'null',
    refused?: MessageError['refused'],
    isResponse = false,
  ) {
    super(message);
    this.code = code;
    this.id = id;
    this.refused = refused;
    this.isResponse = isResponse;
  }

  /** The bound that the text exceeds; undefined if the message is invalid for another reason. */
  get limit(): LimitName | undefined {
    return this.refused === 'duplicate' || this.refused === 'no-object' ? undefined : this.refused;
  }
}

/** Matches nearly every id. */
const SHORT_ID = /^[1-9]\d{0,14}$/;
const INTEGER = /^(?:0|-?[1-9]\d*)$/;
const NUMBER = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/;

const ENVELOPE = new MemberNames(['jsonrpc', 'id', 'method', 'params', 'result', 'error']);
/** Parameters that the gateway routes by. */
const ROUTED = new MemberNames([
  'name',
  'arguments',
  '_meta',
  'uri',
  'ref',
  'cursor',
  'requestId',
  'progressToken',
  'taskId',
  'task',
  'requestState',
  'inputResponses',
]);

/** Checks escapes and control characters too, because an id is echoed into lines and events. */
function isStringId(raw: string): boolean {
  return typeof jsonOf(raw) === 'string';
}

/**
 * Returns the digits of a JSON number that is an integer, however it is written (`1.0`, `1e2`). An integer beyond 2^53 keeps all of
 * them. Returns undefined for other values, and for an integer of too many digits.
 */
function integerText(raw: string): string | undefined {
  if (INTEGER.test(raw)) return raw;
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = NUMBER.exec(raw) ?? [];
  if (whole === '') return undefined;
  const digits = `${whole}${fraction}`.replace(/^0+/, '');
  if (digits === '') return '0';
  const zeros = Number(exponent) - fraction.length;
  if (zeros >= 0) return digits.length + zeros > LIMITS.requestIdChars ? undefined : sign + digits + '0'.repeat(zeros);
  return /[1-9]/.test(digits.slice(zeros)) ? undefined : sign + digits.slice(0, zeros);
}

/** Returns the key of a raw id; undefined if the value is no id. */
function keyOf(raw: string): Id | undefined {
  if (raw.length > LIMITS.requestIdChars) return undefined;
  if (SHORT_ID.test(raw)) return raw;
  if (raw.startsWith('"')) return isStringId(raw) ? raw : undefined;
  return integerText(raw);
}

/**
 * Returns a text that is equal for equal ids, by which a request is found. JSON Schema counts `1.0` and `1e0` as the integer `1`. Returns
 * other values as they are.
 */
export function idKey(raw: string): Id {
  return raw.startsWith('"') ? raw : (keyOf(raw) ?? raw);
}

function invalidId(raw: string | undefined): MessageError {
  const isLong = raw !== undefined && raw.length > LIMITS.requestIdChars;
  const message = `"id" must be a string or an integer of at most ${LIMITS.requestIdChars} characters`;
  return new MessageError(RPC.invalidRequest, message, 'null', isLong ? 'requestIdChars' : undefined);
}

/** Returns the error for a response that is not valid. @param id that of its request, `null` if it cannot be read. */
function invalidResponse(message: string, id: Id): MessageError {
  return new MessageError(RPC.invalidRequest, message, id, undefined, id !== 'null');
}

/** Returns the answer to a request whose response is not valid. */
export function invalidAnswer({ id, message }: MessageError): Response {
  return { kind: 'error', id, error: { code: RPC.invalidRequest, message: `the answer is not valid: ${message}` } };
}

function refuseLookalikes(object: RawObject, spelling: MemberNames, id: Id): void {
  const key = spelling.findLookalike(object);
  if (key === undefined) return;
  throw new MessageError(RPC.invalidRequest, `member "${key.slice(0, 40)}" could be mistaken for another one`, id);
}

/** The texts of errors of peers that would read differently if they were written again, such as long numbers in `data`. */
const errorTexts = new WeakMap<RpcError, string>();

/** Returns whether a text is JSON at all levels in which no object names a member twice, so that every reader reads the same. */
export function isUnambiguous(text: string): boolean {
  return unlessMalformed(() => {
    checkJson(text, UNAMBIGUOUS_BOUNDS);
    return true;
  }, false);
}

function toError(raw: string, id: Id): RpcError {
  const value: unknown = JSON.parse(raw);
  if (typeof value !== 'object' || value === null || !('code' in value) || !('message' in value)) {
    throw invalidResponse('"error" needs a code and a message', id);
  }
  const { code, message } = value;
  if (typeof code !== 'number' || !Number.isInteger(code) || typeof message !== 'string') {
    throw invalidResponse('"error" needs an integer code and a message text', id);
  }
  const error = { ...value, code, message };
  // Some readers take no other spelling of an integer.
  const isKept = JSON.stringify(error) !== raw && RawObject.parse(raw).raw('code') === String(code);
  if (isKept) keepErrorText(error, raw);
  return error;
}

/** Makes an error of a peer be written with the text it had. */
export function keepErrorText(error: RpcError, text: string): void {
  if (isUnambiguous(text)) errorTexts.set(error, text);
}

/** Returns the text of an error of a peer that would read differently if it were written again; undefined for another one. */
export function errorTextOf(error: RpcError): string | undefined {
  return errorTexts.get(error);
}

function toMessage(envelope: RawObject): Message {
  const rawId = envelope.raw('id');
  const key = rawId === undefined ? undefined : keyOf(rawId);
  const isResponse = envelope.raw('method') === undefined;
  const id = rawId === undefined || key === undefined ? 'null' : isResponse ? key : rawId;
  refuseLookalikes(envelope, ENVELOPE, id);
  if (envelope.raw('jsonrpc') !== '"2.0"') {
    throw new MessageError(RPC.invalidRequest, '"jsonrpc" must be "2.0"', id);
  }

  if (!isResponse) {
    const method = envelope.string('method');
    if (method === undefined) throw new MessageError(RPC.invalidRequest, '"method" must be a string', id);
    if (envelope.raw('result') !== undefined || envelope.raw('error') !== undefined) {
      throw new MessageError(RPC.invalidRequest, 'a message is a request or a response, not both', id);
    }
    const params = envelope.object('params');
    if (params === undefined && (envelope.raw('params') ?? 'null') !== 'null') {
      throw new MessageError(RPC.invalidRequest, '"params" must be an object', id);
    }
    if (params !== undefined) refuseLookalikes(params, ROUTED, id);
    if (rawId === undefined) return { kind: 'notification', method, params };
    if (id === 'null') {
      throw invalidId(rawId);
    }
    return { kind: 'request', id, method, params };
  }

  // Some peers write the absent one as null.
  const rawResult = envelope.raw('result');
  const rawError = envelope.raw('error');
  const error = rawError === 'null' && rawResult !== undefined ? undefined : rawError;
  const result = rawResult === 'null' && error !== undefined ? undefined : rawResult;
  if (result === undefined && error === undefined) {
    throw new MessageError(RPC.invalidRequest, 'expected one of "method", "result" and "error"', id);
  }
  if (result !== undefined && error !== undefined) {
    throw invalidResponse('expected one of "result" and "error"', id);
  }
  // A peer that could not read the id leaves it out in an error, or sends null.
  if (id === 'null' && ((rawId ?? 'null') !== 'null' || result !== undefined)) {
    throw new MessageError(RPC.invalidRequest, 'a response needs the id of its request');
  }
  if (error !== undefined) return { kind: 'error', id, error: toError(error, id) };
  if (result === undefined || !result.startsWith('{')) throw invalidResponse('"result" must be an object', id);
  const parsedResult = envelope.preparsed('result');
  return parsedResult === undefined ? { kind: 'result', id, result } : { kind: 'result', id, result, parsedResult };
}

/** @param id that of the request that the text answers, `null` if it is unknown. */
function toMessageError(thrown: unknown, id: Id = 'null'): MessageError {
  if (thrown instanceof MessageError) return thrown;
  if (thrown instanceof JsonTextError && thrown.refused !== undefined) {
    return new MessageError(RPC.invalidRequest, `refused: ${thrown.message}`, id, thrown.refused, id !== 'null');
  }
  if (isMalformed(thrown)) {
    return new MessageError(RPC.parseError, `not JSON: ${thrown.message}`, id, undefined, id !== 'null');
  }
  throw thrown;
}

/** The text between the name `id` and the end of its value, if the value is one of the gateway's own ids. Some peers make a text of it. */
const OWN_ID_VALUE = /[\t\n\r ]*:[\t\n\r ]*("?)(\d{1,16})(?:\.0)?\1[\t\n\r ]*[,}]/y;

/**
 * Returns the id of a response that is no JSON or exceeds a bound, so that its request can fail; `null` for a request. Only scans the
 * text, because parsing it would take memory in proportion to its depth.
 */
function idOfBrokenResponse(text: string): Id {
  let id: Id | undefined;
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    // Brackets and braces differ in one bit.
    if ((code | 0x20) === OPEN_OBJECT) depth++;
    else if ((code | 0x20) === CLOSE_OBJECT) depth--;
    if (code !== QUOTE) continue;
    const start = i;
    for (i++; i < text.length && text.charCodeAt(i) !== QUOTE; i++) if (text.charCodeAt(i) === BACKSLASH) i++;
    if (depth !== 1) continue;
    const name = text.slice(start, i + 1);
    if (name === '"method"') return 'null';
    if (name !== '"id"') continue;
    OWN_ID_VALUE.lastIndex = i + 1;
    const [, , value] = OWN_ID_VALUE.exec(text) ?? [];
    if (value === undefined || id !== undefined) return 'null';
    id = value;
  }
  return id ?? 'null';
}

/** Parses the object of one message. @throws {MessageError} if the text is another JSON value. @throws {JsonTextError} */
function readObject(text: string, bounds: JsonBounds, preparsed: Preparsed): RawObject {
  if (text.startsWith('{') || text.trimStart().startsWith('{')) return RawObject.parseStrictly(text, bounds, preparsed);
  checkJson(text, bounds);
  throw new MessageError(RPC.invalidRequest, 'a message must be a JSON object', 'null', 'no-object');
}

/**
 * Parses one JSON-RPC message of an upstream. The text is relayed, so all of it must be JSON, strings included.
 *
 * @param preparsed the member that the caller reads: the parameters of a request, or the result.
 * @throws {MessageError} if the text is not JSON, not a message, or exceeds {@link UPSTREAM_BOUNDS}.
 * @see https://www.jsonrpc.org/specification
 */
export function parseMessage(text: string, preparsed: Preparsed = 'params'): Message {
  try {
    return toMessage(readObject(text, UPSTREAM_BOUNDS, preparsed));
  } catch (thrown) {
    throw toMessageError(thrown, thrown instanceof JsonTextError ? idOfBrokenResponse(text) : 'null');
  }
}

/** Parses one message of a client. No object in it may name a member twice. @throws {MessageError} */
export function parseClientMessage(text: string): Message {
  try {
    return toMessage(readObject(text, CLIENT_BOUNDS, 'params'));
  } catch (thrown) {
    throw toMessageError(thrown);
  }
}

/** Returns whether the text is a JSON array. Only revision 2025-03-26 accepts one as a message (a batch). */
export function isBatch(text: string): boolean {
  return !text.startsWith('{') && text.trimStart().startsWith('[');
}

/** A duplicate member name refuses its item only, so the batch as a whole is read without that check. */
const CLIENT_BATCH_BOUNDS: JsonBounds = { ...CLIENT_BOUNDS, unique: false };

/**
 * Splits a batch of an upstream into its messages. An invalid item becomes a {@link MessageError} in the list. @throws
 * {MessageError} if the text is not an array, or has too many items.
 */
export function parseBatch(text: string): (Message | MessageError)[] {
  const most = LIMITS.upstreamBatchMessages;
  const items = splitBatch(text, UPSTREAM_BOUNDS, most);
  if (items.length > most) {
    const why = `a batch holds at most ${most} messages`;
    throw new MessageError(RPC.invalidRequest, why, 'null', 'upstreamBatchMessages');
  }
  return items.map((item) => readItem(item, parseMessage));
}

/** Splits a batch of a client, which must hold 1 to `maxItems` messages. @throws {MessageError} */
export function parseClientBatch(text: string, maxItems: number): (Message | MessageError)[] {
  const items = splitBatch(text, CLIENT_BATCH_BOUNDS, maxItems);
  if (items.length === 0 || items.length > maxItems) {
    const limit = items.length === 0 ? undefined : 'batchMessages';
    throw new MessageError(RPC.invalidRequest, `a batch holds 1 to ${maxItems} messages`, 'null', limit);
  }
  return items.map((item) => readItem(item, parseClientMessage));
}

function splitBatch(text: string, bounds: JsonBounds, most?: number): string[] {
  try {
    return rawItemsStrictly(text, bounds, most);
  } catch (thrown) {
    throw toMessageError(thrown);
  }
}

function readItem(text: string, parse: (text: string) => Message): Message | MessageError {
  try {
    return parse(text);
  } catch (thrown) {
    return toMessageError(thrown);
  }
}

function method(name: string, params: RawObject | undefined): string {
  const head = `"method":${quoted(name)}`;
  return params === undefined ? `${head}}` : `${head},"params":${params.toString()}}`;
}

/** Returns the JSON text of a request, for a POST body. For a stdio line or an event, pass it through `oneLine`. */
export function requestText(id: Id | number, name: string, params: RawObject | undefined): string {
  return `{"jsonrpc":"2.0","id":${id},${method(name, params)}`;
}

export function notificationText(name: string, params: RawObject | undefined): string {
  return `{"jsonrpc":"2.0",${method(name, params)}`;
}

/** Returns the JSON text of a response. An error of a peer that is passed on unchanged keeps its text, as results do. */
export function responseText(id: Id, answer: Answer): string {
  if (answer.kind === 'result') return `{"jsonrpc":"2.0","id":${id},"result":${answer.result}}`;
  const { error } = answer;
  return `{"jsonrpc":"2.0","id":${id},"error":${errorTexts.get(error) ?? JSON.stringify(error)}}`;
}
