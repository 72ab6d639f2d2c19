import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';

export interface Closing {
  readonly destroyed: boolean;
  once(event: 'close', listener: () => void): unknown;
}

/**
 * An HTTP request of a client: the members of Node's `IncomingMessage` that the gateway uses. A request that another process has passed on
 * has them too.
 */
export interface ClientRequest extends Pick<IncomingMessage, 'method' | 'url' | 'headers' | 'rawHeaders'> {
  readonly destroyed: boolean;
  readonly socket: Closing;
  /** True if the whole body has arrived. */
  readonly complete: boolean;
  pause(): unknown;
  resume(): unknown;
  on(event: 'data', listener: (chunk: Buffer) => void): unknown;
  on(event: 'end' | 'close' | 'error', listener: () => void): unknown;
}

/** The response to a {@link ClientRequest}: the members of Node's `ServerResponse` that the gateway uses. */
export interface ClientResponse {
  readonly req: ClientRequest;
  readonly destroyed: boolean;
  readonly writableEnded: boolean;
  readonly headersSent: boolean;
  /** Bytes that the client has not read yet. */
  readonly writableLength: number;
  writeHead(status: number, headers?: OutgoingHttpHeaders | string[]): unknown;
  flushHeaders(): void;
  /** Returns false if the client reads too slowly. A `drain` event follows. */
  write(chunk: string | Buffer): boolean;
  end(): unknown;
  end(chunk: string | Buffer): unknown;
  end(chunk: string | Buffer, encoding: 'latin1' | 'utf8'): unknown;
  destroy(): unknown;
  /** Destroys the response if the client reads nothing for this long; 0 for any time. */
  setTimeout(ms: number): unknown;
  on(event: 'drain' | 'finish' | 'close' | 'error', listener: () => void): unknown;
  once(event: 'close', listener: () => void): unknown;
  removeListener(event: 'close', listener: () => void): unknown;
}

/** A request of a client, and the response to it. */
export interface ClientHttp {
  readonly incoming: ClientRequest;
  readonly outgoing: ClientResponse;
}
