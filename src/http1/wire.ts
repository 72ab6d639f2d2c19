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
  /** Closes its socket. Nothing more is told, or the reason at most. After the end of the response it does nothing. */
  abort(reason: Error): void;
}

/** Told what comes of one request: either `onResponseEnd` or `onResponseError` last, unless it was aborted. */
export interface WireHandler {
  /** The request is about to be written. Throwing keeps it from being so, and leaves the socket to others. */
  onRequestStart(controller: WireController): void;
  /** The response begins. What it throws, like what `onResponseData` does, breaks the response off. */
  onResponseStart(controller: WireController, status: number, headers: ResponseHeaders): void;
  /** The chunk is lent: after the call it may hold something else. */
  onResponseData(controller: WireController, chunk: Buffer): void;
  onResponseEnd(controller: WireController): void;
  /** Without an `onRequestStart` before it, no byte of the request was sent. */
  onResponseError(controller: WireController, thrown: Error): void;
}

/** The sockets to one origin. A request has a socket of its own until its response has ended, and is never sent twice. */
export interface Wire {
  /** May tell the handler of the start of the request, or of its failure, before it returns. */
  dispatch(request: WireRequest, handler: WireHandler): void;
  /** Breaks off what is under way. Resolves when no socket is left. */
  destroy(): Promise<void>;
}
