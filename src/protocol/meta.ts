import { isObjectText, RawObject } from '../json/json.ts';
import { unlessMalformed } from '../json/malformed.ts';
import { LIMITS } from '../limits.ts';

/**
 * Keys of `_meta` that the gateway reads or writes: keys that the protocol reserves, then our own.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic#meta
 */
export const META = {
  protocolVersion: 'io.modelcontextprotocol/protocolVersion',
  clientInfo: 'io.modelcontextprotocol/clientInfo',
  clientCapabilities: 'io.modelcontextprotocol/clientCapabilities',
  logLevel: 'io.modelcontextprotocol/logLevel',
  serverInfo: 'io.modelcontextprotocol/serverInfo',
  subscriptionId: 'io.modelcontextprotocol/subscriptionId',
  relatedTask: 'io.modelcontextprotocol/related-task',
  immediateResponse: 'io.modelcontextprotocol/model-immediate-response',
  /** Our own: an upstream has lost the state that it kept for this client. `docs/isolation.md` describes it. */
  stateLost: 'io.linkspan/stateLost',
  /** Our own: a client names a `tools/call` by it, which is then made once. `docs/idempotency.md` describes it. */
  idempotencyKey: 'io.linkspan/idempotencyKey',
  /** Our own: the endpoints of gateways that a list has come through, by pseudonyms. `docs/decisions/0096-circles-of-gateways.md`. */
  endpoints: 'io.linkspan/endpoints',
} as const;

const TOKEN = 'progressToken';
/** A raw string or integer. */
const PROGRESS_TOKEN = /^(?:"|-?\d+$)/;
/**
 * The progress token at the end or at the start of a `_meta`, where clients put it. Neither pattern can match inside
 * another member.
 */
const LAST = /,"progressToken":(\d+|"[^"\\]*")\}$/;
const FIRST = /^\{"progressToken":(\d+|"[^"\\]*"),/;

/**
 * Splits a raw `_meta` into the progress token, which differs in each request, and the rest, which repeats. Returns
 * undefined if it has to be parsed.
 */
export function splitToken(raw: string): { readonly token: string; readonly rest: string } | undefined {
  if (!raw.includes(TOKEN)) return undefined;
  const last = LAST.exec(raw);
  const found = last ?? FIRST.exec(raw);
  const token = found?.[1];
  if (found === null || token === undefined) return undefined;
  const rest = last === null ? `{${raw.slice(found[0].length)}` : `${raw.slice(0, last.index)}}`;
  return rest.includes(TOKEN) || rest.includes('\\') ? undefined : { token, rest };
}

/**
 * Returns the raw progress token of a request, or undefined if its sender wants no progress. A token is a string or an integer; some clients
 * write `null` for none.
 *
 * @throws {JsonTextError}
 */
export function progressTokenOf(params: RawObject | undefined): string | undefined {
  const raw = params?.raw('_meta');
  // A name with escapes could be the token's too.
  if (raw === undefined || !(raw.includes(TOKEN) || raw.includes('\\'))) return undefined;
  const token = splitToken(raw)?.token ?? (isObjectText(raw) ? RawObject.parse(raw).raw(TOKEN) : undefined);
  return token !== undefined && PROGRESS_TOKEN.test(token) ? token : undefined;
}

/** Returns the parameters with this progress token in place of any other. @throws {JsonTextError} */
export function withToken(params: RawObject | undefined, token: number): RawObject {
  return (params ?? RawObject.EMPTY).with('_meta', tokenText(params?.raw('_meta'), token));
}

/** Returns a raw `_meta` with this progress token in place of any other. */
export function tokenText(raw: string | undefined, token: number): string {
  const rest = raw === undefined ? undefined : splitToken(raw)?.rest;
  return rest === undefined ? metaText(raw, [[TOKEN, String(token)]]) : addToken(rest, token);
}

/** Appends a progress token to the text of a `_meta` that has none. */
export function addToken(rest: string, token: number): string {
  return rest === '{}' ? `{"${TOKEN}":${token}}` : `${rest.slice(0, -1)},"${TOKEN}":${token}}`;
}

/**
 * Returns the raw idempotency key of a call; undefined if it has none.
 *
 * @throws {JsonTextError}
 */
export function idempotencyKeyOf(params: RawObject | undefined): string | undefined {
  const raw = params?.raw('_meta');
  // A name with escapes could be the key's too.
  if (raw === undefined || !(raw.includes(META.idempotencyKey) || raw.includes('\\'))) return undefined;
  return isObjectText(raw) ? RawObject.parse(raw).raw(META.idempotencyKey) : undefined;
}

export function withoutIdempotencyKey(params: RawObject): RawObject {
  return withoutMeta(params, [META.idempotencyKey]);
}

const PSEUDONYM = /^[\w-]{16}$/;

/**
 * Returns the pseudonyms of the gateway endpoints that a list has come through. One more than `LIMITS.listEndpoints` of them means that there
 * are too many. Malformed ones, which no gateway writes, are left out.
 */
export function endpointsOf(result: RawObject): readonly string[] {
  const raw = result.raw('_meta');
  if (raw?.includes(META.endpoints) !== true || !isObjectText(raw)) return [];
  return pseudonymsIn(unlessMalformed(() => RawObject.parse(raw).value(META.endpoints), undefined));
}

/** Returns the pseudonyms in a value that was parsed from JSON, each once. */
export function pseudonymsIn(value: unknown): readonly string[] {
  if (!Array.isArray(value)) return [];
  const found = value.filter((one) => typeof one === 'string' && PSEUDONYM.test(one));
  return [...new Set(found)].slice(0, LIMITS.listEndpoints + 1);
}

/** Members of `_meta` in results and notifications that only 2026-07-28 has. */
const MODERN_KEYS = [META.serverInfo, META.subscriptionId];

/** Members of `_meta` that belong to tasks of 2025-11-25. The next revision removed them. */
const CORE_TASK_KEYS = [META.relatedTask, META.immediateResponse];

/** Returns the object without these keys of its `_meta`, and without a `_meta` that becomes empty. */
export function withoutMeta(object: RawObject, keys: readonly string[]): RawObject {
  const meta = object.object('_meta');
  if (meta === undefined) return object;
  let kept = meta;
  for (const key of keys) kept = kept.with(key, undefined);
  return kept === meta ? object : object.with('_meta', kept.size === 0 ? undefined : kept.toString());
}

/** Returns a result, or the parameters of a notification, without the members of `_meta` that only 2026-07-28 has. */
export function withoutModernMeta(object: RawObject): RawObject {
  return withoutMeta(object, MODERN_KEYS);
}

/** Returns the object without the members of `_meta` that belong to 2025-11-25 tasks. */
export function withoutCoreTaskMeta(object: RawObject): RawObject {
  return withoutMeta(object, CORE_TASK_KEYS);
}

type Members = Iterable<readonly [key: string, raw: string | undefined]>;

/**
 * Returns a raw `_meta` with members set to raw JSON text, or removed if undefined. Text that is not an object is
 * replaced.
 */
export function metaText(raw: string | undefined, members: Members): string {
  let meta = isObjectText(raw) ? RawObject.parse(raw) : RawObject.EMPTY;
  for (const [key, member] of members) meta = meta.with(key, member);
  return meta.toString();
}

/** Returns the object with members of its `_meta` set to raw JSON text, or removed if undefined. */
export function withMeta(object: RawObject, members: Members): RawObject {
  return object.with('_meta', metaText(object.raw('_meta'), members));
}
