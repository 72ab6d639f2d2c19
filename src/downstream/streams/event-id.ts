import { type Id, parseMessage } from '../../protocol/jsonrpc.ts';

/** What a `Last-Event-ID` says: `<stream>.<seq>`, and for a stream that answers one request `.<base64url of its id>`. */
export interface EventId {
  /** Unique within the session, also across restarts of the gateway. */
  readonly stream: string;
  readonly seq: number;
  /** Lets a client that comes back after the stream is forgotten be told about the request it waits for. */
  readonly request: Id | undefined;
}

const EVENT_ID = /^([A-Za-z\d_-]{1,40})\.(\d{1,12})(?:\.([A-Za-z\d_-]+))?$/;
const MAX_CHARS = 200;
const MAX_REQUEST_CHARS = 140;

/** What follows the number in the ids of a stream: empty for a request id too long to be carried. */
export function requestSuffix(request: Id | undefined): string {
  if (request === undefined) return '';
  const encoded = Buffer.from(request).toString('base64url');
  return encoded.length > MAX_REQUEST_CHARS ? '' : `.${encoded}`;
}

/** The id comes back from the client and goes out again in a response, so it must be one. */
function requestOf(encoded: string): Id | undefined {
  const id = Buffer.from(encoded, 'base64url').toString();
  try {
    const message = parseMessage(`{"jsonrpc":"2.0","id":${id},"method":"x"}`);
    return message.kind === 'request' && message.id === id ? id : undefined;
  } catch {
    return undefined;
  }
}

/** Undefined when this is no id of ours. */
export function parseEventId(text: string): EventId | undefined {
  if (text.length > MAX_CHARS) return undefined;
  const [, stream, seq, encoded] = EVENT_ID.exec(text) ?? [];
  if (stream === undefined || seq === undefined) return undefined;
  return { stream, seq: Number(seq), request: encoded === undefined ? undefined : requestOf(encoded) };
}
