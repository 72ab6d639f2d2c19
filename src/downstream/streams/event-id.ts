import { type Id, parseMessage } from '../../protocol/jsonrpc.ts';

/** A parsed event id: `<stream>.<seq>`, then `.<base64url of the request id>` if the stream answers one request. */
export interface EventId {
  /** Unique within the session, also across restarts of the gateway. */
  readonly stream: string;
  readonly seq: number;
  /** The request that the stream answers: its client gets an answer even if the stream is no longer kept. */
  readonly request: Id | undefined;
}

const EVENT_ID = /^([A-Za-z\d_-]{1,40})\.(\d{1,12})(?:\.([A-Za-z\d_-]+))?$/;
const MAX_CHARS = 200;
const MAX_REQUEST_CHARS = 140;

/** Returns the end of all event ids of a stream. Empty if the request id is too long. */
export function requestSuffix(request: Id | undefined): string {
  if (request === undefined) return '';
  const encoded = Buffer.from(request).toString('base64url');
  return encoded.length > MAX_REQUEST_CHARS ? '' : `.${encoded}`;
}

/** Decodes and checks a request id, because the client sends it and the gateway puts it into a response. */
function requestOf(encoded: string): Id | undefined {
  const id = Buffer.from(encoded, 'base64url').toString();
  try {
    const message = parseMessage(`{"jsonrpc":"2.0","id":${id},"method":"x"}`);
    return message.kind === 'request' && message.id === id ? id : undefined;
  } catch {
    return undefined;
  }
}

/** Parses an event id. Returns undefined if it does not have the gateway's form. */
export function parseEventId(text: string): EventId | undefined {
  if (text.length > MAX_CHARS) return undefined;
  const [, stream, seq, encoded] = EVENT_ID.exec(text) ?? [];
  if (stream === undefined || seq === undefined) return undefined;
  return { stream, seq: Number(seq), request: encoded === undefined ? undefined : requestOf(encoded) };
}
