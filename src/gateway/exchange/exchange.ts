import type { Catalog } from '../../catalog/catalog.ts';
import type { GatewayError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import type { Severity } from '../../protocol/severity.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import type { Caller } from './caller.ts';
import type { MessageSink } from '../front.ts';

/** A server request on its way to the client, in the client's revision. */
export interface ClientQuestion {
  readonly upstream: string;
  readonly method: string;
  readonly params: RawObject;
  /** Answers the upstream. Later calls are ignored. */
  answer(answer: Answer): void;
  /** Reports progress of the client to the upstream; undefined if the upstream has sent no progress token. */
  readonly onProgress: ((params: RawObject) => void) | undefined;
  /** Registers a callback that runs when the upstream cancels the question. */
  onWithdrawn(run: () => void): void;
}

/** The client of an exchange: a session, or the client of one modern request. */
export interface Client {
  readonly caller: Caller;
  readonly catalog: Catalog;
  /** The capabilities that upstreams may use. */
  readonly clientCapabilities: RawObject;
  /** The lowest level of log messages that the client wants. */
  readonly logLevel: Severity | undefined;
  /** Returns whether the client wants log messages of this level. */
  wantsLog(level: string | undefined): boolean;
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
  readonly request: Request;
  /** The request's own stream toward the client. */
  readonly sink: MessageSink;
  /** The client's progress token as raw JSON; undefined if the client wants no progress. */
  readonly progressToken: string | undefined;
  /** The upstream that the request was sent to. */
  readonly upstream: string | undefined;
  /** Cancels the exchange, and its call at the upstream. */
  cancel(reason: string | undefined): void;
  /** Cancels the exchange on the client's request. The client then gets no response. */
  cancelByClient(reason: string | undefined): void;
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
  /** Whether the message can belong to no other request. */
  readonly isUnambiguous: boolean;
}
