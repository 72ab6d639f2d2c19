import { ArraySet } from '../small-collections.ts';
import { resultWithin } from '../deadline.ts';
import type { Readable, Writable } from 'node:stream';
import type { Logger } from 'pino';
import { GatewayError } from '../errors.ts';
import type { Front } from '../gateway/front/front.ts';
import { LOCAL } from '../policy/principal.ts';
import { oneLine } from '../json/json.ts';
import { type LimitName, LIMITS } from '../limits.ts';
import { invalidAnswer, MessageError } from '../protocol/jsonrpc.ts';
import { LineSplitter } from '../protocol/framing/lines.ts';
import { type ClientInput, readInput, toRefusal } from './classify.ts';
import { StreamWriter } from './streams/stream-writer.ts';
import { errorText, Peer } from './peer.ts';
import { withoutByteOrderMark } from '../protocol/framing/byte-order-mark.ts';
import { resultOrError } from '../thrown.ts';

export interface StdioStreams {
  readonly input: Readable;
  /** Carries protocol messages only. */
  readonly output: Writable;
}

/** The time for calls to end after the client closed its input, as at the end of a pipe. */
const LAST_ANSWERS_MS = 5_000;

/**
 * Serves one client over a pair of streams, until either ends or the gateway ends the session.
 *
 * @param onLimit called when a message exceeds a bound.
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio
 */
export async function serveStdio(
  front: Front,
  view: string,
  { input, output }: StdioStreams,
  log: Logger,
  onLimit: (limit: LimitName) => void,
): Promise<void> {
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  const working = new ArraySet<Promise<void>>();
  const writer = new StreamWriter(
    output,
    { onGone: () => end(), onDropped: () => log.debug('message dropped: the client reads too slowly') },
    // While the client does not read its output, its input is paused; otherwise the queue would grow without bound.
    { isImpatient: false, onStall: (isStalled) => (isStalled ? input.pause() : input.resume()) },
  );
  const sink = { send: (text: string) => writer.writeText(`${oneLine(text)}\n`, text) };
  const peer = new Peer({ front, principal: LOCAL, view, sink, log, onLimit, onEnd: end });

  const receive = (message: ClientInput) => {
    const work = peer.receive(message).finally(() => working.delete(work));
    working.add(work);
  };
  const lines = new LineSplitter(LIMITS.clientLineBytes, (line, isCut) => {
    if (isCut) {
      onLimit('clientLineBytes');
      const message = `a line is longer than ${LIMITS.clientLineBytes} bytes`;
      sink.send(errorText(new GatewayError('parse-error', { message })));
      return;
    }
    const message = resultOrError(MessageError, () => readInput(withoutByteOrderMark(line)));
    if (!(message instanceof MessageError)) return receive(message);
    if (message.limit !== undefined) onLimit(message.limit);
    if (message.isResponse) receive(invalidAnswer(message));
    else sink.send(errorText(toRefusal(message), message.id));
  });
  input.on('data', (chunk: Buffer) => lines.push(chunk));
  input.once('end', () => {
    lines.end();
    end();
  });
  input.once('close', end);
  input.on('error', end);

  await ended;
  peer.drain();
  // Waits that keep no process alive must not end it before the last answers.
  const alive = setTimeout(() => undefined, LAST_ANSWERS_MS);
  await resultWithin(Promise.all(working), LAST_ANSWERS_MS).finally(() => clearTimeout(alive));
  await peer.close();
}
