import { GatewayError } from '../errors.ts';
import { type LimitName, LIMITS } from '../limits.ts';
import {
  type Id,
  invalidAnswer,
  isBatch,
  type Message,
  MessageError,
  type Notification,
  parseClientBatch,
  parseClientMessage,
  type Request,
  type Response,
} from '../protocol/jsonrpc.ts';
import { withoutRetry } from '../protocol/input-required.ts';
import type { HeaderLookup } from '../protocol/framing/mcp-headers.ts';
import { type ModernInput, readModern, type SESSIONLESS } from './modern-envelope.ts';
import { isLegacyRevision, LEGACY_REVISIONS, featuresOf, type Revision } from '../protocol/revisions.ts';
import { RPC } from '../protocol/rpc-codes.ts';
import { resultOrError } from '../thrown.ts';

/** One message, or the items of a batch, in which an invalid item is a {@link MessageError}. */
export type ClientInput = Message | readonly (Message | MessageError)[];

interface SessionHeaders {
  readonly sessionId: string | undefined;
  readonly version: string | undefined;
}

interface Refused {
  readonly kind: 'refused';
  readonly error: GatewayError;
  readonly id: Id;
  /** The bound that the message exceeds, if it is refused for that. */
  readonly limit?: LimitName | undefined;
  /** The end of the question that the message does not answer as it should; undefined if it is no response. */
  readonly answer?: Response | undefined;
}

/** The kinds of POST to an endpoint. */
export type ClassifiedPost =
  | Refused
  | ModernInput
  /** A request of the legacy era without a session, and what such a client sends besides, which has no effect. */
  | { readonly kind: 'sessionless'; readonly request: Request; readonly revision: keyof typeof SESSIONLESS }
  | { readonly kind: 'ignored'; readonly message: Notification | Response }
  /** The handshake of the legacy era, which opens a session. */
  | { readonly kind: 'initialize'; readonly request: Request }
  | { readonly kind: 'session'; readonly sessionId: string; readonly input: ClientInput };

/** Returns the error that answers an invalid message. */
export function toRefusal({ code, message }: MessageError): GatewayError {
  return new GatewayError(code === RPC.parseError ? 'parse-error' : 'invalid-request', { message });
}

/** Returns the id for the refusal of an invalid message. The id of a response is not one of the sender's requests. */
export function refusedId({ id, isResponse }: MessageError): Id {
  return isResponse ? 'null' : id;
}

/**
 * Parses a message or batch of a client. Stricter than `parseMessage`, because the gateway routes and authorises by the
 * content.
 *
 * @throws {MessageError}
 */
export function readInput(text: string): ClientInput {
  return isBatch(text) ? parseClientBatch(text, LIMITS.batchMessages) : parseClientMessage(text);
}

/** Checks the headers of a request in a session. Returns the session id, or the error that refuses the request. */
export function sessionOf({ sessionId, version }: SessionHeaders): string | GatewayError {
  if (version !== undefined && !isLegacyRevision(version)) {
    return new GatewayError('unsupported-version', {
      message: `the header MCP-Protocol-Version must be one of ${LEGACY_REVISIONS.join(', ')}`,
      data: { supported: LEGACY_REVISIONS },
    });
  }
  if (sessionId === undefined || sessionId === '') {
    return new GatewayError('session-required', {
      message: 'send the Mcp-Session-Id header that the answer to initialize carried, or initialize first',
    });
  }
  return sessionId;
}

/** Returns the messages of a POST; undefined if it is refused. */
export function inputOf(posted: ClassifiedPost): ClientInput | undefined {
  if ('request' in posted) return posted.request;
  return 'input' in posted ? posted.input : undefined;
}

/** Returns the request of an input; undefined for a batch, and for every other message. */
export function requestIn(input: ClientInput | MessageError | undefined): Request | undefined {
  return input !== undefined && 'kind' in input && input.kind === 'request' ? input : undefined;
}

/** Returns the request id for the refusal of this input. */
export function idOf(input: ClientInput | undefined): Id {
  return requestIn(input)?.id ?? 'null';
}

/** Returns the kind of a legacy input without a session, at a gateway that does not require one. */
function sessionless(input: ClientInput, version: string | undefined): ClassifiedPost {
  if (!('kind' in input)) {
    const error = new GatewayError('session-required', { message: 'send one message at a time, or initialize first' });
    return { kind: 'refused', error, id: 'null' };
  }
  if (input.kind !== 'request') return { kind: 'ignored', message: input };
  // A retry is of the modern era.
  const request = { ...input, params: input.params && withoutRetry(input.params) };
  if (version === '2024-11-05') return { kind: 'sessionless', request, revision: version };
  return {
    kind: 'sessionless',
    request,
    revision: version === undefined || version === '2025-03-26' ? '2025-03-26' : '2025-06-18',
  };
}

/**
 * Decides the era and the kind of a POST. The body decides, never a header alone.
 *
 * @param isSessionRequired false if a request of the legacy era without a session is answered alone.
 */
export function classify(
  text: string,
  headers: SessionHeaders,
  lookup: HeaderLookup,
  isSessionRequired: boolean,
): ClassifiedPost {
  const input = resultOrError(MessageError, () => readInput(text));
  if (input instanceof MessageError) {
    const { limit } = input;
    const answer = input.isResponse ? invalidAnswer(input) : undefined;
    return { kind: 'refused', error: toRefusal(input), id: refusedId(input), limit, answer };
  }
  const modern = 'kind' in input ? readModern(input, lookup) : undefined;
  if (modern !== undefined) return modern;
  const request = requestIn(input);
  if (request?.method === 'initialize') return { kind: 'initialize', request };
  const session = sessionOf(headers);
  if (session instanceof GatewayError && session.code === 'session-required' && !isSessionRequired) {
    return sessionless(input, headers.version);
  }
  if (session instanceof GatewayError) return { kind: 'refused', error: session, id: idOf(input) };
  return { kind: 'session', sessionId: session, input };
}

/** Returns the error that refuses a batch in a session of this revision, or undefined if it is allowed. */
export function refuseBatch(
  items: readonly (Message | MessageError)[],
  revision: Revision | undefined,
): GatewayError | undefined {
  if (revision === undefined || !featuresOf(revision).batches) {
    return new GatewayError('invalid-request', {
      message: 'only revision 2025-03-26 has batches; send one message at a time',
    });
  }
  return items.some((item) => requestIn(item)?.method === 'initialize')
    ? new GatewayError('invalid-request', { message: 'initialize cannot be part of a batch' })
    : undefined;
}
