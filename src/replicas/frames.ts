/** The kinds of frames between two processes of a gateway. */
export const FRAME = {
  /** To the owner: a {@link ForwardedHead}. Begins an exchange. */
  request: 1,
  /** From the owner: status and headers, with the beginning of the body. */
  response: 2,
  /** A piece of the body of the request or of the response. */
  data: 3,
  /** Allows the other side to send more bytes of a body. */
  window: 4,
  /** Ends an exchange before its end: the client has gone, or the response cannot be completed. */
  reset: 5,
  /** From the owner: a status. Nothing was done with the request. */
  refused: 6,
  /** Asks for a `pong`. */
  ping: 7,
  pong: 8,
} as const;

/**
 * Bytes in front of each payload. They are the size of the payload (4), the kind (1), 1 if the body ends here (1), and the exchange's
 * number (4).
 */
const HEAD_BYTES = 10;
/** The head of a request can have as many bytes as its headers and its principal. Bodies are sent in smaller pieces. */
const MAX_PAYLOAD_BYTES = 262_144;
/** The largest frame. The reader of a larger one closes the channel. */
export const MAX_FRAME_BYTES: number = HEAD_BYTES + MAX_PAYLOAD_BYTES;
/** The greatest number of an exchange. */
export const MAX_EXCHANGE = 0xff_ff_ff_ff;

/** Status of a request on a connection whose key has ended. */
export const UNTRUSTED = 403;

export interface Frame {
  readonly kind: number;
  /** True if the body of its sender ends with this frame. */
  readonly isLast: boolean;
  readonly exchange: number;
  readonly payload: Buffer;
}

/** The head of a response: its status, and its headers as a flat list. */
export interface ForwardedResponseHead {
  readonly status: number;
  readonly headers: readonly string[];
}

const EMPTY = Buffer.alloc(0);

/** Returns a frame whose payload is to be written behind its head. */
function emptyFrame(kind: number, exchange: number, isLast: boolean, payloadBytes: number): Buffer {
  const bytes = Buffer.allocUnsafe(HEAD_BYTES + payloadBytes);
  bytes.writeUInt32BE(payloadBytes, 0);
  bytes[4] = kind;
  bytes[5] = isLast ? 1 : 0;
  bytes.writeUInt32BE(exchange, 6);
  return bytes;
}

/** Returns a frame without a payload. */
export function bareFrame(kind: number, exchange: number): Buffer {
  return emptyFrame(kind, exchange, false, 0);
}

/** Returns a frame whose payload is one number. */
export function numberFrame(kind: number, exchange: number, value: number): Buffer {
  const bytes = emptyFrame(kind, exchange, false, 4);
  bytes.writeUInt32BE(value, HEAD_BYTES);
  return bytes;
}

export function dataFrame(exchange: number, isLast: boolean, piece: Buffer): Buffer {
  const bytes = emptyFrame(FRAME.data, exchange, isLast, piece.length);
  piece.copy(bytes, HEAD_BYTES);
  return bytes;
}

/** Returns the frame of a request. Its payload is two texts, because many requests share the first one. */
export function requestFrame(exchange: number, isLast: boolean, shared: string, own: string): Buffer {
  const sharedBytes = Buffer.byteLength(shared);
  const bytes = emptyFrame(FRAME.request, exchange, isLast, 4 + sharedBytes + Buffer.byteLength(own));
  bytes.writeUInt32BE(sharedBytes, HEAD_BYTES);
  bytes.write(shared, HEAD_BYTES + 4);
  bytes.write(own, HEAD_BYTES + 4 + sharedBytes);
  return bytes;
}

/** Returns the two texts of a request; undefined if the payload has no two texts. */
export function requestTexts(payload: Buffer): readonly [shared: string, own: string] | undefined {
  if (payload.length < 4) return undefined;
  const end = 4 + payload.readUInt32BE(0);
  if (end > payload.length) return undefined;
  return [payload.toString('utf8', 4, end), payload.toString('utf8', end)];
}

/** Returns the frame of a response with the beginning of its body, or with all of it. @param bodyBytes the size of the body in `encoding`. */
export function responseFrame(
  exchange: number,
  isLast: boolean,
  { status, headers }: ForwardedResponseHead,
  body: string | Buffer = EMPTY,
  bodyBytes: number = body.length,
): Buffer {
  const head = JSON.stringify(headers);
  const headBytes = Buffer.byteLength(head);
  const bytes = emptyFrame(FRAME.response, exchange, isLast, 6 + headBytes + bodyBytes);
  bytes.writeUInt16BE(status, HEAD_BYTES);
  bytes.writeUInt32BE(headBytes, HEAD_BYTES + 2);
  bytes.write(head, HEAD_BYTES + 6);
  const at = HEAD_BYTES + 6 + headBytes;
  if (typeof body !== 'string') body.copy(bytes, at);
  // As many bytes as characters means ASCII, which latin1 copies without encoding.
  else bytes.write(body, at, bodyBytes === body.length ? 'latin1' : 'utf8');
  return bytes;
}

export function responseParts(
  payload: Buffer,
): { readonly head: ForwardedResponseHead; readonly body: Buffer } | undefined {
  if (payload.length < 6) return undefined;
  const end = 6 + payload.readUInt32BE(2);
  if (end > payload.length) return undefined;
  const headers: unknown = JSON.parse(payload.toString('utf8', 6, end));
  if (!isTexts(headers)) return undefined;
  return { head: { status: payload.readUInt16BE(0), headers }, body: payload.subarray(end) };
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string');
}

/** Splits the bytes of a connection into frames. */
export class FrameReader {
  /** The received part of an incomplete frame. */
  #rest: Buffer = EMPTY;

  /** Returns the frames that end in this chunk. @throws {RangeError} if a frame is too large. */
  read(chunk: Buffer): readonly Frame[] {
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const frames: Frame[] = [];
    let at = 0;
    while (bytes.length - at >= HEAD_BYTES) {
      const payloadBytes = bytes.readUInt32BE(at);
      if (payloadBytes > MAX_PAYLOAD_BYTES) throw new RangeError(`a frame of ${payloadBytes} bytes`);
      const start = at + HEAD_BYTES;
      const end = start + payloadBytes;
      if (end > bytes.length) break;
      frames.push({
        kind: bytes[at + 4] ?? 0,
        isLast: bytes[at + 5] === 1,
        exchange: bytes.readUInt32BE(at + 6),
        payload: bytes.subarray(start, end),
      });
      at = end;
    }
    this.#rest = at === bytes.length ? EMPTY : bytes.subarray(at);
    return frames;
  }
}
