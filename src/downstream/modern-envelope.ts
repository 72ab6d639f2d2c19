import type { IncomingHttpHeaders } from 'node:http';
import { GatewayError } from '../errors.ts';
import type { ModernCaller } from '../gateway/front/front.ts';
import type { Principal } from '../policy/principal.ts';
import { type Envelope, readEnvelope } from '../protocol/envelope.ts';
import { JsonTextError, RawObject } from '../json/json.ts';
import type { Id, Message, Notification, Request } from '../protocol/jsonrpc.ts';
import { type HeaderLookup, standardHeaderFault } from '../protocol/framing/mcp-headers.ts';
import { isModernRevision, type LegacyRevision, MODERN_REVISIONS, type Revision } from '../protocol/revisions.ts';
import { getOrMake } from '../map-entries.ts';

/** A message of the modern era, or the reason to refuse it. */
export type ModernInput =
  | { readonly kind: 'modern'; readonly request: Request; readonly envelope: Envelope }
  /** Has no effect, and is recorded if it is a notification: each one without a session concerns a request of its own. */
  | { readonly kind: 'ignored'; readonly message: Notification }
  | { readonly kind: 'refused'; readonly error: GatewayError; readonly id: Id; readonly answer?: undefined };

const VERSION = 'mcp-protocol-version';

/** Returns a look-up of headers. Requests with a repeated header of MCP are refused before. */
export function headerLookup(headers: IncomingHttpHeaders): HeaderLookup {
  return (wanted) => {
    const value = headers[wanted];
    return typeof value === 'string' ? value : undefined;
  };
}

/** The client as a request without a session describes it. */
type ClientDescription = Omit<Envelope, 'version'> & { readonly version: Revision };

/** Returns the description of a client that says no more than a revision. */
function silent<R extends LegacyRevision>(version: R): ClientDescription & { readonly version: R } {
  return { version, clientCapabilities: RawObject.EMPTY, logLevel: undefined, clientInfo: undefined };
}

/** The client of a request of the legacy era without a session, by revision. A later revision has tasks, which belong to a session. */
export const SESSIONLESS = {
  '2024-11-05': silent('2024-11-05'),
  '2025-03-26': silent('2025-03-26'),
  '2025-06-18': silent('2025-06-18'),
} as const;

/** The callers of each principal by view, by description. */
const callers = new WeakMap<ClientDescription, WeakMap<Principal, Map<string, ModernCaller>>>();

/** Returns the caller of a request. Requests of one client mostly get the same object. */
export function callerOf(client: ClientDescription, principal: Principal, view: string): ModernCaller {
  const byPrincipal = getOrMake(callers, client, () => new WeakMap<Principal, Map<string, ModernCaller>>());
  const byView = getOrMake(byPrincipal, principal, () => new Map<string, ModernCaller>());
  return getOrMake(byView, view, () => {
    const { version, clientCapabilities, logLevel, clientInfo } = client;
    return { principal, view, revision: version, capabilities: clientCapabilities, logLevel, clientInfo };
  });
}

function unsupported(requested: string): GatewayError {
  const message = `without initialize, this endpoint supports only ${MODERN_REVISIONS.join(' and ')}`;
  return new GatewayError('unsupported-revision', { message, data: { supported: MODERN_REVISIONS, requested } });
}

function readRequestEnvelope(message: Request, lookup: HeaderLookup | undefined): Envelope | GatewayError | undefined {
  const header = lookup?.(VERSION)?.trim();
  const reading = readEnvelope(message.params);
  if (reading.kind === 'none') {
    // A request without an envelope is legacy, unless its header names a modern revision.
    if (!isModernRevision(header) || message.method === 'initialize') return undefined;
    return new GatewayError('invalid-envelope', { message: `"params._meta" needs ${reading.missing.join(' and ')}` });
  }
  if (lookup !== undefined && reading.version !== undefined && header !== reading.version) {
    const fault = header === undefined ? 'is missing' : `says ${header.slice(0, 40)}, and the body ${reading.version}`;
    return new GatewayError('header-mismatch', { message: `the MCP-Protocol-Version header ${fault}` });
  }
  if (reading.kind === 'unsupported') return unsupported(reading.version);
  if (reading.kind === 'malformed') return new GatewayError('invalid-envelope', { message: reading.why });
  const fault = lookup === undefined ? undefined : standardHeaderFault(message, lookup);
  return fault === undefined ? reading.envelope : new GatewayError('header-mismatch', { message: fault });
}

/**
 * Reads a message of the modern era. Returns undefined for a legacy message. The envelope decides; a header alone
 * decides only if there is no envelope.
 *
 * @param lookup the request's headers; undefined over stdio.
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
 */
export function readModern(message: Message, lookup: HeaderLookup | undefined): ModernInput | undefined {
  const id = message.kind === 'request' ? message.id : 'null';
  try {
    if (message.kind === 'notification') {
      const isModern = isModernRevision(lookup?.(VERSION)?.trim()) || readEnvelope(message.params).kind !== 'none';
      return isModern ? { kind: 'ignored', message } : undefined;
    }
    if (message.kind !== 'request') return undefined;
    const envelope = readRequestEnvelope(message, lookup);
    if (envelope === undefined) return undefined;
    if (envelope instanceof GatewayError) return { kind: 'refused', error: envelope, id };
    return { kind: 'modern', request: message, envelope };
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
    return { kind: 'refused', error: new GatewayError('invalid-envelope', { message: thrown.message }), id };
  }
}
