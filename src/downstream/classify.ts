import { GatewayError } from '../errors.ts';
import {
  type Id,
  isBatch,
  type Message,
  MessageError,
  parseClientBatch,
  parseClientMessage,
  type Request,
} from '../protocol/jsonrpc.ts';
import type { HeaderLookup } from '../protocol/mcp-headers.ts';
import { type ModernSaid, readModern } from './modern.ts';
import { isLegacyRevision, LEGACY_REVISIONS, quirksOf, type Revision } from '../protocol/revisions.ts';

/** One message, or the items of a batch, of which each may be broken by itself. */
export type Said = Message | readonly (Message | MessageError)[];

/** What the headers say about the session a request belongs to. */
interface SessionHeaders {
  readonly sessionId: string | undefined;
  readonly version: string | undefined;
}

interface Refused {
  readonly kind: 'refused';
  readonly error: GatewayError;
  readonly id: Id;
}

/** What a POST to the endpoint is. */
export type Posted =
  | Refused
  | ModernSaid
  /** The legacy era's handshake. It starts afresh, whatever session the client still names. */
  | { readonly kind: 'initialize'; readonly request: Request }
  | { readonly kind: 'session'; readonly sessionId: string; readonly said: Said };

const MAX_BATCH = 20;

/** The error that a broken message is answered with. */
export function toRefusal({ code, message }: MessageError): GatewayError {
  return new GatewayError(code === -32700 ? 'parse-error' : 'invalid-request', { say: message });
}

/**
 * Reads a message or batch of a client. Stricter than `parseMessage`: decisions depend on what it says.
 *
 * @throws {MessageError}
 */
export function readSaid(text: string): Said {
  return isBatch(text) ? parseClientBatch(text, MAX_BATCH) : parseClientMessage(text);
}

/** Judges the headers of a request that belongs to a session. */
export function sessionOf({ sessionId, version }: SessionHeaders): string | GatewayError {
  if (version !== undefined && !isLegacyRevision(version)) {
    return new GatewayError('unsupported-version', {
      say: `the header MCP-Protocol-Version must be one of ${LEGACY_REVISIONS.join(', ')}`,
      data: { supported: LEGACY_REVISIONS },
    });
  }
  if (sessionId === undefined || sessionId === '') {
    return new GatewayError('session-required', {
      say: 'send the Mcp-Session-Id header that the answer to initialize carried, or initialize first',
    });
  }
  return sessionId;
}

/**
 * The ladder: which era and which kind of message a POST body is. The body decides, never a header alone.
 */
export function classify(text: string, headers: SessionHeaders, lookup: HeaderLookup): Posted {
  let said: Said;
  try {
    said = readSaid(text);
  } catch (thrown) {
    if (thrown instanceof MessageError) return { kind: 'refused', error: toRefusal(thrown), id: thrown.id };
    throw thrown;
  }
  const modern =
    'kind' in said && (said.kind === 'request' || said.kind === 'notification') ? readModern(said, lookup) : undefined;
  if (modern !== undefined) return modern;
  if ('kind' in said && said.kind === 'request' && said.method === 'initialize') {
    return { kind: 'initialize', request: said };
  }
  const session = sessionOf(headers);
  if (session instanceof GatewayError) {
    return { kind: 'refused', error: session, id: 'kind' in said && said.kind === 'request' ? said.id : 'null' };
  }
  return { kind: 'session', sessionId: session, said };
}

/** Whether, and why, a session of this revision may not say several messages at once. */
export function refuseBatch(
  items: readonly (Message | MessageError)[],
  revision: Revision | undefined,
): GatewayError | undefined {
  if (revision === undefined || !quirksOf(revision).batches) {
    return new GatewayError('invalid-request', {
      say: 'only revision 2025-03-26 has batches; send one message at a time',
    });
  }
  const initializes = items.some(
    (item) => !(item instanceof MessageError) && item.kind === 'request' && item.method === 'initialize',
  );
  return initializes ? new GatewayError('invalid-request', { say: 'initialize cannot be part of a batch' }) : undefined;
}
