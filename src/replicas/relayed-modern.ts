import { GatewayError, toAnswer } from '../errors.ts';
import type { ModernSink } from '../gateway/front/front.ts';
import { LineSplitter } from '../protocol/framing/lines.ts';
import type { ForwardOutcome } from '../telemetry/replica-metrics.ts';
import { parseLine } from './modern-exchange.ts';
import type { ForwardedResponseHead } from './frames.ts';
import { isMisdirected, UNREADABLE } from './internal-server.ts';
import { type ChannelExchange, type ExchangeHandler, headTooLarge } from './outgoing-channel.ts';

/** Status of the response to a request that the other process has begun to handle. Every other one means that it did nothing. */
const ACCEPTED = 200;
const TOO_LARGE = 413;
const OVERLOADED = 503;

function refusalWith(status: number): GatewayError {
  if (status === TOO_LARGE) {
    const message = 'the process that has this accepts no request of this size';
    return new GatewayError('too-large', { message, executed: 'no' });
  }
  const message = 'the process that has this did not accept the request; send it again';
  return new GatewayError(status === OVERLOADED ? 'overloaded' : 'store-unavailable', { message });
}

/** A modern request on its way to the replica that has its parked call or task. Answers in any case. */
export class RelayedModern implements ExchangeHandler {
  readonly #sink: ModernSink;
  readonly #onNothingDone: (error?: GatewayError) => void;
  readonly #onEnd: (outcome: ForwardOutcome) => void;
  readonly #lines = new LineSplitter(Infinity, (line) => this.#onLine(line));
  #exchange: ChannelExchange | undefined;
  #isEnded = false;

  /** @param onNothingDone runs in place of `sink.answer` if nothing was done with the request. */
  constructor(
    sink: ModernSink,
    onNothingDone: (error?: GatewayError) => void,
    onEnd: (outcome: ForwardOutcome) => void,
  ) {
    this.#sink = sink;
    this.#onNothingDone = onNothingDone;
    this.#onEnd = onEnd;
  }

  /** Sends the request. @param exchange undefined if the head is too large. */
  start(exchange: ChannelExchange | undefined, text: string): void {
    if (exchange === undefined) {
      this.onUnreachable('refused', headTooLarge());
      return;
    }
    this.#exchange = exchange;
    exchange.body.end(Buffer.from(text));
  }

  /** Cancels the request because its client has gone. */
  cancel(): void {
    this.#exchange?.reset();
    this.#fail('abandoned');
  }

  /** Reports that nothing was done with the request. @param error the reason, if another attempt is of no use. */
  onUnreachable(outcome: ForwardOutcome = 'unreachable', error?: GatewayError): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#onNothingDone(error);
    this.#onEnd(outcome);
  }

  onResponse({ status }: ForwardedResponseHead, piece: Buffer, isLast: boolean): void {
    if (status === ACCEPTED) {
      this.onData(piece, isLast);
      return;
    }
    this.#exchange?.reset();
    this.onUnreachable('refused', refusalWith(status));
  }

  onData(piece: Buffer, isLast: boolean): void {
    this.#lines.push(piece);
    this.#exchange?.received.consume(piece.length);
    if (isLast) this.onBroken();
  }

  onRefused(status: number): void {
    // Another version cannot read it, however often it is sent.
    const error = status === UNREADABLE ? refusalWith(status) : undefined;
    this.onUnreachable(isMisdirected(status) ? 'misdirected' : 'refused', error);
  }

  onBroken(): void {
    this.#fail('broken');
  }

  #fail(outcome: ForwardOutcome): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    const message = 'the connection to the process that has this broke; check what the request did';
    // The other process records that its client has gone. If it broke, nobody else may know of the request.
    this.#sink.answer(
      toAnswer(new GatewayError('outcome-unknown', { message })),
      outcome === 'abandoned' && this.#exchange !== undefined,
    );
    this.#onEnd(outcome);
  }

  #onLine(text: string): void {
    const line = parseLine(text);
    if (this.#isEnded || line === undefined) return;
    if (line.kind === 'message') {
      this.#sink.send(line.message);
      return;
    }
    this.#isEnded = true;
    this.#sink.answer(line.answer, true);
    this.#onEnd('answered');
  }
}
