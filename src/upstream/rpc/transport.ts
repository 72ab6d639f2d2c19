import { GatewayError, upstreamError } from '../../errors.ts';
import type { Id, Message } from '../../protocol/jsonrpc.ts';
import type { Revision } from '../../protocol/revisions.ts';
import type { TraceContext } from '../../protocol/trace-context.ts';
import type { Header } from '../../protocol/framing/mcp-headers.ts';

export interface Outgoing {
  /** JSON text. It may have line breaks between its tokens. */
  readonly text: string;
  /** Our id, if the message is a request. */
  readonly id?: number;
  /** Runs if an answer is not sent, because the upstream accepts too few messages. */
  readonly onDropped?: () => void;
  /** JSON-RPC method, if the message is a request or notification. */
  readonly method?: string;
  /** In the modern era, the standard headers for HTTP. Equal requests have the same array. */
  readonly standardHeaders?: readonly Header[];
  /** In the modern era, the `Mcp-Param-…` headers for HTTP. */
  readonly paramHeaders?: readonly Header[] | undefined;
  /** The trace and span that the request belongs to, for HTTP. The text has it already. */
  readonly trace?: TraceContext | undefined;
}

/** A session at a remote upstream. */
export interface UpstreamSession {
  readonly id: string;
  /** `Set-Cookie` headers, by which a load balancer finds the server that has the session. */
  readonly cookies: readonly string[];
}

/** Receives the events of a transport, in the order of arrival. */
export interface TransportEvents {
  /**
   * A message has arrived.
   *
   * @param about our id of the request on whose stream it arrived; undefined if requests have no streams of their own.
   */
  onMessage(message: Message, about: number | undefined): void;
  /**
   * A message has arrived that is not passed on: it is malformed, or answers no request in flight.
   *
   * @param about our id of the request on whose stream it arrived, if any.
   */
  onDropped(about: number | undefined): void;
  /** A request of the upstream has arrived that is too large to be read. */
  onUnreadRequest?(id: Id): void;
  /** Notifications may have been lost while the upstream had no stream for them. It has one again. */
  onGap?(): void;
  /** A program has sent its first byte, which need not be part of a message. */
  onFirstByte?(): void;
  /**
   * One request will get no answer. The transport stays open.
   *
   * @param isAnswered true if the answer has arrived, and cannot be read.
   */
  onSendFailed(id: number, error: GatewayError, isAnswered?: boolean): void;
  /** The transport is closed. Called once, also after `close()`; no event follows. */
  onClose(error: GatewayError): void;
}

/**
 * Moves JSON-RPC messages to and from one upstream. Knows only the parts of MCP that its wire format needs.
 *
 * {@link StartTransport} creates a transport, and resolves when messages can be sent.
 */
export interface Transport {
  /**
   * Sends one message. Never throws: reports the failure of a request by `onSendFailed`, and of the transport by `onClose`.
   * `executed` in either error is `no` only if no byte of the message can have reached the upstream.
   */
  send(message: Outgoing): void;
  /** Drops a request: reports nothing more about it, and closes the stream of its answer. Returns `unsent` if no byte of it was sent. */
  forget(id: number): 'unsent' | undefined;
  setRevision(revision: Revision): void;
  /**
   * Stops reading for this long, so that the upstream has to wait. If requests have streams of their own, pauses one stream.
   *
   * @param forMs milliseconds.
   * @param about our id of the request whose stream to pause; undefined for any other stream.
   */
  pause?(forMs: number, about: number | undefined): void;
  /** Closes the transport, first gracefully, then by force. Resolves when all its resources are released, in bounded time. */
  close(): Promise<void>;
  /** True if the upstream may keep state for this connection. Default: true. */
  readonly mayKeepState?: boolean;
  /** The upstream's session, which another connection can continue; undefined if there is none. */
  readonly session?: UpstreamSession | undefined;
  /** Continues a session that an earlier connection has initialized. */
  attach?(session: UpstreamSession, revision: Revision): void;
  /** @param isLeft leaves the session to another connection: closing this one does not end it. */
  setLeft?(isLeft: boolean): void;
}

export function disconnectedError(upstream: string, { reason }: AbortSignal): GatewayError {
  return upstreamError('upstream-unavailable', upstream, 'is being disconnected', {}, reason);
}

export function closedError(upstream: string): GatewayError {
  const message = `the connection to upstream "${upstream}" was closed`;
  return new GatewayError('upstream-lost', { upstream, message });
}

export interface TransportRequest {
  /** The key of the principal whose credentials the upstream gets; empty for those of the gateway. */
  readonly audience: string;
}

/**
 * Starts a transport. The caller gives a signal that is not aborted yet.
 *
 * @throws {GatewayError} `upstream-unavailable` (executed `no`), with the reason as a sentence.
 */
export type StartTransport = (
  events: TransportEvents,
  signal: AbortSignal,
  request: TransportRequest,
) => Promise<Transport>;

export type TransportEra = 'modern' | 'legacy' | 'either';

export interface TransportOption {
  readonly era: TransportEra;
  /** True if each connection starts a process. */
  readonly isProcess: boolean;
  /** True if a start of its process may download packages first. */
  readonly mayDownload?: boolean;
  /** True if a server request of a legacy upstream arrives on the stream of its call. */
  readonly hasCallStreams: boolean;
  /** True if its connections can continue sessions of earlier ones. */
  readonly canAttach?: boolean;
  readonly start: StartTransport;
}
