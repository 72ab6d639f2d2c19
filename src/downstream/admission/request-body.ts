import { isUtf8 } from 'node:buffer';
import type { IncomingMessage, ServerResponse } from 'node:http';

export type RequestBody =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'not-text' }
  | { readonly kind: 'too-large' }
  /** The client went away in the middle of it. */
  | { readonly kind: 'gone' };

/** A client that is told to stop gets this long to hear it, and this much more may come meanwhile. */
const LINGER_MS = 500;
const LINGER_BYTES = 67_108_864;

const EMPTY = Buffer.alloc(0);

function toText(bytes: Buffer): RequestBody {
  return isUtf8(bytes) ? { kind: 'text', text: bytes.toString('utf8') } : { kind: 'not-text' };
}

function ignore(): void {}

/** Reads a body of at most `limitBytes`, and hands it on once. What is beyond is not held. */
export function readBody(
  incoming: IncomingMessage,
  limitBytes: number,
  announced: string | undefined,
  take: (body: RequestBody) => void,
): void {
  if (announced !== undefined && Number(announced) > limitBytes) {
    take({ kind: 'too-large' });
    return;
  }
  // Gone while we were waiting for something else: no event will tell.
  if (incoming.destroyed && !incoming.complete) {
    take({ kind: 'gone' });
    return;
  }
  let only: Buffer | undefined;
  let chunks: Buffer[] | undefined;
  let bytes = 0;
  // Cheaper than taking the listeners off a message that ends with them.
  let isDone = false;
  incoming.on('data', (chunk: Buffer) => {
    if (isDone) return;
    bytes += chunk.length;
    if (bytes > limitBytes) {
      isDone = true;
      incoming.pause();
      take({ kind: 'too-large' });
    } else if (only === undefined) only = chunk;
    else (chunks ??= [only]).push(chunk);
  });
  incoming.on('end', () => {
    if (isDone) return;
    isDone = true;
    take(toText(chunks === undefined ? (only ?? EMPTY) : Buffer.concat(chunks)));
  });
  incoming.on('close', () => {
    if (isDone) return;
    isDone = true;
    take({ kind: 'gone' });
  });
  // Its `close` follows. Without a listener it would end the process.
  incoming.on('error', ignore);
}

/**
 * Answers 413 to a client that still sends, and closes the connection. Not at once: closing over unread bytes is a reset, which
 * can overtake the answer.
 */
export function refuseBody(incoming: IncomingMessage, outgoing: ServerResponse, text: string): void {
  outgoing.writeHead(413, {
    connection: 'close',
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  });
  outgoing.write(text);
  let bytes = 0;
  const close = (): void => {
    clearTimeout(timer);
    outgoing.end();
  };
  const timer = setTimeout(close, LINGER_MS);
  timer.unref();
  incoming.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > LINGER_BYTES) close();
  });
  incoming.on('end', close);
  incoming.on('close', close);
  incoming.resume();
}
