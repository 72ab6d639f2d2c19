import type { Catalog } from '../../catalog/catalog.ts';
import type { View } from '../../catalog/view.ts';
import type { GatewayError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import type { CancelReason } from '../../protocol/cancellation.ts';
import type { Severity } from '../../protocol/severity.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import type { Span } from '../../telemetry/tracing/tracing.ts';
import type { ClientDialect } from '../dialects/client-dialect.ts';
import type { Caller } from '../front/caller.ts';
import type { ClientQuestion } from './client-question.ts';
import type { InputRounds } from './input-rounds.ts';
import type { MessageSink } from '../front/front.ts';

/** The client of an exchange: a session, or the client of one modern request. */
export interface Client {
  readonly caller: Caller;
  /** Tells the calls of this client from those of others that share a connection; undefined if nothing does. */
  readonly senderKey: string | undefined;
  /** The same client beyond one request: equal for all requests of a session. */
  readonly lasting: Client;
  readonly dialect: ClientDialect;
  readonly catalog: Catalog;
  /** The capabilities that upstreams may use. */
  readonly clientCapabilities: RawObject;
  /** The lowest level of log messages that the client wants. */
  readonly logLevel: Severity | undefined;
  /** The questions of the request, if the client is asked in answers. */
  readonly rounds: InputRounds | undefined;
  /**
   * Returns whether the client wants log messages of this level.
   *
   * @param unset the lowest level for a client that has set none; undefined for all levels.
   */
  wantsLog(level: string | undefined, unset?: Severity): boolean;
  /** Sends a notification about a request of the client. Returns false if no stream accepts it. */
  notify(method: string, params: RawObject | undefined, exchange: Exchange | undefined): boolean;
  /** Sends a notification that belongs to no request of the client, at once or when a stream is open. */
  announce(method: string, params: RawObject | undefined): void;
  /** Runs when an upstream sends a request that the client's capabilities do not allow. */
  onUnsupportedRequest(method: string, params: RawObject, exchange: Exchange | undefined): void;
  /** Sends a question to the client. The question is always answered, in bounded time. */
  ask(question: ClientQuestion, exchange: Exchange | undefined): void;
}

/** One request of a client, and everything that belongs to it until it is answered. */
export interface Exchange {
  readonly client: Client;
  /** The holder whose links carry the request. */
  readonly holder: { readonly key: string };
  readonly request: Request;
  /** The request's own stream toward the client. */
  readonly sink: MessageSink;
  /** The client's progress token as raw JSON; undefined if the client wants no progress. */
  readonly progressToken: string | undefined;
  readonly upstream: string | undefined;
  /** The client's view by which the request was routed. The upstream may leave it before it has answered. */
  readonly view: View | undefined;
  /** The published name of the called tool. */
  readonly tool: string | undefined;
  /** True if the call was made as a task, whose id may not be known yet. */
  readonly isTaskCall: boolean;
  /** The time when the exchange began; monotonic ms. */
  readonly startedMs: number;
  readonly span: Span | undefined;
  /** Cancels the exchange, and its call at the upstream. */
  cancel(reason: CancelReason): void;
  /** Cancels the exchange on the client's request. The client then gets no response. */
  cancelByClient(reason: CancelReason): void;
  /** Fails the exchange with this error as soon as the upstream ends the call; cancels the call after a short time. */
  fail(error: GatewayError): void;
  /** Records progress. Returns whether it is greater than before: progress must increase. */
  recordProgress(progress: number): boolean;
  /** Releases the exchange's slot of the upstream's concurrency limit: at the end, or while it waits for the client. */
  releaseSlot(): void;
}

/** The client that a message of an upstream is for, and the request that it belongs to, if that is known. */
export interface Recipient {
  readonly client: Client;
  readonly exchange: Exchange | undefined;
  /** True if the message can belong to no other request. */
  readonly isUnambiguous: boolean;
}
