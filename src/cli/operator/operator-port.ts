import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { text } from 'node:stream/consumers';

/** The time without a byte after which the system asks whether the other machine is there. */
const TCP_PROBE_MS = 30_000;

/** A response of the operator's port, whose body is not read yet. */
export interface PortResponse {
  readonly status: number;
  readonly body: IncomingMessage;
}

export interface PortRequest {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Ends the request, also while its body is read. There is no other timeout: `fetch` gives up after five minutes without a byte. */
  readonly signal: AbortSignal;
}

/** Sends a request to the operator's port. Follows no redirect. @throws the reason of the signal, or the error of the connection. */
export async function askPort(
  url: string,
  { method = 'GET', headers, body, signal }: PortRequest,
): Promise<PortResponse> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const { request } = url.startsWith('https:') ? https : http;
  // A connection of its own, which ends with the request.
  const sent = request(url, { method, headers, signal, agent: false }, resolve);
  // A gateway may be silent for long, such as one whose log is followed.
  sent.setSocketKeepAlive(true, TCP_PROBE_MS);
  sent.on('error', (error) => reject(signal.aborted ? signal.reason : error));
  sent.end(body);
  const response = await promise;
  return { status: response.statusCode ?? 0, body: response };
}

/** Returns the whole body as text. @throws the reason of the signal, or the error of the connection. */
export async function textOf({ body }: PortResponse, signal: AbortSignal): Promise<string> {
  try {
    return await text(body);
  } catch (thrown) {
    throw signal.aborted ? signal.reason : thrown;
  }
}

/** Returns whether a request was carried out. */
export function isOk({ status }: PortResponse): boolean {
  return status >= 200 && status < 300;
}
