import type { Answer, Notification, Request, Response } from '../protocol/jsonrpc.ts';
import type { Principal } from '../policy/principal.ts';
import type { HeaderLookup } from '../protocol/mcp-headers.ts';
import type { ModernRevision } from '../protocol/revisions.ts';
import type { Severity } from '../protocol/severity.ts';
import type { Caller } from './exchange/caller.ts';

/** One stream toward a client. Takes the text of one JSON-RPC message at a time and keeps their order. */
export interface MessageSink {
  /** False when this stream can take nothing more; the message was then not taken. */
  send(text: string): boolean;
}

/** A legacy-era session as the client's edge sees it. */
export interface ClientSession {
  /** The sealed `Mcp-Session-Id`. */
  readonly id: string;
  readonly caller: Caller;
  /** Aborted when the session ended or was let go for idleness: close every stream of it. */
  readonly closed: AbortSignal;
  /**
   * Where messages go that belong to no request: the GET stream, the one SSE stream of 2024-11-05, a stdio client's stdout.
   * A new one replaces the old; what was waiting for one is sent at once.
   */
  listen(sink: MessageSink): void;
  /** Takes back exactly this sink; another one set since then stays. */
  unlisten(sink: MessageSink): void;
}

/** Who makes a modern request, by what the request says of itself. */
export interface ModernCaller extends Caller {
  readonly revision: ModernRevision;
  /** Which log messages about this request it wants; none when undefined. */
  readonly logLevel: Severity | undefined;
}

/** Where a modern request is answered. */
export interface ModernSink extends MessageSink {
  /** When the request came; monotonic ms. */
  readonly receivedMs: number;
  /** The last that is said, once; every failure is an answer. It may come before the call is in the caller's hands. */
  answer(answer: Answer): void;
}

/** A modern request under way. */
export interface ModernCall {
  /** The client took it back, or is gone, which in this era is the same. */
  cancel(reason: string | undefined): void;
  /** Ends what has no end of its own: it is then answered. */
  close(): void;
}

/** The gateway as the client's edge sees it. The edge has authenticated the principal and checked the endpoint before. */
export interface Front {
  /** Ids of the endpoints there are; `''` is the merged one at `/mcp`, any other is at `/mcp/<id>`. */
  hasView(view: string): boolean;
  /**
   * Opens a session for an `initialize` request. A refused one (`kind: 'error'`) opens none.
   */
  initialize(
    request: Request,
    principal: Principal,
    view: string,
  ): Promise<{ readonly session: ClientSession | undefined; readonly answer: Answer }>;
  /** The session of this id, restored if need be; undefined when it is unknown, ended, expired, or not this principal's at this view. At once where it is awake. */
  session(
    id: string,
    principal: Principal,
    view: string,
  ): ClientSession | undefined | Promise<ClientSession | undefined>;
  /**
   * Answers one request. Never rejects: every failure is an answer. Messages about it go to `sink` before the promise settles.
   * A disconnect of the client is no cancel (legacy era): the answer is just not used. Resolves with undefined when the client
   * cancelled the request: it must not be answered then.
   */
  request(session: ClientSession, request: Request, sink: MessageSink): Promise<Answer | undefined>;
  /**
   * Answers one modern request, whose envelope the edge has read.
   *
   * @param lookup of the request's headers, where there are any: what they repeat of the body is compared with it.
   */
  modern(request: Request, caller: ModernCaller, sink: ModernSink, lookup: HeaderLookup | undefined): ModernCall;
  notification(session: ClientSession, notification: Notification): void;
  /** A client's answer to a request we sent it. Unknown ids are ignored. */
  response(session: ClientSession, response: Response): void;
  /**
   * Ends a session for good: its id is unknown from then on, also after a restart.
   *
   * @throws {GatewayError} `internal-error`, when it has ended but a restart could revive it.
   */
  end(session: ClientSession): Promise<void>;
}
