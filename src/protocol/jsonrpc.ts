import {
  CLIENT_BOUNDS,
  type JsonBounds,
  JsonTextError,
  type Preparsed,
  quoted,
  RawObject,
  rawItemsStrictly,
  UPSTREAM_BOUNDS,
} from '../json/json.ts';
import { LIMITS } from '../limits.ts';
import { TextCache } from '../json/memo.ts';

/** A request id as raw JSON text (`7`, `"a"`): comparable, and echoed byte for byte. */
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
  /** The same parsed, if it was parsed together with its message. */
  readonly parsedResult?: RawObject;
  /** Of what is given again and again: the result on one line and the brace that ends a response, in UTF-8. */
  readonly tail?: Buffer;
}

/** How a request ended: its result, or an error with all its members. */
export type Answer = Result | { readonly kind: 'error'; readonly error: RpcError };

/** The answer that has nothing to say. */
export const DONE: Answer = { kind: 'result', result: '{}' };

/** Returns the answer with its result parsed. @throws {JsonTextError} when the text is not JSON after all. */
export function parsed(answer: Result): Result & { readonly parsedResult: RawObject } {
  const { kind, result, parsedResult } = answer;
  return { kind, result, parsedResult: parsedResult ?? RawObject.parse(result) };
}

/** `id` is `null` when the peer could not read the id of what it answers. */
export type Response = Answer & { readonly id: Id };

export type Message = Request | Notification | Response;

/** The text is no JSON-RPC message. `id` is the raw id where one could still be read, else `null`. */
export class MessageError extends Error {
  override readonly name = 'MessageError';
  /** -32700 where the text is no JSON, -32600 where it is JSON and no message, or JSON we do not carry. */
  readonly code: -32700 | -32600;
  readonly id: Id;
  /** The bound it goes beyond, or `duplicate` where an object names a member twice. */
  readonly refused: JsonTextError['refused'];

  constructor(code: -32700 | -32600, what: string, id: Id = 'null', refused?: JsonTextError['refused']) {
    super(what);
    this.code = code;
    this.id = id;
    this.refused = refused;
  }
}

const INTEGER_ID = /^(?:0|-?[1-9]\d*)$/;
/** Nearly every id. */
const SHORT_ID = /^[1-9]\d{0,14}$/;

/** Names that must not come in other spellings: some parsers would merge `Method` with `method`. The frequent ones come first. */
class Spelling {
  readonly #names: readonly string[];
  readonly #folded: ReadonlySet<string>;

  constructor(...names: string[]) {
    this.#names = names;
    this.#folded = new Set(names.map(folded));
  }

  /** A name that could be mistaken for one of ours. */
  mistaken(object: RawObject): string | undefined {
    for (const key of object.keys()) {
      if (this.#isOne(key)) continue;
      if (this.#folded.has(folded(key)) || key === '__proto__') return key;
    }
    return undefined;
  }

  #isOne(key: string): boolean {
    for (const name of this.#names) if (name === key) return true;
    return false;
  }
}

/** Through upper case, since Go also takes "paramſ" for "params". */
function folded(name: string): string {
  return name.toUpperCase().toLowerCase();
}

const ENVELOPE = new Spelling('jsonrpc', 'id', 'method', 'params', 'result', 'error');
/** The parameters a gateway routes by. */
const ROUTED = new Spelling(
  'name',
  'arguments',
  '_meta',
  'uri',
  'ref',
  'cursor',
  'requestId',
  'progressToken',
  'taskId',
);

/** Judges escapes and control characters too, unlike elsewhere: an id is echoed into lines and events. */
function isStringId(raw: string): boolean {
  try {
    return typeof JSON.parse(raw) === 'string';
  } catch {
    return false;
  }
}

function isId(raw: string): boolean {
  if (raw.length > LIMITS.requestIdChars) return false;
  if (SHORT_ID.test(raw)) return true;
  // An integer beyond 2^53 is an id too: it is compared and echoed as text.
  return raw.startsWith('"') ? isStringId(raw) : INTEGER_ID.test(raw);
}

function checkSpelling(object: RawObject, spelling: Spelling, id: Id): void {
  const key = spelling.mistaken(object);
  if (key === undefined) return;
  throw new MessageError(-32600, `member "${key.slice(0, 40)}" could be mistaken for another one`, id);
}

function toError(raw: string, id: Id): RpcError {
  const value: unknown = JSON.parse(raw);
  if (typeof value !== 'object' || value === null || !('code' in value) || !('message' in value)) {
    throw new MessageError(-32600, '"error" needs a code and a message', id);
  }
  const { code, message } = value;
  if (typeof code !== 'number' || !Number.isInteger(code) || typeof message !== 'string') {
    throw new MessageError(-32600, '"error" needs an integer code and a message text', id);
  }
  return { ...value, code, message };
}

function toMessage(envelope: RawObject): Message {
  const rawId = envelope.raw('id');
  const id = rawId !== undefined && isId(rawId) ? rawId : 'null';
  checkSpelling(envelope, ENVELOPE, id);
  if (envelope.raw('jsonrpc') !== '"2.0"') {
    throw new MessageError(-32600, '"jsonrpc" must be "2.0"', id);
  }

  if (envelope.raw('method') !== undefined) {
    const method = envelope.string('method');
    if (method === undefined) throw new MessageError(-32600, '"method" must be a string', id);
    if (envelope.raw('result') !== undefined || envelope.raw('error') !== undefined) {
      throw new MessageError(-32600, 'a message is a request or a response, not both', id);
    }
    const params = envelope.object('params');
    if (params === undefined && envelope.raw('params') !== undefined) {
      throw new MessageError(-32600, '"params" must be an object', id);
    }
    if (params !== undefined) checkSpelling(params, ROUTED, id);
    if (rawId === undefined) return { kind: 'notification', method, params };
    if (id === 'null') {
      throw new MessageError(-32600, '"id" must be a string of at most 128 characters or a safe integer');
    }
    return { kind: 'request', id, method, params };
  }

  const result = envelope.raw('result');
  const error = envelope.raw('error');
  if ((result === undefined) === (error === undefined)) {
    throw new MessageError(-32600, 'expected one of "method", "result" and "error"', id);
  }
  if (id === 'null' && (rawId !== 'null' || result !== undefined)) {
    throw new MessageError(-32600, 'a response needs the id of its request');
  }
  if (error !== undefined) return { kind: 'error', id, error: toError(error, id) };
  if (result === undefined || !result.startsWith('{')) throw new MessageError(-32600, '"result" must be an object', id);
  const parsedResult = envelope.preparsed('result');
  return parsedResult === undefined ? { kind: 'result', id, result } : { kind: 'result', id, result, parsedResult };
}

function toMessageError(thrown: unknown, id: Id = 'null'): MessageError {
  if (thrown instanceof MessageError) return thrown;
  if (thrown instanceof JsonTextError && thrown.refused !== undefined) {
    return new MessageError(-32600, `refused: ${thrown.message}`, id, thrown.refused);
  }
  if (thrown instanceof JsonTextError || thrown instanceof SyntaxError) {
    return new MessageError(-32700, `not JSON: ${thrown.message}`, id);
  }
  throw thrown;
}

/** Returns the id of a text that is a message but for what stands inside its strings; else `null`. */
function idOf(text: string): Id {
  try {
    const id = RawObject.parse(text).raw('id');
    return id !== undefined && isId(id) ? id : 'null';
  } catch (thrown) {
    if (thrown instanceof JsonTextError) return 'null';
    throw thrown;
  }
}

/**
 * Reads one JSON-RPC message of an upstream, whose text is relayed: it has to be JSON throughout, strings included.
 *
 * @param preparsed the member that the caller will read: the parameters of a request, or its result.
 * @param isAscii whether the text is known to be.
 * @throws {MessageError}
 * @see https://www.jsonrpc.org/specification
 */
export function parseMessage(text: string, preparsed: Preparsed = 'params', isAscii = false): Message {
  try {
    return toMessage(RawObject.parseStrictly(text, UPSTREAM_BOUNDS, preparsed, isAscii));
  } catch (thrown) {
    throw toMessageError(thrown, thrown instanceof JsonTextError ? idOf(text) : 'null');
  }
}

/** Reads one message of a client: no object in it may name a member twice. @throws {MessageError} */
export function parseClientMessage(text: string): Message {
  try {
    return toMessage(RawObject.parseStrictly(text, CLIENT_BOUNDS, 'params'));
  } catch (thrown) {
    throw toMessageError(thrown);
  }
}

/** Whether the text is a JSON array, which only the 2025-03-26 revision calls a message. */
export function isBatch(text: string): boolean {
  return !text.startsWith('{') && text.trimStart().startsWith('[');
}

/** Names that appear twice in one item refuse that item alone. */
const CLIENT_BATCH_BOUNDS: JsonBounds = { ...CLIENT_BOUNDS, unique: false };

/** Cuts a batch of an upstream into its messages. An item that is no message is its own {@link MessageError}. @throws {MessageError} */
export function parseBatch(text: string): (Message | MessageError)[] {
  return cutBatch(text, UPSTREAM_BOUNDS).map((item) => readItem(item, parseMessage));
}

/** The same for a batch of a client, of at most `maxItems`. @throws {MessageError} */
export function parseClientBatch(text: string, maxItems: number): (Message | MessageError)[] {
  const items = cutBatch(text, CLIENT_BATCH_BOUNDS, maxItems);
  if (items.length === 0 || items.length > maxItems) {
    throw new MessageError(-32600, `a batch holds 1 to ${maxItems} messages`);
  }
  return items.map((item) => readItem(item, parseClientMessage));
}

function cutBatch(text: string, bounds: JsonBounds, most?: number): string[] {
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

const methods = new TextCache<string>();

function method(name: string, params: RawObject | undefined): string {
  const head = methods.of(name, (own) => `"method":${quoted(own)}`);
  return params === undefined ? `${head}}` : `${head},"params":${params.toString()}}`;
}

/** JSON text, ready for a POST body. Where it has to be one line, `oneLine` makes it one. */
export function requestText(id: Id | number, name: string, params: RawObject | undefined): string {
  return `{"jsonrpc":"2.0","id":${id},${method(name, params)}`;
}

export function notificationText(name: string, params: RawObject | undefined): string {
  return `{"jsonrpc":"2.0",${method(name, params)}`;
}

export function responseText(id: Id, answer: Answer): string {
  return answer.kind === 'result'
    ? `{"jsonrpc":"2.0","id":${id},"result":${answer.result}}`
    : `{"jsonrpc":"2.0","id":${id},"error":${JSON.stringify(answer.error)}}`;
}
