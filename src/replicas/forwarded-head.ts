import { jsonOf } from '../json/record.ts';
import { z } from 'zod';
import { MAX_HOPS } from '../gateway/exchange/owners.ts';
import type { Principal } from '../policy/principal.ts';

const PRINCIPAL = z.strictObject({
  key: z.string(),
  label: z.string(),
  issuer: z.string().exactOptional(),
  subject: z.string().exactOptional(),
  clientId: z.string().exactOptional(),
  scopes: z.array(z.string()),
  person: z.string().exactOptional(),
  keyName: z.string().exactOptional(),
  keyId: z.string().exactOptional(),
  expiresAtMs: z.number().exactOptional(),
  groups: z.array(z.string()).exactOptional(),
  claims: z.record(z.string(), z.unknown()).exactOptional(),
});

const SENDER = z.strictObject({
  /** Version of the head. */
  v: z.literal(1),
  /** The member that the request is for. */
  to: z.string(),
  principal: PRINCIPAL,
  /** The endpoint that the principal was authenticated for. */
  view: z.string(),
  token: z.string().exactOptional(),
});

const FORWARDED = z.strictObject({
  /** Names this request, and no other. */
  call: z.uuid(),
  /**
   * `http`: a request of a client as it came. `modern`: the text of a modern request and its caller. `message`: a message about a request
   * that is in flight. `admin`: an operation for an operator; see `operator-question.ts`.
   */
  kind: z.enum(['http', 'modern', 'message', 'admin']),
  method: z.string(),
  /** The target of the request as the client sent it, such as `/mcp`. */
  target: z.string(),
  headers: z.array(z.string()),
  /** The number of replicas that have passed the request on before. Default: 0. */
  hops: z.int().min(1).max(MAX_HOPS).exactOptional(),
});

/** The part of a head that is the same for all requests of a client. */
export interface ForwardedSender {
  /** The member that the request is for. */
  readonly to: string;
  readonly principal: Principal;
  /** The endpoint that the principal was authenticated for. */
  readonly view: string;
  /** The token of the principal, if an upstream gets tokens that are exchanged for it; undefined otherwise. */
  readonly token?: string | undefined;
}

/** The part of a head that belongs to one request. */
export interface ForwardedLine extends Readonly<Omit<z.output<typeof FORWARDED>, 'headers'>> {
  /** The raw headers: name, value, name, value. */
  readonly headers: readonly string[];
}

/** The description of a request of a client that a replica passes on. */
export interface ForwardedHead extends ForwardedSender, ForwardedLine {}

/** Returns the part of a head that many requests share, as text. */
export function senderText({ to, principal, view, token }: ForwardedSender): string {
  const { key, person, label, issuer, subject, clientId, scopes, keyName, keyId, expiresAtMs, groups, claims } =
    principal;
  // A member without a value is not written.
  const known = { key, label, issuer, subject, clientId, scopes, person, keyName, keyId, expiresAtMs, groups, claims };
  return JSON.stringify({ v: 1, to, principal: known, view, token });
}

/** Returns the part of a head that belongs to one request, as text. */
export function forwardedText({ call, kind, method, target, headers, hops = 0 }: ForwardedLine): string {
  return JSON.stringify({ call, kind, method, target, headers, ...(hops === 0 ? {} : { hops }) });
}

const MAX_KEPT = 1_000;
/** The characters of all kept texts together. Tokens with many claims make long ones, and rights are found once for each principal object. */
const MAX_KEPT_CHARS = 4_096_000;

/** Parses heads. Keeps parsed senders by their text, because most requests have the same sender as an earlier one. */
export class ForwardedHeadParser {
  readonly #senders = new Map<string, ForwardedSender>();
  #chars = 0;

  /** Returns the head in two texts; undefined if they are no head of this version. */
  parse(sender: string, forwarded: string): ForwardedHead | undefined {
    const known = this.#senders.get(sender) ?? this.#parseSender(sender);
    const { data } = FORWARDED.safeParse(jsonOf(forwarded));
    if (known === undefined || data === undefined) return undefined;
    const { to, principal, view, token } = known;
    return { to, principal, view, ...(token === undefined ? {} : { token }), ...data };
  }

  #parseSender(text: string): ForwardedSender | undefined {
    const { data } = SENDER.safeParse(jsonOf(text));
    if (data === undefined || text.length > MAX_KEPT_CHARS) return data;
    if (this.#senders.size >= MAX_KEPT || this.#chars + text.length > MAX_KEPT_CHARS) {
      this.#senders.clear();
      this.#chars = 0;
    }
    this.#senders.set(text, data);
    this.#chars += text.length;
    return data;
  }
}

/** Headers of clients that are passed on: those that the edge reads after admission. Never credentials, cookies or addresses. */
const REQUEST_HEADERS: ReadonlySet<string> = new Set([
  'accept',
  'content-type',
  'content-encoding',
  'content-length',
  'transfer-encoding',
  'mcp-session-id',
  'mcp-protocol-version',
  'mcp-method',
  'mcp-name',
  'last-event-id',
  'traceparent',
  'tracestate',
]);

/** Headers that describe the body as the client sent it. */
const BODY_HEADERS: ReadonlySet<string> = new Set(['content-encoding', 'content-length', 'transfer-encoding']);

/** Beginning of the headers that repeat arguments of a call. */
const PARAM_HEADER = 'mcp-param-';

/** Headers of answers that reach the client. */
const RESPONSE_HEADERS: ReadonlySet<string> = new Set([
  'allow',
  'cache-control',
  'content-length',
  'content-type',
  'mcp-session-id',
  'retry-after',
  'www-authenticate',
  'x-accel-buffering',
]);

/** Returns the raw headers of a request that are passed on. */
export function forwardedHeaders(raw: readonly string[]): string[] {
  return selectedHeaders(raw, (name) => REQUEST_HEADERS.has(name) || name.startsWith(PARAM_HEADER));
}

/** Returns the raw headers of a request whose body was read, with those of its text. */
export function textHeaders(raw: readonly string[], text: string): string[] {
  const rest = selectedHeaders(forwardedHeaders(raw), (name) => !BODY_HEADERS.has(name));
  return [...rest, 'content-length', String(Buffer.byteLength(text))];
}

/** Returns the raw headers of an answer that are passed on. */
export function answeredHeaders(raw: readonly string[]): string[] {
  return selectedHeaders(raw, (name) => RESPONSE_HEADERS.has(name));
}

/** Returns the raw headers whose names, in lower case, are to be passed on. */
export function selectedHeaders(raw: readonly string[], isPassedOn: (name: string) => boolean): string[] {
  const headers: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] ?? '';
    if (isPassedOn(name.toLowerCase())) headers.push(name, raw[i + 1] ?? '');
  }
  return headers;
}
