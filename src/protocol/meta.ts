import { isObjectText, RawObject } from '../json/json.ts';
import { TextCache } from '../json/memo.ts';

/** Keys of `_meta` that have a meaning here, those that the protocol reserves first. @see https://modelcontextprotocol.io/specification/2026-07-28/basic#meta */
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
} as const;

const TOKEN = 'progressToken';
/** The token at the end of a `_meta` or at its start, where clients put it. Neither can stand inside of anything else. */
const LAST = /,"progressToken":(\d+|"[^"\\]*")\}$/;
const FIRST = /^\{"progressToken":(\d+|"[^"\\]*"),/;

/** A raw `_meta` in two: the token, which is one request's own, and the rest, which comes again. Undefined where it takes reading. */
export function splitToken(raw: string): { readonly token: string; readonly rest: string } | undefined {
  if (!raw.includes(TOKEN)) return undefined;
  const last = LAST.exec(raw);
  const found = last ?? FIRST.exec(raw);
  const token = found?.[1];
  if (found === null || token === undefined) return undefined;
  const rest = last === null ? `{${raw.slice(found[0].length)}` : `${raw.slice(0, last.index)}}`;
  return rest.includes(TOKEN) || rest.includes('\\') ? undefined : { token, rest };
}

/** Of each `_meta` that was seen before, so that it is judged whether or not it has a token. */
const tokens = new TextCache<{ readonly token: string | undefined }>();

/** The raw token under which the sender of a request wants to hear of progress. @throws {JsonTextError} */
export function progressTokenOf(params: RawObject | undefined): string | undefined {
  const raw = params?.raw('_meta');
  return raw === undefined ? undefined : tokens.of(raw, readToken).token;
}

function readToken(raw: string): { readonly token: string | undefined } {
  const split = splitToken(raw);
  if (split === undefined) return { token: isObjectText(raw) ? RawObject.parse(raw).raw(TOKEN) : undefined };
  tokens.of(split.rest, readToken);
  return split;
}

/** Parameters with this token in place of any other. @throws {JsonTextError} */
export function withToken(params: RawObject | undefined, token: number): RawObject {
  return (params ?? RawObject.EMPTY).with('_meta', tokenText(params?.raw('_meta'), token));
}

/** The same for the raw text of a `_meta`. */
export function tokenText(raw: string | undefined, token: number): string {
  const rest = raw === undefined ? undefined : splitToken(raw)?.rest;
  return rest === undefined ? metaText(raw, [[TOKEN, String(token)]]) : addToken(rest, token);
}

/** The same for the text of an object that has none. */
export function addToken(rest: string, token: number): string {
  return rest === '{}' ? `{"${TOKEN}":${token}}` : `${rest.slice(0, -1)},"${TOKEN}":${token}}`;
}

/** What a result or a notification says of itself in 2026-07-28, and in no older revision. */
const MODERN_KEYS = [META.serverInfo, META.subscriptionId];

/** The same for the tasks of 2025-11-25, which the next revision took out again. */
const CORE_TASK_KEYS = [META.relatedTask, META.immediateResponse];

/** The object without these keys of its `_meta`; without any `_meta`, where nothing else is in it. */
export function withoutMeta(object: RawObject, keys: readonly string[]): RawObject {
  const meta = object.object('_meta');
  if (meta === undefined) return object;
  let kept = meta;
  for (const key of keys) kept = kept.with(key, undefined);
  return kept === meta ? object : object.with('_meta', kept.size === 0 ? undefined : kept.toString());
}

/** A result, or the parameters of a notification, without what 2026-07-28 alone says in its `_meta`. */
export function withoutModernMeta(object: RawObject): RawObject {
  return withoutMeta(object, MODERN_KEYS);
}

/** The same without the marks of 2025-11-25 tasks. */
export function withoutCoreTaskMeta(object: RawObject): RawObject {
  return withoutMeta(object, CORE_TASK_KEYS);
}

type Members = Iterable<readonly [key: string, raw: string | undefined]>;

/** The raw text of a `_meta` with members set to raw JSON text or, given undefined, left out. What is no object is replaced. */
export function metaText(raw: string | undefined, members: Members): string {
  let meta = isObjectText(raw) ? RawObject.parse(raw) : RawObject.EMPTY;
  for (const [key, member] of members) meta = meta.with(key, member);
  return meta.toString();
}

/** The same for the object that has the `_meta`. */
export function withMeta(object: RawObject, members: Members): RawObject {
  return object.with('_meta', metaText(object.raw('_meta'), members));
}
