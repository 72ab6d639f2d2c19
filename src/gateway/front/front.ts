import type { GatewayError } from '../../errors.ts';
import type { CancelReason } from '../../protocol/cancellation.ts';
import type { Answer, Notification, Request, Response } from '../../protocol/jsonrpc.ts';
import type { RawObject } from '../../json/json.ts';
import type { Principal } from '../../policy/principal.ts';
import type { HeaderLookup } from '../../protocol/framing/mcp-headers.ts';
import type { Severity } from '../../protocol/severity.ts';
import type { ClientRequest, ClientResponse } from './client-http.ts';
import type { SessionRef } from '../../store/session-store.ts';
import type { Caller } from './caller.ts';

/** Accepts messages for a client, as the text of one JSON-RPC message at a time, and keeps their order. */
export interface MessageSink {
  /** Sends a message. Returns false if the stream accepts no more; the message is then not sent. */
  send(text: string): boolean;
  /** Ends the connection of the stream, so that its client opens another one with its present credentials. Undefined if it cannot do so. */
  interrupt?(): void;
}

/** A session of a legacy client, as the client's edge sees it. A front refuses sessions that another front has returned. */
export interface ClientSession {
  /** The sealed `Mcp-Session-Id`. */
  readonly id: string;
  /** The key of the session in stores. */
  readonly ref: SessionRef;
  readonly caller: Caller;
  /** Aborted when the session has ended or was released as idle. Every stream of it must then be closed. */
  readonly closed: AbortSignal;
  /**
   * Sets the sink for messages that belong to no request: the GET stream, the SSE stream of 2024-11-05, or stdout of a
   * stdio client. A new sink replaces the old one, and gets the waiting messages at once.
   *
   * @param reader the principal of the request that opened the stream: its rights hold for the messages on it. Default: those of the latest
   *   request hold.
   */
  setSink(sink: MessageSink, reader?: Principal): void;
  /** Removes this sink. Does nothing if another one has been set since. */
  removeSink(sink: MessageSink): void;
}

/**
 * The caller of a modern request, as its envelope describes it. Also that of a request of the legacy era without a session, which declares no
 * capabilities and is answered alone as well.
 */
export interface ModernCaller extends Caller {
  /** The lowest level of log messages about this request; undefined for none. */
  readonly logLevel: Severity | undefined;
  /** The client's description of itself; undefined if it sent none. */
  readonly clientInfo?: RawObject | undefined;
}

/** The response to a modern request. */
export interface ModernSink extends MessageSink {
  /** The time when the request arrived; monotonic ms. */
  readonly receivedMs: number;
  /**
   * Sends the answer, once, after all other messages; every failure is an answer. May run before the {@link ModernCall}
   * of the request is returned.
   *
   * @param isRecorded true if another process has recorded the request in its metrics and logs.
   */
  answer(answer: Answer, isRecorded?: boolean): void;
  /** Reports that the text of the request is kept until this promise resolves, which may be after the answer. It never rejects. */
  keepText?(until: Promise<unknown>): void;
}

/** A modern request in flight. */
export interface ModernCall {
  /** Cancels the request for the client, which has cancelled it or disconnected: the same in this era. */
  cancel(reason: CancelReason): void;
  /** Answers and ends a request that would not end by itself, such as `subscriptions/listen`. */
  close(): void;
}

/** Describes an HTTP request that is passed on. */
export interface PassedOn {
  /** The target as the client sent it, if another process has passed the request on. Default: that of the request. */
  readonly target?: string;
  /** The number of processes that have passed the request on before. Default: 0. */
  readonly hops?: number;
  /** The body, if it was read. */
  readonly text?: string;
}

/** Another process of the gateway, to which requests are passed on. */
export interface Owner {
  /**
   * Passes on an HTTP request, and writes the response. Its body was not read, or is a text. The principal has been authenticated for the
   * view. A failure is a response.
   *
   * @throws {GatewayError} `store-unavailable` if another attempt is of no use.
   * @returns `unreachable` if nothing was sent, so that the body is still unread and the response unwritten. For a text also if the process
   *   has refused the request, because it does not have the session.
   */
  forward(
    incoming: ClientRequest,
    outgoing: ClientResponse,
    principal: Principal,
    view: string,
    passedOn?: PassedOn,
  ): Promise<'answered' | 'unreachable'>;
  /**
   * Passes on an answer, a cancellation or progress, about a request that the session still has there, or its end. It may be lost. Resolves
   * when the process has handled it, or cannot be asked. Never rejects.
   *
   * @param hops the number of processes that have passed it on before. Default: 0.
   */
  handleMessage(
    session: Pick<ClientSession, 'id' | 'caller'>,
    message: Notification | Response,
    hops?: number,
  ): Promise<void>;
  /**
   * Passes on a modern request. The request, its caller and its sink can be sent as text.
   *
   * @param onUnreachable runs in place of `sink.answer` if the process did not get the request, or does not have what it is about. With an
   *   error, another attempt is of no use.
   */
  handleModernRequest(
    request: Request,
    caller: ModernCaller,
    sink: ModernSink,
    onUnreachable: (error?: GatewayError) => void,
  ): ModernCall;
}

/** Says that another process has the state, and how to reach it. */
export interface Elsewhere {
  readonly kind: 'elsewhere';
  readonly owner: Owner;
}

/** Says where state is: here, in another process, or nowhere any more (`gone`: its process does not exist). */
export type Ownership = { readonly kind: 'here' } | Elsewhere | { readonly kind: 'gone' };

/**
 * The gateway as the client's edge sees it. The edge authenticates the principal and checks the endpoint first. The members that get
 * a session are function properties: for those the compiler refuses an implementation that accepts only sessions of its own kind.
 */
export interface Front {
  /**
   * Returns whether an endpoint exists. The id `''` is the merged endpoint at `/mcp`; any other is at `/mcp/<id>`.
   *
   * @param principal the one that asks, if it is known. An endpoint of which it may use nothing does not exist for it.
   */
  hasView(view: string, principal?: Principal): boolean;
  /** Reports a request to an endpoint that {@link hasView} refuses to a principal. Returns whether the endpoint exists, so that it was hidden. */
  reportHiddenView(view: string, principal: Principal): boolean;
  /** Answers an `initialize` request and opens its session. There is no session if the answer is an error. */
  initialize(
    request: Request,
    principal: Principal,
    view: string,
  ): Promise<{ readonly session: ClientSession | undefined; readonly answer: Answer }>;
  /** Returns whether a session is certainly in the memory of this process alone. Any other session may be in that of another. */
  hasSession(id: string): boolean;
  /**
   * Returns where a session is. A session that no process has belongs to this one from then on. The answer for an id that is not one of this
   * principal and view is `here`. Asked before the body of a request is read, so that the whole request can be passed on.
   *
   * @param isForwarded true if another process has passed the request on.
   */
  ownerOfSession(id: string, principal: Principal, view: string, isForwarded?: boolean): Ownership | Promise<Ownership>;
  /**
   * Returns another process that accepts new requests, while this one leaves and gives its sessions away. Returns undefined if this
   * process does not leave, or there is no other one.
   */
  successor(): Owner | undefined;
  /** The name of this process, for texts that clients send to any process; undefined if there is no other one. */
  readonly processName: string | undefined;
  /** Returns where a stream of a 2024-11-05 client is, by the {@link processName} of the process that has opened it. */
  ownerOfStream(process: string): Ownership | Promise<Ownership>;
  /**
   * Returns the session of this id, restored if necessary; a promise only if it is not in memory. Returns undefined if
   * the id is unknown, ended, expired, or does not belong to this principal at this view.
   */
  findSession(
    id: string,
    principal: Principal,
    view: string,
  ): ClientSession | undefined | Promise<ClientSession | undefined>;
  /**
   * Answers a request of a session. Never rejects: every failure is an answer. Messages about the request go to `sink`
   * before the promise settles. In the legacy era a disconnect does not cancel a request; its answer is then not used.
   * Resolves with undefined if the client cancelled the request, which must then not be answered.
   *
   * @param headers the request's headers, if there are any: they may name a trace.
   * @param principal that of the session, with the claims of this request. Default: with those of the latest request.
   */
  readonly handleRequest: (
    session: ClientSession,
    request: Request,
    sink: MessageSink,
    headers?: HeaderLookup,
    principal?: Principal,
  ) => Promise<Answer | undefined>;
  /**
   * Answers a modern request, whose envelope the edge has read.
   *
   * @param headers the request's headers, if there are any: those that repeat parts of the body are compared with it.
   */
  handleModernRequest(
    request: Request,
    caller: ModernCaller,
    sink: ModernSink,
    headers: HeaderLookup | undefined,
  ): ModernCall;
  readonly handleNotification: (session: ClientSession, notification: Notification) => void;
  /** Records a notification of a modern client. It has no effect: what a request needs is in the request. */
  noteNotification(sender: Pick<Caller, 'principal' | 'view'>, notification: Notification): void;
  /** Handles a client's answer to a request of the gateway. Ignores unknown ids. */
  readonly handleResponse: (session: ClientSession, response: Response) => void;
  /**
   * Handles a message about a request that is in flight here, though another process has its session by now. Never rejects.
   *
   * @param hops as for {@link Owner.handleMessage}.
   */
  readonly handleLateMessage: (
    id: string,
    principal: Principal,
    view: string,
    message: Notification | Response,
    hops?: number,
  ) => Promise<void>;
  /**
   * Ends a session for good: its id is invalid from then on, also after a restart.
   *
   * @throws {GatewayError} `internal-error` if the session has ended but a restart could restore it.
   */
  readonly endSession: (session: ClientSession) => Promise<void>;
}
