import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Answer, Notification, Request, Response } from '../protocol/jsonrpc.ts';
import type { RawObject } from '../json/json.ts';
import type { Principal } from '../policy/principal.ts';
import type { HeaderLookup } from '../protocol/framing/mcp-headers.ts';
import type { ModernRevision } from '../protocol/revisions.ts';
import type { Severity } from '../protocol/severity.ts';
import type { Caller } from './exchange/caller.ts';

/** Accepts messages for a client, as the text of one JSON-RPC message at a time, and keeps their order. */
export interface MessageSink {
  /** Sends a message. Returns false if the stream accepts no more; the message is then not sent. */
  send(text: string): boolean;
}

/** A session of a legacy client, as the client's edge sees it. It may be passed only to the front that returned it. */
export interface ClientSession {
  /** The sealed `Mcp-Session-Id`. */
  readonly id: string;
  readonly caller: Caller;
  /** Aborted when the session has ended or was released as idle. Every stream of it must then be closed. */
  readonly closed: AbortSignal;
  /**
   * Sets the sink for messages that belong to no request: the GET stream, the SSE stream of 2024-11-05, or stdout of a
   * stdio client. A new sink replaces the old one, and gets the waiting messages at once.
   */
  setSink(sink: MessageSink): void;
  /** Removes this sink. Does nothing if another one has been set since. */
  removeSink(sink: MessageSink): void;
}

/** The caller of a modern request, as its envelope describes it. */
export interface ModernCaller extends Caller {
  readonly revision: ModernRevision;
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
   */
  answer(answer: Answer): void;
}

/** A modern request in flight. */
export interface ModernCall {
  /** Cancels the request for the client, which has cancelled it or disconnected: the same in this era. */
  cancel(reason: string | undefined): void;
  /** Answers and ends a request that would not end by itself, such as `subscriptions/listen`. */
  close(): void;
}

/** Another process of the gateway, to which requests are passed on. */
export interface Owner {
  /**
   * Passes on an HTTP request whose body was not read, and writes the response. The principal has been authenticated.
   * Never rejects: a failure is a response.
   */
  forward(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void>;
  /** Passes on a modern request. The request, its caller and its sink can be sent as text. */
  handleModernRequest(request: Request, caller: ModernCaller, sink: ModernSink): ModernCall;
}

/** The answer that another process owns something. */
export interface Elsewhere {
  readonly kind: 'elsewhere';
  readonly owner: Owner;
}

/** The place of an owner. `gone`: its process does not exist any more. */
export type Ownership = { readonly kind: 'here' } | Elsewhere | { readonly kind: 'gone' };

/** The gateway as the client's edge sees it. The edge authenticates the principal and checks the endpoint first. */
export interface Front {
  /** Returns whether an endpoint exists. The id `''` is the merged endpoint at `/mcp`; any other is at `/mcp/<id>`. */
  hasView(view: string): boolean;
  /** Answers an `initialize` request and opens its session. There is no session if the answer is an error. */
  initialize(
    request: Request,
    principal: Principal,
    view: string,
  ): Promise<{ readonly session: ClientSession | undefined; readonly answer: Answer }>;
  /** Returns whether a session is in the memory of this process. Any other session may be in that of another. */
  hasSession(id: string): boolean;
  /**
   * Returns where a session is, by its id or the secret of a 2024-11-05 client. A session that no process has belongs to this one
   * from then on. Asked before the body of a request is read, so that the whole request can be passed on.
   */
  ownerOfSession(id: string): Ownership | Promise<Ownership>;
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
   */
  handleRequest(
    session: ClientSession,
    request: Request,
    sink: MessageSink,
    headers?: HeaderLookup,
  ): Promise<Answer | undefined>;
  /**
   * Answers a modern request, whose envelope the edge has read.
   *
   * @param lookup the request's headers, if there are any: those that repeat parts of the body are compared with it.
   */
  handleModernRequest(
    request: Request,
    caller: ModernCaller,
    sink: ModernSink,
    lookup: HeaderLookup | undefined,
  ): ModernCall;
  handleNotification(session: ClientSession, notification: Notification): void;
  /** Handles a client's answer to a request of the gateway. Ignores unknown ids. */
  handleResponse(session: ClientSession, response: Response): void;
  /**
   * Ends a session for good: its id is invalid from then on, also after a restart.
   *
   * @throws {GatewayError} `internal-error` if the session has ended but a restart could restore it.
   */
  endSession(session: ClientSession): Promise<void>;
}
