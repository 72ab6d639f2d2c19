/**
 * Reads and writes the envelope of a 2026-07-28 request: the members of `params._meta` that replace `initialize`.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic#meta
 */

import { isObjectText, RawObject } from '../json/json.ts';
import { TextCache } from '../json/text-cache.ts';
import { addToken, META, metaText, splitToken, tokenText, withoutMeta } from './meta.ts';
import { isModernRevision, type ModernRevision } from './revisions.ts';
import { isSeverity, type Severity } from './severity.ts';

export interface Envelope {
  readonly version: ModernRevision;
  readonly clientCapabilities: RawObject;
  /** Optional in the protocol: a client without it must be served too. */
  readonly clientInfo: RawObject | undefined;
  /** The least severe log message that the client wants; undefined if it wants none. */
  readonly logLevel: Severity | undefined;
}

/**
 * The outcome of reading an envelope. `version` is set whenever it could be read, because it is compared with the HTTP
 * header first.
 *
 * - `none`: no version is named, so this is a legacy request, unless its header says otherwise. `missing` lists the
 *   absent required keys.
 * - `unsupported`: names a version that we do not support.
 * - `malformed`: a required key is missing, or a key has a wrong value.
 */
export type EnvelopeReading =
  | { readonly kind: 'none'; readonly missing: readonly string[] }
  | { readonly kind: 'unsupported'; readonly version: string }
  | { readonly kind: 'malformed'; readonly version: ModernRevision | undefined; readonly why: string }
  | { readonly kind: 'envelope'; readonly version: ModernRevision; readonly envelope: Envelope };

const REQUIRED = [META.protocolVersion, META.clientCapabilities];

/** Members of client capabilities that must be objects if present. */
const CAPABILITIES = ['experimental', 'roots', 'sampling', 'elicitation', 'extensions'];

const OWN_KEYS = [META.protocolVersion, META.clientInfo, META.clientCapabilities, META.logLevel];

function clientInfoFault(meta: RawObject): string | undefined {
  if (meta.raw(META.clientInfo) === undefined) return undefined;
  const info = meta.object(META.clientInfo);
  if (info?.string('name') !== undefined && info.string('version') !== undefined) return undefined;
  return `"${META.clientInfo}" must be an object with a "name" and a "version"`;
}

function capabilitiesFault(meta: RawObject): string | undefined {
  const capabilities = meta.object(META.clientCapabilities);
  if (capabilities === undefined) {
    const isMissing = meta.raw(META.clientCapabilities) === undefined;
    return isMissing ? `"${META.clientCapabilities}" is missing` : `"${META.clientCapabilities}" must be an object`;
  }
  for (const name of CAPABILITIES) {
    const raw = capabilities.raw(name);
    if (raw !== undefined && !isObjectText(raw)) return `"${name}" in "${META.clientCapabilities}" must be an object`;
  }
  return undefined;
}

function logLevelFault(meta: RawObject): string | undefined {
  const isFine = meta.raw(META.logLevel) === undefined || isSeverity(meta.string(META.logLevel));
  return isFine ? undefined : `"${META.logLevel}" is no log level`;
}

/** The reading of nearly every legacy request. */
const NO_ENVELOPE: EnvelopeReading = { kind: 'none', missing: REQUIRED };

/** Readings by raw `_meta`. A client sends the same envelope with every request, so most were read before. */
const readings = new TextCache<EnvelopeReading>();

/** Raw `_meta` with an envelope, by that envelope and the `_meta` without it. Requests of one client mostly repeat both. */
const metas = new TextCache<string>();

/** Reads the envelope from the parameters of a request. @throws {JsonTextError} if `_meta` is not well-formed JSON. */
export function readEnvelope(params: RawObject | undefined): EnvelopeReading {
  const raw = params?.raw('_meta');
  if (raw === undefined) return NO_ENVELOPE;
  return readings.of(raw, (text, isDetached) => {
    const rest = splitToken(text)?.rest;
    return rest === undefined ? readText(text, isDetached) : readings.of(rest, readText);
  });
}

function readText(raw: string, isDetached: boolean): EnvelopeReading {
  return read(isObjectText(raw) ? RawObject.parse(raw) : undefined, isDetached);
}

function read(meta: RawObject | undefined, isDetached: boolean): EnvelopeReading {
  if (meta?.raw(META.protocolVersion) === undefined) {
    return { kind: 'none', missing: REQUIRED.filter((key) => meta?.raw(key) === undefined) };
  }
  const version = meta.string(META.protocolVersion);
  if (version === undefined) {
    return { kind: 'malformed', version, why: `"${META.protocolVersion}" must be a string` };
  }
  if (!isModernRevision(version)) return { kind: 'unsupported', version };
  const why = capabilitiesFault(meta) ?? clientInfoFault(meta) ?? logLevelFault(meta);
  if (why !== undefined) return { kind: 'malformed', version, why };
  const logLevel = meta.string(META.logLevel);
  // Client groups and streams keep both longer than the message.
  const kept = (object: RawObject | undefined) => (isDetached ? object : object?.detached());
  const envelope: Envelope = {
    version,
    clientCapabilities: kept(meta.object(META.clientCapabilities)) ?? RawObject.EMPTY,
    clientInfo: kept(meta.object(META.clientInfo)),
    logLevel: isSeverity(logLevel) ? logLevel : undefined,
  };
  return { kind: 'envelope', version, envelope };
}

/**
 * Returns the parameters with this envelope in place of any other. Other members of `_meta` stay, the progress token
 * included.
 *
 * @param token our progress token, which replaces the sender's.
 */
export function withEnvelope(params: RawObject | undefined, envelope: Envelope, token?: number): RawObject {
  const { version, clientInfo, clientCapabilities, logLevel } = envelope;
  const raw = params?.raw('_meta') ?? '';
  const rest = token === undefined ? raw : splitToken(raw)?.rest;
  const prefix = `${version} ${logLevel} ${clientInfo?.toString()} ${clientCapabilities.toString()} `;
  let meta = metas.of(prefix + (rest ?? raw), (text) =>
    metaText(text.slice(prefix.length), [
      [META.protocolVersion, JSON.stringify(version)],
      [META.clientInfo, clientInfo?.toString()],
      [META.clientCapabilities, clientCapabilities.toString()],
      [META.logLevel, logLevel === undefined ? undefined : JSON.stringify(logLevel)],
    ]),
  );
  if (token !== undefined) meta = rest === undefined ? tokenText(meta, token) : addToken(meta, token);
  return (params ?? RawObject.EMPTY).with('_meta', meta);
}

/** Returns the parameters without the envelope, for a legacy upstream, which learns the same from `initialize`. */
export function withoutEnvelope(params: RawObject): RawObject {
  return withoutMeta(params, OWN_KEYS);
}
