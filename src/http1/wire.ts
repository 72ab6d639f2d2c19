import type { RequestHead } from './request.ts';

/** The lifetime of an idle socket: less than the 5 s after which Node and many other servers close one. */
export const KEEP_ALIVE_MS = 4_000;

/** Response headers: names in lower case, repeated ones as arrays. */
export type ResponseHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** One request, with its deadlines. */
export interface WireRequest {
  readonly head: RequestHead;
  readonly body: string | undefined;
  /** Longest time from the request to the response headers, in milliseconds, not exact; 0 for no deadline. */
  readonly headersMs: number;
  /** Longest time between two pieces of the response body, in milliseconds, not exact; 0 for no deadline. */
  readonly bodyMs: number;
}

/** Aborts or pauses one request. */
export interface WireController {
  /**
   * Closes the socket of the request. Afterwards the handler gets no event, or only `onResponseError` with this reason.
   * During `onResponseEnd`, prevents the reuse of the socket. After `onResponseEnd`, has no effect.
   */
  abort(reason: Error): void;
  /**
   * Stops reading the response for this long (ms), so that the server has to wait. Bytes that were read before still reach the
   * handler. The pause does not count as silence of the server. Returns false if nothing is being read, or reading is already
   * paused.
   */
  pause(forMs: number): boolean;
  /** Stops reading the response until `resume`, like `pause`. Has no effect on a request that has ended. */
  hold(): void;
  /** Ends what `hold` began. */
  resume(): void;
}

/** The controller of a request that was not sent, or has ended. */
export const NO_CONTROL: WireController = {
  abort: () => undefined,
  pause: () => false,
  hold: () => undefined,
  resume: () => undefined,
};

/** Receives the events of one request. The last is `onResponseEnd` or `onResponseError`, unless the request was aborted. */
export interface WireHandler {
  /** Called before the request is written. If this throws, nothing is written, and another request can use the socket. */
  onRequestStart(controller: WireController): void;
  /** Called with the head of the final response. If this or `onResponseData` throws, the request fails and its socket is closed. */
  onResponseStart(controller: WireController, status: number, headers: ResponseHeaders): void;
  /** Called with a piece of the body. The chunk is valid only during the call. */
  onResponseData(controller: WireController, chunk: Buffer): void;
  /**
   * Called when the response is complete. Another request may use the socket only after this call; if this aborts or throws,
   * the socket is closed instead. So a response that does not answer its request closes its connection, and no further bytes
   * of that connection are read.
   */
  onResponseEnd(controller: WireController): void;
  /** Called when the request fails. If `onRequestStart` was not called before, no byte of the request was sent. */
  onResponseError(controller: WireController, thrown: Error): void;
}

/**
 * The HTTP/1.1 client for one origin and one set of credentials. A request has a socket of its own until the handler has
 * checked its response, and is never sent twice. A GET never reuses the socket of an earlier POST, because its response may
 * be an event stream that names no request.
 */
export interface Wire {
  /** Sends a request. May call the handler before it returns. */
  dispatch(request: WireRequest, handler: WireHandler): void;
  /** Fails the requests in flight and closes all sockets. Resolves when no socket is left. */
  destroy(): Promise<void>;
}
