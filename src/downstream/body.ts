import { isUtf8 } from 'node:buffer';
import type { IncomingMessage, ServerResponse } from 'node:http';

export type Body =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'not-text' }
  | { readonly kind: 'too-large' }
  /** The client went away in the middle of it. */
  | { readonly kind: 'gone' };

/** A client that is told to stop gets this long to hear it, and this much more may come meanwhile. */
const LINGER_MS = 500;
const LINGER_BYTES = 67_108_864;

function toText(chunks: readonly Buffer[]): Body {
  const [first = Buffer.alloc(0)] = chunks;
  const bytes = chunks.length > 1 ? Buffer.concat(chunks) : first;
  return isUtf8(bytes) ? { kind: 'text', text: bytes.toString('utf8') } : { kind: 'not-text' };
}

/** Reads a body of at most `limitBytes`; what is beyond is not held. */
export function readBody(incoming: IncomingMessage, limitBytes: number, announced: string | undefined): Promise<Body> {
  if (announced !== undefined && Number(announced) > limitBytes) return Promise.resolve({ kind: 'too-large' });
  // Gone while we were waiting for something else: no event will tell.
  if (incoming.destroyed && !incoming.complete) return Promise.resolve({ kind: 'gone' });
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    // Cheaper than taking the listeners off a message that ends with them.
    let isDone = false;
    const done = (body: Body): void => {
      isDone = true;
      resolve(body);
    };
    const onData = (chunk: Buffer): void => {
      if (isDone) return;
      bytes += chunk.length;
      if (bytes > limitBytes) {
        incoming.pause();
        done({ kind: 'too-large' });
        return;
      }
      chunks.push(chunk);
    };
    const onEnd = (): void => done(toText(chunks));
    const onClose = (): void => done({ kind: 'gone' });
    incoming.on('data', onData);
    incoming.on('end', onEnd);
    incoming.on('close', onClose);
    // Its `close` follows. Without a listener it would end the process.
    incoming.on('error', () => undefined);
  });
}

/**
 * Answers 413 to a client that still sends, and closes the connection. Not at once: closing over unread bytes is a reset, which
 * can overtake the answer.
 */
export function turnAway(incoming: IncomingMessage, outgoing: ServerResponse, text: string): void {
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
