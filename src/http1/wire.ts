import type { RequestHead } from './request.ts';

/** Below the 5 s after which Node and many others close an idle socket, so that no request is written to a dying one. */
export const KEEP_ALIVE_MS = 4_000;

/** Response headers: names in lower case, repeated ones as arrays. */
export type ResponseHeaders = Readonly<Record<string, string | string[] | undefined>>;

export interface WireRequest {
  readonly head: RequestHead;
  readonly body: string | undefined;
  /** Between the request and the response headers, in milliseconds, not exact; 0 for any time. */
  readonly headersMs: number;
  /** Between two pieces of the response body, in milliseconds, not exact; 0 for any time. */
  readonly bodyMs: number;
}

/** Ends one request. */
export interface WireController {
  /**
   * Closes the socket of the request. The handler hears nothing more, or the reason at most. Within `onResponseEnd` it keeps
   * the socket from being used again; later it does nothing.
   */
  abort(reason: Error): void;
  /**
   * Stops reading the response for this long, so that the server is held up; what was read already is still handed over. The
   * time does not count as the server's silence. Returns false where nothing is being read, or reading is paused already.
   */
  pause(forMs: number): boolean;
}

/** Receives the events of one request: either `onResponseEnd` or `onResponseError` is the last, unless it was aborted. */
export interface WireHandler {
  /** The request is about to be written. When this throws, nothing is written and another request gets the socket. */
  onRequestStart(controller: WireController): void;
  /** The response begins. When this or `onResponseData` throws, the response is broken off. */
  onResponseStart(controller: WireController, status: number, headers: ResponseHeaders): void;
  /** The chunk is lent: after the call it may hold something else. */
  onResponseData(controller: WireController, chunk: Buffer): void;
  /**
   * The response is complete. Only after this call another request may have the socket; to abort or to throw closes the
   * socket instead. So a response that was no answer to its request ends the connection it came on, and whatever else that
   * connection still holds is read by nobody.
   */
  onResponseEnd(controller: WireController): void;
  /** Without an `onRequestStart` before it, no byte of the request was sent. */
  onResponseError(controller: WireController, thrown: Error): void;
}

/**
 * The sockets to one origin under one set of credentials. A request has a socket of its own until its response was judged,
 * and is never sent twice. A GET, whose response may be an event stream that names no request, never shares a socket with
 * an earlier POST.
 */
export interface Wire {
  /** May call the handler before it returns. */
  dispatch(request: WireRequest, handler: WireHandler): void;
  /** Breaks off the requests in flight. Resolves when no socket is left. */
  destroy(): Promise<void>;
}
