import { GatewayError } from '../../errors.ts';
import type { Message } from '../../protocol/jsonrpc.ts';
import type { Header } from '../../protocol/mcp-headers.ts';

/** One message on its way to an upstream. */
export interface Outgoing {
  /** JSON text; may have line breaks between its tokens. */
  readonly text: string;
  /** Our id, when the message is a request. */
  readonly id?: number;
  /** JSON-RPC method, when the message is a request or notification. */
  readonly method?: string;
  /** Of the modern era, where the transport has headers: what the text is about. For equal requests the same array. */
  readonly headers?: readonly Header[];
  /** The same for arguments: `Mcp-Param-…`. */
  readonly params?: readonly Header[] | undefined;
}

/** What a transport tells its connection. Called in the order in which things arrived. */
export interface TransportEvents {
  /**
   * A message came.
   * @param about our id of the request on whose own stream it arrived, where the transport has such streams.
   */
  onMessage(message: Message, about: number | undefined): void;
  /** The other side has sent its first byte, be it no message. Only over transports that start a program. */
  onFirstByte?(): void;
  /** One request will get no answer; the transport itself lives on. */
  onSendFailed(id: number, error: GatewayError): void;
  /** The transport is finished, and nothing more will come. Called once, also after `close()`. */
  onClose(error: GatewayError): void;
}

/**
 * Moves JSON-RPC messages to and from one upstream. Knows no MCP beyond what its wire demands.
 *
 * A transport is made started: {@link StartTransport} resolves when messages can be sent.
 */
export interface Transport {
  /**
   * Sends one message. Never throws: a request's failure arrives as `failed`, and a transport's as `closed`.
   * `executed` in either error is `no` only when no byte of the message can have reached the upstream.
   */
  send(message: Outgoing): void;
  /** Forgets a request: nothing about it will be reported any more. Closes the stream its answer would come on. */
  forget(id: number): void;
  /** Tells the transport the revision that `initialize` settled on. */
  setRevision(revision: string): void;
  /**
   * Reads nothing for this long, so that the upstream is held up and its messages wait on its side. Where requests have streams
   * of their own, only one stream is paused.
   *
   * @param about our id of the request on whose stream too much came; undefined for any other stream.
   */
  pause?(forMs: number, about: number | undefined): void;
  /** Ends it gracefully, then by force, in bounded time. Resolves when nothing of it is left. */
  close(): Promise<void>;
  /** Whether the other side may keep state for this connection. True unless given. */
  readonly mayKeepState?: boolean;
}

/** Starts a transport that is still wanted. @throws {GatewayError} `upstream-unavailable` */
export async function unlessAborted(
  upstream: string,
  signal: AbortSignal,
  start: () => Transport | Promise<Transport>,
): Promise<Transport> {
  if (signal.aborted) throw disconnecting(upstream, signal);
  return await start();
}

/** Why a transport is not started that is not wanted any more. */
export function disconnecting(upstream: string, { reason }: AbortSignal): GatewayError {
  const message = `upstream "${upstream}" is being disconnected`;
  return new GatewayError('upstream-unavailable', { upstream, message }, reason);
}

/** @throws {GatewayError} `upstream-unavailable` (executed `no`), with the reason in words. */
export type StartTransport = (events: TransportEvents, signal: AbortSignal) => Promise<Transport>;

/** Which conversations a transport can carry: those of one era, or whichever the other side speaks. */
export type TransportEra = 'modern' | 'legacy' | 'either';

/** One way to reach an upstream. */
export interface TransportOption {
  readonly era: TransportEra;
  /** Whether each connection starts a program of its own. */
  readonly isProcess: boolean;
  /** Whether a question of a legacy upstream comes on the stream of the call that it is about. */
  readonly tellsWhichCall: boolean;
  readonly start: StartTransport;
}
